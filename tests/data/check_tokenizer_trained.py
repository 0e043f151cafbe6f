"""Tokenizers read from tokenizer.json, and pre-tokenizers named in GGUF, equal Hugging
Face tokenizers on vocabularies that this test trains: byte-level BPE with each model
family's own pre-tokenizer, SentencePiece-style BPE as Llama 2 and Gemma have it, added
tokens with every rule. SentencePiece itself is asked where it is installed."""
import json
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(__file__))
try:
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models
    from tokenizers import normalizers, pre_tokenizers, processors, trainers
except ImportError as e:
    print("skipped:", e)
    sys.exit(77)
import tokenizerkit as kit

FOLDER = tempfile.TemporaryDirectory()
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
GPT2 = pre_tokenizers.ByteLevel(add_prefix_space=False)
DIGITS = pre_tokenizers.Digits(individual_digits=True)


def split(*patterns, behavior="isolated", invert=False):
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(p), behavior, invert) for p in patterns] + [BYTES])


# As the models' tokenizer.json files have them.
CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
LEAD = r"[^\r\n\p{L}\p{N}]?"
SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
UPPER_K, LOWER_K = (s[:-1] + r"&&[^\p{Han}]]" for s in (UPPER, LOWER))
LLAMA3 = "|".join([CONTRACTION, LEAD + r"\p{L}+", r"\p{N}{1,3}", SYMBOLS, SPACES])
QWEN2 = LLAMA3.replace("{1,3}", "")
QWEN35 = "|".join([CONTRACTION, LEAD + r"[\p{L}\p{M}]+", r"\p{N}",
                   r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*", SPACES])
GPT4O = "|".join([LEAD + UPPER + "*" + LOWER + "+" + CONTRACTION + "?",
                  LEAD + UPPER + "+" + LOWER + "*" + CONTRACTION + "?",
                  r"\p{N}{1,3}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", SPACES])
TEKKEN = "|".join([LEAD + UPPER + "*" + LOWER + "+", LEAD + UPPER + "+" + LOWER + "*",
                   r"\p{N}", r" ?[^\s\p{L}\p{N}]+[\r\n/]*", SPACES])
KIMI = "|".join([r"[\p{Han}]+", LEAD + UPPER_K + "*" + LOWER_K + "+" + CONTRACTION + "?",
                 LEAD + UPPER_K + "+" + LOWER_K + "*" + CONTRACTION + "?",
                 r"\p{N}{1,3}", SYMBOLS, SPACES])
DEEPSEEK3 = ("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"
             "[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|" + SPACES)
BAILING = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}|"
           r" ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+")
SEED = "|".join([CONTRACTION, LEAD + r"\p{L}+", r"\p{N}{1}", r" ?[^\s\p{L}\p{N}" "\r\n]+",
                 SPACES])

NAMED = {
    "gpt-2": GPT2,
    "smollm": pre_tokenizers.Sequence([DIGITS, GPT2]),
    "llama-bpe": split(LLAMA3),
    "glm4": split(LLAMA3),
    "qwen2": split(QWEN2),
    "qwen35": split(QWEN35),
    "gpt-4o": split(GPT4O),
    "tekken": split(TEKKEN),
    "kimi-k2": split(KIMI),
    "deepseek-v3": split(r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK3),
    "deepseek-coder": pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(p), "isolated") for p in
         ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-\ud7ff]+")] + [DIGITS, BYTES]),
    "bailingmoe": split(BAILING),
    "seed-coder": split(SEED),
}
IGNORES_MERGES = {"llama-bpe", "glm4", "tekken"}
NFC = {"qwen2"}

OTHER_STEPS = {
    "prefix space": pre_tokenizers.ByteLevel(add_prefix_space=True),
    "removed, inverted": split(GPT4O, behavior="removed", invert=True),
    "merged with previous": split(r"\s", behavior="merged_with_previous"),
    "merged with next": split(r"\s", behavior="merged_with_next"),
    "contiguous": split(r"[\p{P}\p{S}]", behavior="contiguous"),
    "inverted previous": split(r"\w+", behavior="merged_with_previous", invert=True),
    "inverted next": split(r"\w+", behavior="merged_with_next", invert=True),
    "string": pre_tokenizers.Sequence([pre_tokenizers.Split("*", "isolated"), GPT2]),
    "line ends": split(r"\s+$", r"^\w"),
    "punctuation": pre_tokenizers.Sequence(
        [pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.Digits(False), GPT2]),
}


