"""tokenizerkit.py - the texts that tokenizers are compared on, and our side of it."""
import mmap
import os
import random
import struct
import subprocess

SCRIPTS = {
    "Latin": "The quick brown fox can't jump; they'll WE'VE I'M he'd 'Re ÀÉÎõü Straße ﬁn",
    "Greek": "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. ΑΒΓ ς",
    "Cyrillic": "Съешь же ещё этих мягких французских булок, да выпей чаю. ЁЖ",
    "Arabic": "صِف خَلقَ خَودِ كَمِثلِ الشَمسِ إِذ بَزَغَت ١٢٣٤",
    "Hebrew": "דג סקרן שט בים מאוכזב ולפתע מצא לו חברה שָׁלוֹם",
    "Devanagari": "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा १२३",
    "Bengali": "আমি বাংলায় গান গাই ৪৫৬",
    "Tamil": "யாமறிந்த மொழிகளிலே தமிழ்மொழி போல் இனிதாவது",
    "Telugu": "తెలుగు అక్షరాలు చాలా అందంగా ఉంటాయి",
    "Thai": "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า ๑๒๓",
    "Lao": "ສະບາຍດີ ປະເທດລາວ",
    "Khmer": "ខ្ញុំអាចញ៉ាំកញ្ចក់បាន",
    "Myanmar": "ကျွန်တော် ဖန်စားနိုင်တယ်",
    "Georgian": "მინას ვჭამ და არა მტკივა ᲐᲑᲒ",
    "Armenian": "Կրնամ ապակի ուտել և ինծի անհանգիստ չըներ",
    "Ethiopic": "ሰማይ አይታረስ ንጉሥ አይከሰስ። ፩፪",
    "Hangul": "키스의 고유조건은 입술끼리 만나야 하고 각각 한국어",
    "Hiragana": "いろはにほへと ちりぬるを カタカナ ｶﾀｶﾅ がガ",
    "Han": "我能吞下玻璃而不伤身体。〇々〆 2024年第3季度，价格：￥１２３。⺀⻳𠀀",
    "Tibetan": "ཤེལ་སྒོ་ཟ་ནས་ང་ན་གི་མ་རེད།",
    "Cherokee": "ᎠᏂᏴᏫᏯ ꭰꮒ Ꭰ",
    "Mongolian": "ᠪᠢ ᠰᠢᠯᠢ\u180e ᠢᠳᠡᠶᠦ",
    "Cuneiform": "𒀀𒁀 𐍈 𐐀𐐨 𝔘𝔫𝔦 𝟙𝟚",
}

OTHER = {
    "emoji": "👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇩🇪🇫🇷 ❤️‍🔥 🤷🏾‍♂️ 1️⃣ ©®™",
    "combining": "e\u0301 a\u0300\u0316 o\u0316\u0300 q\u0307\u0323 \u1112\u1161\u11ab "
                 "\u212b \ufb01 \u0344 Z\u0351\u036b\u0343A\u0323\u0301L\u0334G\u0321O",
    "code": "#include <stdio.h>\nint main(void)\n{\n\tfor (int i=0;i<10;++i)\n"
            "\t\tprintf(\"%d\\n\", x[i]->y /* 'quoted' */);\n    return 0x1F & ~3;\n}\n\n\n"
            "def f(self, *a, **k): return {'k': [1.5e-3, None]}  # TODO\r\n",
    "spaces": "a  b   c    d\t\te \t f\n\n g \n\n\n  h   \n   " + " " * 200 + "x" + " " * 77,
    "space ends": "   leading and trailing   ",
    "line ends": "one\r\ntwo\r\n\r\nthree\rfour\n\rfive\u2028six\u2029seven\u0085eight\v\f",
    "odd spaces": "a\u00a0b\u2003c\u3000d\u200be\u202ff\u1680g\ufeffh\u180ei\u2060",
    "controls": "\x00\x01\x02a\x00b\x1b[31m\x7f\x80\x9f",
    "digits": "1 12 123 1234 12345 3.14159 1,000,000 ²³¹ ½ Ⅷ ٣٤ १२ 0x10 1e10 100%",
    "contractions": "I'll I'LL 'ſ 'S can't CAN'T o'clock ''s 'tis they'Ve rock'n'roll 'd'",
    "symbols": "!!! ??? ... --- *** ==> <= >= != :: -> /// $$$ €£¥ «» „“ ‘’ …—– ±×÷ ∑∏∫",
    "url": "https://example.org/a/b?c=d&e=%20#f user@example.com C:\\Dir\\file.txt",
    "case": "HTTPServer iPhone camelCaseString XMLHttpRequest aB Ab ABC abC ǅ ǅa İi ß ẞ",
    "mixed": "你好hello世界World 日本語text 한국어 mixed混合123数字 中a文B",
    "escape": "\u2581already\u2581escaped \u2581 \u2581\u2581",
    "empty": "",
    "one space": " ",
    "newlines": "\n\n\n\n",
    "numbers words": "In 2023, 50% of 1234567 people (or so) said: “no!”",
    "repeat": "ab" * 300 + "=" * 500 + "\n" * 50 + "\t" * 40,
}

MARKUP = ["<|im_start|>system\nHi<|im_end|>\n", "a<|endoftext|>b", "<s>x</s>", "<unk>",
          " <|im_end|> ", "<|im_end|><|im_end|>", "<|im_start", "<0x41><0x0A>"]


