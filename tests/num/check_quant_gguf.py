"""Block formats against the PyPI package gguf, an independent implementation: random
blocks read to the same numbers, values written to the same bytes."""
import os
import subprocess
import sys
import unittest

try:
    import gguf
    import numpy as np
except ImportError as e:
    print(f"skipped: {e.name} is not installed (pip install gguf)")
    sys.exit(77)

PROBE = os.path.join(os.environ.get("EK_BIN", "build/release"), "tests", "probe_quant")
TYPES = gguf.GGMLQuantizationType
# type: places of the f16 scales in a block
READ = {"q4_0": [0], "q4_1": [0, 2], "q5_0": [0], "q5_1": [0, 2], "q8_0": [0],
        "q4_k": [0, 2], "q5_k": [0, 2], "q6_k": [208],
        "q2_k": [80, 82], "q3_k": [108], "iq4_nl": [0], "iq4_xs": [0],
        "tq1_0": [52], "tq2_0": [64], "mxfp4": [], "nvfp4": []}
# scales of one byte: how many, and those that are numbers (0x7f is NaN, and 0 there)
BYTES = {"mxfp4": (1, range(0, 253)), "nvfp4": (4, range(0, 0x7f))}
WRITE = ["f16", "bf16", "q4_0", "q4_1", "q8_0"]


def probe(verb, name, data):
    return subprocess.run([PROBE, verb, name], input=data, stdout=subprocess.PIPE,
                          check=True).stdout


def type_of(name):
    return getattr(TYPES, name.upper())


class Quant(unittest.TestCase):
    def test_random_blocks_read_to_the_same_numbers(self):
        rng = np.random.default_rng(7)
        for name, scales in READ.items():
            _, size = gguf.GGML_QUANT_SIZES[type_of(name)]
            blocks = rng.integers(0, 256, (500, size), dtype=np.uint8)
            for at in scales:
                d = (rng.standard_normal(500) * 0.1).astype(np.float16)
                d[:4] = [0, 6e-8, -6e-8, 100]  # zero, subnormals, large
                blocks[:, at:at + 2] = d.view(np.uint8).reshape(-1, 2)
            n, codes = BYTES.get(name, (0, [0]))
            blocks[:, :n] = rng.choice(codes, (500, n))
            want = gguf.quants.dequantize(blocks, type_of(name)).ravel()
            got = np.frombuffer(probe("read", name, blocks.tobytes()), np.float32)
            with self.subTest(name):
                # The order of the products may differ: one ulp of the larger term.
                scale = np.abs(want).reshape(500, -1).max(1, keepdims=True)
                error = np.abs(got - want).reshape(500, -1)
                self.assertTrue((error <= 2e-7 * scale).all(), error.max())

    def test_plain_codes_read_to_the_same_numbers(self):
        codes = np.arange(65536, dtype=np.uint16)
        for name in ["f16", "bf16"]:
            got = np.frombuffer(probe("read", name, codes.tobytes()), np.float32)
            want = (codes.view(np.float16).astype(np.float32) if name == "f16"
                    else (codes.astype(np.uint32) << 16).view(np.float32))
            with self.subTest(name):
                np.testing.assert_array_equal(got, want)

    def test_values_are_written_to_the_same_bytes(self):
        rng = np.random.default_rng(8)
        x = (rng.standard_normal((400, 32)) * 0.05).astype(np.float32)
        x[0] = 0
        x[1] = 1
        x[2, :] = 0
        x[2, 7] = -3
        x[3] *= 1e-4
        x[4] *= 1e4
        for name in WRITE:
            want = gguf.quants.quantize(x, type_of(name)).tobytes()
            got = probe("write", name, x.tobytes())
            with self.subTest(name):
                self.assertEqual(got, want)


if __name__ == "__main__":
    unittest.main()