def train(pre, normalizer=None, vocab_size=700, **model):
    t = Tokenizer(models.BPE(**model))
    t.pre_tokenizer = pre
    if normalizer:
        t.normalizer = normalizer
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(kit.training_texts(), trainers.BpeTrainer(
        vocab_size=vocab_size, show_progress=False, special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return t


def train_spm(normalizer, pre=None, decoder=None, vocab_size=700):
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if normalizer:
        t.normalizer = normalizer
    if pre:
        t.pre_tokenizer = pre
    t.decoder = decoder
    # NUL as a token would be a key with NUL, which our JSON reader refuses.
    texts = [s.replace("\0", "") for s in kit.training_texts()]
    t.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=vocab_size, show_progress=False, special_tokens=special,
        limit_alphabet=150))
    # The byte tokens are pieces of the model and not added ones.
    text = json.loads(t.to_str())
    text["added_tokens"] = text["added_tokens"][:3]
    return Tokenizer.from_str(json.dumps(text))


def save(t, name):
    path = os.path.join(FOLDER.name, name.replace(" ", "-") + ".json")
    t.save(path)
    return path


def encoder(t):
    return lambda s: t.encode(s, add_special_tokens=False).ids


class Trained(unittest.TestCase):
    corpus = kit.texts(n_random=100)

    def check_both_ways(self, t, name, files=None):
        ours = kit.Tokenizer(*(files or [save(t, name)])).open()
        kit.compare(self, ours, encoder(t), self.corpus, name)
        for text in self.corpus:
            ids = encoder(t)(text)
            wanted = t.decode(ids, skip_special_tokens=True)
            self.assertEqual(b"".join(ours.stream(ids)).decode(), wanted, f"{name}: {text!r}")
            self.assertEqual(ours.decode(ids).decode(errors="replace"), wanted)
        return ours

    def test_byte_level_with_every_named_pre_tokenizer(self):
        for name, pre in NAMED.items():
            with self.subTest(name):
                nfc = normalizers.NFC() if name in NFC else None
                t = train(pre, nfc, ignore_merges=name in IGNORES_MERGES)
                self.check_both_ways(t, name)
                made = json.loads(t.to_str())["model"]
                tokens = sorted(made["vocab"], key=made["vocab"].get)
                path = os.path.join(FOLDER.name, name + ".gguf")
                kit.write_gguf(path, {
                    "model": "gpt2", "pre": name, "tokens": tokens,
                    "token_type": [3 if s == "<|end|>" else 1 for s in tokens],
                    "merges": [" ".join(m) for m in made["merges"]]})
                t.encode_special_tokens = True
                kit.compare(self, kit.Tokenizer(path).open(), encoder(t), self.corpus,
                            name + " in GGUF")

    def test_every_behavior_of_the_steps(self):
        for name, pre in OTHER_STEPS.items():
            with self.subTest(name):
                self.check_both_ways(train(pre), name)

    def test_llama2_style(self):
        decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(),
                                     decoders.Fuse(), decoders.Strip(" ", 1, 0)])
        t = train_spm(normalizers.Sequence([normalizers.Prepend("▁"),
                                            normalizers.Replace(" ", "▁")]),
                      decoder=decoder)
        self.check_both_ways(t, "llama2")

    def test_gemma_style(self):
        decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(),
                                     decoders.Fuse()])
        t = train_spm(normalizers.Replace(" ", "▁"), decoder=decoder,
                      pre=pre_tokenizers.Split(" ", "merged_with_previous"))
        t.post_processor = processors.TemplateProcessing(
            single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
        ours = self.check_both_ways(t, "gemma")
        self.assertEqual(ours.info()["bos"], 1)
        self.assertTrue(ours.info()["adds_bos"])
        self.assertEqual(ours.encode("hi", "bos"), t.encode("hi").ids)

    def test_metaspace(self):
        for scheme in ("always", "first", "never"):
            for splits in (True, False):
                name = f"metaspace {scheme} {splits}"
                with self.subTest(name):
                    space = pre_tokenizers.Metaspace(prepend_scheme=scheme, split=splits)
                    t = train_spm(None, pre=space, decoder=decoders.Sequence(
                        [decoders.ByteFallback(), decoders.Metaspace(prepend_scheme=scheme)]))
                    t.add_tokens([AddedToken("<x>", normalized=False)])
                    ours = kit.Tokenizer(save(t, name)).open()
                    kit.compare(self, ours, encoder(t), self.corpus + ["a<x>b <x> c"], name)

    def test_added_tokens_keep_their_rules(self):
        t = train(GPT2)
        t.add_tokens([AddedToken("left", lstrip=True, normalized=False),
                      AddedToken("right", rstrip=True, normalized=False),
                      AddedToken("both", lstrip=True, rstrip=True, normalized=True),
                      AddedToken("word", single_word=True, normalized=False),
                      AddedToken("word longer", normalized=True),
                      AddedToken("<a>", normalized=True), AddedToken("a><", normalized=False),
                      AddedToken("  ", normalized=False), AddedToken("    ")])
        t.add_special_tokens([AddedToken("<|x|>", lstrip=True), "<|y|>"])
        texts = ["a  left  b", "a  right \n b", "x \u3000both\t\ty", "word words sword word.",
                 "word_ word é word", "a word longer b", "<a>< <a> a><", "a      b",
                 "q  <|x|>  r<|y|> s", " both left right both ", "leftright", "wordword",
                 "<|x|><|y|><|x|>", "  ", "     ", "left", "éword 你word wordé word1"]
        ours = kit.Tokenizer(save(t, "added")).open()
        for text in texts + self.corpus:
            self.assertEqual(ours.encode(text, "parse"), encoder(t)(text), repr(text))
        t.encode_special_tokens = True
        for text in texts + self.corpus:
            self.assertEqual(ours.encode(text), encoder(t)(text), repr(text))

    def test_special_tokens_of_the_configuration(self):
        path = save(train(GPT2), "configured")
        config = os.path.join(FOLDER.name, "tokenizer_config.json")
        for bos in ("<|end|>", {"content": "<|end|>", "__type": "AddedToken"}):
            with open(config, "w", encoding="utf-8") as f:
                json.dump({"bos_token": bos, "eos_token": "a", "add_bos_token": True}, f)
            info = kit.Tokenizer(path, config).info()
            self.assertEqual((info["bos"], info["adds_bos"]), (0, True))
            self.assertGreater(info["eos"], 0)

    def test_a_mebibyte_line(self):
        t = train(split(LLAMA3))
        ours = kit.Tokenizer(save(t, "long")).open()
        line = kit.mebibyte_line()
        self.assertEqual(ours.encode(line), encoder(t)(line))

    def test_sentencepiece_itself_agrees_on_a_scored_vocabulary(self):
        try:
            import sentencepiece
        except ImportError:
            self.skipTest("the PyPI package sentencepiece is not installed")
        for prefix in (True, False):
            model = os.path.join(FOLDER.name, f"sp{int(prefix)}")
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(s for s in kit.training_texts() if "\0" not in s),
                model_prefix=model, vocab_size=900, model_type="bpe", byte_fallback=True,
                add_dummy_prefix=prefix, normalization_rule_name="identity",
                remove_extra_whitespaces=False, character_coverage=0.98, minloglevel=2,
                user_defined_symbols=["<tag>", "\n\n"], split_digits=True)
            sp = sentencepiece.SentencePieceProcessor(model_file=model + ".model")
            n = sp.vocab_size()
            kind = lambda i: (2 if sp.is_unknown(i) else 3 if sp.is_control(i)
                              else 6 if sp.is_byte(i)
                              else 4 if sp.id_to_piece(i) in ("<tag>", "\n\n") else 1)
            kit.write_gguf(model + ".gguf", {
                "model": "llama", "tokens": [sp.id_to_piece(i) for i in range(n)],
                "scores": [float(sp.get_score(i)) for i in range(n)],
                "token_type": [kind(i) for i in range(n)], "add_space_prefix": prefix,
                "unknown_token_id": sp.unk_id(), "bos_token_id": sp.bos_id()})
            ours = kit.Tokenizer(model + ".gguf").open()
            # SentencePiece drops what follows NUL, and puts no prefix after <tag>.
            corpus = [s for s in self.corpus if "\0" not in s and "\n\n" not in s]
            kit.compare(self, ours, sp.encode, corpus, "sentencepiece")
            if not prefix:
                kit.compare(self, ours, sp.encode, ["a<tag>b\n\n\nc", " <tag> "], "symbols")
            for text in corpus[:60]:
                ids = sp.encode(text)
                self.assertEqual(ours.decode(ids).decode(), sp.decode(ids), repr(text))


if __name__ == "__main__":
    unittest.main()