def texts(seed=5, n_random=150):
    """Fixed texts, and random mixtures of their pieces and of all of Unicode 6."""
    rng = random.Random(seed)
    fixed = list(SCRIPTS.values()) + list(OTHER.values())
    out = fixed + [s[::-1] for s in fixed] + [" " + s for s in fixed[:8]]
    letters = sorted(set("".join(fixed)))
    for _ in range(n_random):
        k = rng.randrange(1, 60)
        out.append("".join(rng.choice(letters) for _ in range(k)))
        out.append(" ".join(rng.choice(fixed)[:rng.randrange(1, 12)]
                            for _ in range(rng.randrange(1, 8))))
        out.append("".join(rng.choice(" \n\t\r a1'.你é") for _ in range(rng.randrange(30))))
    return out


def training_texts():
    return list(SCRIPTS.values()) * 3 + list(OTHER.values()) * 3 + [
        "hello world the world says hello " * 20, "    return x\n" * 10]


def mebibyte_line():
    return ("The world is wide, and 42 lines are short: привет, 世界! " * 20000)[:1 << 20]


class Tokenizer:
    """A running probe over one vocabulary file."""

    def __init__(self, *files):
        probe = os.path.join(os.environ.get("EK_BIN", "build/release"), "tests",
                             "probe_tokenizer")
        self.process = subprocess.Popen([probe, *map(str, files)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)

    def open(self):
        """The same, once it has loaded; ValueError with the sentence otherwise."""
        try:
            line = self.ask("info")
        except BrokenPipeError:
            line = self.process.stdout.readline().decode()
        if line.startswith("error: "):
            raise ValueError(line)
        return self

    def ask(self, *words):
        self.process.stdin.write((" ".join(words) + "\n").encode())
        self.process.stdin.flush()
        return self.process.stdout.readline().decode().rstrip("\n")

    def encode(self, text, how="plain"):
        data = text if isinstance(text, bytes) else text.encode()
        return [int(x) for x in self.ask(how, data.hex()).split()]

    def encode_masked(self, parts):
        """parts: (text, is_plain) in order."""
        text = b"".join(p.encode() for p, _ in parts)
        mask = b"".join(bytes([int(plain)]) * len(p.encode()) for p, plain in parts)
        return [int(x) for x in self.ask("mask", text.hex(), mask.hex()).split()]

    def decode(self, ids, how="decode"):
        return bytes.fromhex(self.ask(how, *map(str, ids)))

    def stream(self, ids):
        return [bytes.fromhex(x) for x in self.ask("stream", *map(str, ids)).split(",")]

    def steps(self, text):
        return int(self.ask("steps", text.encode().hex()))

    def info(self):
        size, bos, eos, adds_bos, kind = self.ask("info").split(" ", 4)
        return {"size": int(size), "bos": int(bos), "eos": int(eos),
                "adds_bos": adds_bos == "1", "kind": kind}

    def __del__(self):
        self.close()

    def close(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.process.stdout.close()
        return self.process.wait()


def load_error(*files):
    """The sentence with which a vocabulary is refused; "" when it loads."""
    try:
        Tokenizer(*files).open()
    except ValueError as e:
        return str(e)
    return ""


def compare(case, ours, reference, corpus, what):
    """All texts encode alike; the first few differences are shown."""
    wrong = []
    for text in corpus:
        wanted = reference(text)
        got = ours.encode(text)
        if got != wanted:
            wrong.append(f"{what}: {text!r:.120}\n   ours {got[:30]}\n   want {wanted[:30]}")
    if wrong:
        case.fail(f"{what}: {len(wrong)} of {len(corpus)} texts differ\n"
                  + "\n".join(wrong[:4]))


def read_gguf(path, prefix="tokenizer.ggml."):
    """The keys under prefix. Much faster than the gguf package over large lists."""
    with open(path, "rb") as f:
        data = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)
    codes = "BbHhIif?__Qqd"
    at = 24

    def number(code):
        nonlocal at
        value, = struct.unpack_from("<" + code, data, at)
        at += struct.calcsize(code)
        return value

    def string():
        nonlocal at
        n = number("Q")
        at += n
        return data[at - n:at].decode("utf-8")

    def value(kind):
        nonlocal at
        if kind == 8:
            return string()
        if kind != 9:
            return number(codes[kind])
        elem, n = number("I"), number("Q")
        if elem == 8:
            return [string() for _ in range(n)]
        values = struct.unpack_from(f"<{n}{codes[elem]}", data, at)
        at += struct.calcsize(f"<{n}{codes[elem]}")
        return values

    out = {}
    for _ in range(struct.unpack_from("<Q", data, 16)[0]):
        key = string()
        found = value(number("I"))
        if key.startswith(prefix):
            out[key[len(prefix):]] = found
    return out


def write_gguf(path, values):
    """A GGUF file without tensors: str, bool, int and lists of str, int, float."""
    def text(s):
        data = s.encode()
        return struct.pack("<Q", len(data)) + data

    def one(v):
        if isinstance(v, str):
            return 8, text(v)
        if isinstance(v, bool):
            return 7, struct.pack("<?", v)
        if isinstance(v, float):
            return 6, struct.pack("<f", v)
        return 5, struct.pack("<i", v)

    out = struct.pack("<4sIQQ", b"GGUF", 3, 0, len(values))
    for key, v in values.items():
        out += text("tokenizer.ggml." + key)
        if isinstance(v, list):
            items = [one(x) for x in v]
            out += struct.pack("<IIQ", 9, items[0][0] if items else 8, len(items))
            out += b"".join(data for _, data in items)
        else:
            kind, data = one(v)
            out += struct.pack("<I", kind) + data
    with open(path, "wb") as f:
        f.write(out)
