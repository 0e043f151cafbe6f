#!/usr/bin/env python3
"""SmolLM2 as keel computes it against tests/lm/golden/smollm2.json, which an independent
numpy implementation made (make_smollm2.py)."""
import json
import os
import pathlib
import subprocess
import unittest

from keelkit import need_model, skip

GOLDEN = json.loads((pathlib.Path(__file__).parent / "golden/smollm2.json").read_text())


def probe(weights, kv_dtype, isa=None):
    program = os.path.join(os.environ.get("EK_BIN", ""), "tests/probe_lm")
    if not os.path.exists(program):
        skip("probe_lm is not built")
    lines = "".join(" ".join(map(str, r["prompt_ids"])) + "\n"
                    for r in GOLDEN["results"])
    env = {**os.environ, **({"EK_ISA": isa} if isa else {})}
    out = subprocess.run([program, need_model(), weights, kv_dtype, "64"], input=lines,
                         env=env, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in out.stdout.splitlines()]


class Smollm2(unittest.TestCase):
    def test_f32_gives_the_tokens_and_logits_of_the_reference(self):
        results = probe("f32", "f32")
        self.assertEqual(len(results), len(GOLDEN["results"]))
        worst = 0.0
        for got, want in zip(results, GOLDEN["results"]):
            self.assertEqual(got["ids"], want["ids"], want["prompt"])
            for key, row in (("logits_first", "first"), ("logits_last", "last")):
                sampled = got[row][::GOLDEN["stride"]]
                self.assertEqual(len(sampled), len(want[key]))
                worst = max(worst, max(abs(a - b) for a, b in zip(sampled, want[key])))
        print(f"largest difference of a logit: {worst:.2e}")
        self.assertLessEqual(worst, 2e-3)


if __name__ == "__main__":
    unittest.main(verbosity=2)
