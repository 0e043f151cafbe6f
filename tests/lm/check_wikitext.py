#!/usr/bin/env python3
"""keel perplexity on SmolLM2 and wikitext-2 against an independent numpy implementation
(golden/make_smollm2.py), in f32 and with the default compute.

With EK_FULL=1 on the first 100,000 bytes (50 chunks, minutes), else on 10,000 (4)."""
import json
import os
import pathlib
import unittest

from keelkit import keel, need_model, skip

GOLDEN = json.loads((pathlib.Path(__file__).parent / "golden/smollm2.json").read_text())
# An independent f32 implementation's perplexity of 50 chunks.
FULL = {"bytes": 100000, "ctx": 512, "scored": 12750, "value": 19.3048}
WANT = FULL if os.environ.get("EK_FULL") else GOLDEN["perplexity"]


def text():
    path = os.path.join(os.environ.get("EK_DATA", ""), "text/wikitext-2-test.txt")
    return path if os.path.exists(path) else skip("no wikitext-2 in EK_DATA")


def perplexity(*args):
    out = keel("perplexity", need_model(), "--text", text(), "--max-bytes",
               WANT["bytes"], "--ctx", WANT["ctx"], "--json", *args, timeout=3000)
    if out.returncode:
        raise AssertionError(out.stderr)
    return json.loads(out.stdout)


class Perplexity(unittest.TestCase):
    def test_f32_is_within_a_twentieth_of_a_percent(self):
        got = perplexity("--weights", "f32", "--kv-dtype", "f32")
        self.assertEqual(got["scored"], WANT["scored"])
        print(f"f32: {got['perplexity']:.4f}, reference {WANT['value']:.4f}")
        self.assertLess(abs(got["perplexity"] / WANT["value"] - 1), 0.0005)

    def test_kept_weights_and_bf16_keys_and_values_stay_near_f32(self):
        got = perplexity("--kv-dtype", "bf16", "--kl-against", "f32")
        kl = got["kl"]
        print(f"bf16 KV: {got['perplexity']:.4f}; mean KL {kl['mean']:.2e}, largest "
              f"{kl['max']:.2e}, argmax agreement {kl['agreement']:.4f}")
        self.assertLess(abs(got["perplexity"] / WANT["value"] - 1), 0.0025)
        # llama.cpp on the same file: mean 2.9e-3, agreement 0.969.
        self.assertLess(kl["mean"], 4e-4)
        self.assertGreater(kl["agreement"], 0.98)

    def test_fp8_keys_and_values_cost_less_than_llama_cpp_does(self):
        got = perplexity("--kv-dtype", "fp8", "--kl-against", "f32")
        kl = got["kl"]
        print(f"fp8 KV: {got['perplexity']:.4f}; mean KL {kl['mean']:.2e}, largest "
              f"{kl['max']:.2e}, argmax agreement {kl['agreement']:.4f}")
        # Keys rounded to the nearest: 6.1e-3.
        self.assertLess(kl["mean"], 2.9e-3)
        self.assertGreater(kl["agreement"], 0.95)


if __name__ == "__main__":
    need_model()
    text()
    unittest.main(verbosity=2)
