"""The default model with one thing made wrong, one at a time: every verb that loads it says
in one line what, and ends with exit code 3 before it has answered anything."""
import os
import shutil
import struct
import sys
import tempfile
import unittest

import keelkit

MODEL = keelkit.need_model()
FIXED = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
BLOCK_BYTES = {0: (1, 4), 3: (32, 20), 8: (32, 34)}  # ggml's f32, q4_1, q8_0


class Layout:
    """Where the values and the tensors of a GGUF file lie."""

    def __init__(self, path):
        with open(path, "rb") as f:
            self.data = f.read(8 << 20)
        self.at = 8
        n_tensors, n_kv = self.number("Q"), self.number("Q")
        self.values, infos = {}, []
        for _ in range(n_kv):
            key = self.text()
            kind = self.number("I")
            self.values[key] = self.at
            self.skip(kind)
        for _ in range(n_tensors):
            name, n_dims = self.text(), self.number("I")
            dims = [self.number("Q") for _ in range(n_dims)]
            infos.append((name, self.at, self.number("I"), dims, self.number("Q")))
        base = (self.at + 31) // 32 * 32
        self.tensors = {i[0]: (i[1], i[2], i[3], base + i[4]) for i in infos}

    def number(self, kind):
        value = struct.unpack_from("<" + kind, self.data, self.at)[0]
        self.at += struct.calcsize(kind)
        return value

    def text(self):
        n = self.number("Q")
        self.at += n
        return self.data[self.at - n:self.at].decode()

    def skip(self, kind):
        if kind == 8:
            self.text()
        elif kind == 9:
            kind, n = self.number("I"), self.number("Q")
            for _ in range(n if kind == 8 else 1 if n else 0):
                self.skip(kind)
            self.at += (n - 1) * FIXED[kind] if kind != 8 and n else 0
        else:
            self.at += FIXED[kind]


class BadModels(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = os.path.join(cls.folder.name, "m.gguf")
        cls.text = os.path.join(cls.folder.name, "t.txt")
        shutil.copy(MODEL, cls.path)
        cls.layout = Layout(MODEL)
        with open(cls.text, "w", encoding="utf-8") as f:
            f.write("The quick brown fox jumps over the lazy dog. " * 10)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def expect(self, at, data, pattern):
        """With data at byte at, the model is refused by a line that fits the pattern."""
        with open(self.path, "r+b") as f:
            f.seek(at)
            before = f.read(len(data))
            f.seek(at)
            f.write(data)
        try:
            done = keelkit.keel("perplexity", self.path, "--text", self.text, "--ctx", "32")
        finally:
            with open(self.path, "r+b") as f:
                f.seek(at)
                f.write(before)
        lines = [x for x in done.stderr.splitlines() if x.startswith("keel perplexity: ")]
        self.assertEqual((done.returncode, len(lines)), (3, 1), done.stderr)
        self.assertRegex(lines[0], pattern)
        self.assertEqual(done.stdout, "")

    def test_untouched_copy_is_read(self):
        done = keelkit.keel("perplexity", self.path, "--text", self.text, "--ctx", "32")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_scale_that_is_not_finite_is_named(self):
        for name, width, data in [("blk.7.ffn_up.weight", 2, b"\x00\x7e"),
                                  ("blk.29.attn_k.weight", 2, b"\x00\xfc"),
                                  ("token_embd.weight", 2, b"\x01\x7c"),
                                  ("blk.3.attn_norm.weight", 4, b"\x00\x00\xc0\x7f")]:
            _, kind, _, data_at = self.layout.tensors[name]
            block, size = BLOCK_BYTES[kind]
            self.assertEqual(len(data), width)
            self.expect(data_at + 5 * size, data,
                        rf"tensor '{name}': element {5 * block} or the scale of its block is "
                        "not finite")

    def test_value_that_contradicts_the_tensors_is_named(self):
        for key, value, pattern in [
                ("llama.block_count", 31, r"blk\.30\."),
                ("llama.block_count", 29, r"blk\.29\."),
                ("llama.block_count", 0, "block_count"),
                ("llama.block_count", 0xffffffff, "block_count"),
                ("llama.embedding_length", 648, r"tensor '.*648"),
                ("llama.embedding_length", 640, "head dimension 71: expected an even"),
                ("llama.feed_forward_length", 1535, "1535"),
                ("llama.attention.head_count", 0, "head_count"),
                ("llama.attention.head_count", 7, "7 attention heads with 3 key-value"),
                ("llama.attention.head_count_kv", 2, "9 attention heads with 2 key-value"),
                ("llama.context_length", 0, "context_length")]:
            with self.subTest(key=key, value=value):
                self.expect(self.layout.values[key], struct.pack("<I", value), pattern)

    def test_token_id_out_of_range_is_named(self):
        for key in ("bos", "eos"):
            key = f"tokenizer.ggml.{key}_token_id"
            self.expect(self.layout.values[key], struct.pack("<I", 49152),
                        f"{key}.* 49152; expected below 49152")

    def test_tensor_of_another_shape_or_name_is_named(self):
        at, _, dims, _ = self.layout.tensors["blk.2.attn_q.weight"]
        self.expect(at - 16, struct.pack("<QQ", dims[0] // 2, dims[1] * 2),
                    r"tensor 'blk\.2\.attn_q\.weight': .*\(1152, 288\).*\(576, 576\)")
        name_at = self.layout.data.index(b"blk.2.attn_q.weight")
        self.expect(name_at, b"blk.2.attn_z.weight", r"blk\.2\.attn_[qz]\.weight")
        self.expect(name_at, b"blk.3.attn_q.weight",
                    r"tensor 'blk\.3\.attn_q\.weight' is there twice; expected once")

    def test_unknown_architecture_is_refused_by_name(self):
        at = self.layout.values["general.architecture"]
        self.expect(at + 8, b"lxama", "lxama.*llama")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
