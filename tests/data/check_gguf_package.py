"""The GGUF reader against the `gguf` package: what its writer writes reads equal here,
value for value and type for type, and the real model's metadata is what its reader says."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

import keelkit

try:
    import gguf
    import numpy as np
except ImportError as missing:
    keelkit.skip(f"the package {missing.name} is not installed")

PROBE = os.path.join(os.environ.get("EK_BIN", ""), "tests", "probe_files")
Q = gguf.GGMLQuantizationType
QUANTS = [Q.Q4_0, Q.Q4_1, Q.Q5_0, Q.Q5_1, Q.Q8_0, Q.Q4_K, Q.Q5_K, Q.Q6_K, Q.Q2_K, Q.Q3_K,
          Q.IQ4_NL, Q.IQ4_XS, Q.MXFP4, Q.NVFP4, Q.TQ1_0, Q.TQ2_0]
PLAIN = {"f32": np.float32, "f16": np.float16, "f64": np.float64, "i8": np.int8,
         "i16": np.int16, "i32": np.int32, "i64": np.int64}


def probe(*args):
    done = subprocess.run([PROBE, *args], capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.decode().splitlines()]


def random_blocks(rng, qtype, shape):
    """Random codes under scales that are small and finite: every code of every block."""
    block, size = gguf.GGML_QUANT_SIZES[qtype]
    rows = rng.integers(0, 256, (shape[0], shape[1] // block, size), dtype=np.uint8)
    scale = rng.uniform(-2, 2, rows.shape[:2] + (2,)).astype(np.float16).view(np.uint8)
    where = {Q.Q6_K: [size - 2], Q.Q3_K: [size - 2], Q.Q2_K: [size - 4, size - 2],
             Q.TQ1_0: [size - 2], Q.TQ2_0: [size - 2], Q.MXFP4: [], Q.NVFP4: []}.get(
        qtype, [0, 2] if qtype in (Q.Q4_1, Q.Q5_1, Q.Q4_K, Q.Q5_K) else [0])
    for i, at in enumerate(where):
        rows[:, :, at:at + 2] = scale[:, :, 2 * i:2 * i + 2]
    n = {Q.MXFP4: 1, Q.NVFP4: 4}.get(qtype, 0)  # scales of one byte
    rows[:, :, :n] = rng.integers(100, 126, rows.shape[:2] + (n,))
    return rows.reshape(shape[0], -1)


class Gguf(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "t.gguf")
        self.out = os.path.join(self.folder.name, "out")
        self.addCleanup(self.folder.cleanup)

    def write(self, fill):
        writer = gguf.GGUFWriter(self.path, "llama")
        fill(writer)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()

    def test_every_value_type_reads_equal(self):
        values = [("u8", "uint8", 200), ("i8", "int8", -100), ("u16", "uint16", 60000),
                  ("i16", "int16", -30000), ("u32", "uint32", 4000000000),
                  ("i32", "int32", -2000000000), ("u64", "uint64", 2 ** 64 - 1),
                  ("i64", "int64", -2 ** 63), ("f32", "float32", 0.1),
                  ("f64", "float64", 0.1), ("bool", "bool", True),
                  ("string", "string", 'tab\t, "quotes", é, 漢, 👩\u200d🚀, \x00')]
        arrays = [("words", ["", "a", "é漢" * 50]), ("ints", [1, -2, 3]),
                  ("reals", [0.5, -1e30]), ("flags", [True, False])]

        def fill(writer):
            for name, kind, value in values:
                getattr(writer, "add_" + kind)("k." + name, value)
            for name, value in arrays:
                writer.add_array("a." + name, value)

        self.write(fill)
        seen = {row[0]: row[1:] for row in probe("kv", self.path)}
        for name, _, value in values:
            expected = float(np.float32(value)) if name == "f32" else value
            self.assertEqual(seen["k." + name], [name, name, expected])
        for name, value in arrays:
            elem = {"words": "string", "ints": "i32", "reals": "f32", "flags": "bool"}[name]
            expected = [float(np.float32(v)) for v in value] if elem == "f32" else value
            self.assertEqual(seen["a." + name], ["array", elem, *expected])

    def test_every_plain_type_reads_equal(self):
        rng = np.random.default_rng(1)
        tensors = {name: (rng.normal(0, 50, (3, 2, 5))).astype(kind)
                   for name, kind in PLAIN.items()}
        bf16 = gguf.quants.quantize(rng.normal(0, 1, (2, 7)).astype(np.float32), Q.BF16)

        def fill(writer):
            for name, x in tensors.items():
                writer.add_tensor("t." + name, x)
            writer.add_tensor("t.bf16", bf16, raw_dtype=Q.BF16)

        self.write(fill)
        rows = probe("tensors", self.path)
        probe("raw", self.path, self.out)
        with open(self.out, "rb") as f:
            data, at = f.read(), 0
        for name, dtype, shape, size in rows:
            x = bf16 if dtype == "bf16" else tensors[dtype]
            self.assertEqual(name, "t." + dtype)
            self.assertEqual(shape, [2, 7] if dtype == "bf16" else [3, 2, 5])
            self.assertEqual(data[at:at + size], x.tobytes())
            at += size
        self.assertEqual([r[1] for r in rows], [*PLAIN, "bf16"])
        self.assertEqual(at, len(data))

    def test_every_block_type_dequantises_equal(self):
        rng = np.random.default_rng(2)
        blocks = {q: random_blocks(rng, q, (6, 512)) for q in QUANTS}

        def fill(writer):
            for q, raw in blocks.items():
                writer.add_tensor(q.name.lower(), raw, raw_dtype=q)

        self.write(fill)
        rows = probe("tensors", self.path)
        probe("f32", self.path, self.out)
        ours = np.fromfile(self.out, np.float32).reshape(len(QUANTS), 6, 512)
        for i, q in enumerate(QUANTS):
            self.assertEqual(rows[i][:3], [q.name.lower()] * 2 + [[6, 512]])
            theirs = gguf.quants.dequantize(blocks[q], q)
            # numpy may round a product before the sum where we do not: one ulp of the
            # largest term.
            np.testing.assert_allclose(ours[i], theirs, rtol=0,
                                       atol=4e-7 * np.abs(theirs).max())

    def test_alignment_and_shapes_of_one_to_four_dimensions(self):
        def fill(writer):
            writer.add_custom_alignment(128)
            for n in range(1, 5):
                writer.add_tensor(f"d{n}", np.zeros((2, 3, 4, 5)[:n], np.float32))

        self.write(fill)
        self.assertEqual([r[2] for r in probe("tensors", self.path)],
                         [[2], [2, 3], [2, 3, 4], [2, 3, 4, 5]])

    def test_big_endian_file_is_refused_by_name(self):
        writer = gguf.GGUFWriter(self.path, "llama", endianess=gguf.GGUFEndian.BIG)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        done = subprocess.run([PROBE, "kv", self.path], capture_output=True, text=True)
        self.assertEqual(done.returncode, 3)
        self.assertIn("is big-endian GGUF version 3; expected little-endian", done.stderr)

    def test_types_that_are_not_read_are_refused_by_name(self):
        for q in gguf.GGMLQuantizationType:
            if q in QUANTS or q.name.lower() in [*PLAIN, "bf16"]:
                continue
            block, size = gguf.GGML_QUANT_SIZES[q]
            self.write(lambda w: w.add_tensor("w", np.zeros((2, size), np.uint8),
                                              raw_dtype=q))
            done = subprocess.run([PROBE, "kv", self.path], capture_output=True, text=True)
            self.assertEqual(done.returncode, 3, q)
            self.assertIn(f"tensor 'w': type {q.value} ({q.name.lower()}) is not "
                          "supported; known: f32, ", done.stderr)


def same(ours, theirs):
    return ours == theirs or (isinstance(ours, float) and ours == float(theirs))


class RealModel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.path = os.environ.get("EK_MODEL", "")
        if not os.path.exists(cls.path):
            raise unittest.SkipTest("the default model is not fetched")
        cls.reader = gguf.GGUFReader(cls.path)  # takes seconds

    def test_metadata_equals_the_other_readers(self):
        fields = {k: f for k, f in self.reader.fields.items() if not k.startswith("GGUF.")}
        seen = {row[0]: row[3:] for row in probe("kv", self.path)}
        self.assertEqual(sorted(seen), sorted(fields))
        for key, field in fields.items():
            value = field.contents()
            value = value if isinstance(value, list) else [value]
            self.assertEqual(len(seen[key]), len(value), key)
            self.assertTrue(all(map(same, seen[key], value)), key)

    def test_tensors_equal_the_other_readers(self):
        rows = probe("tensors", self.path)
        self.assertEqual([r[0] for r in rows], [t.name for t in self.reader.tensors])
        for row, t in zip(rows, self.reader.tensors):
            self.assertEqual(row[1:], [t.tensor_type.name.lower(),
                                       [int(d) for d in reversed(t.shape)], t.n_bytes])


if __name__ == "__main__":
    if not os.path.exists(PROBE):
        keelkit.skip("probe_files is not built")
    unittest.main(argv=sys.argv[:1], verbosity=2)
