#!/usr/bin/env python3
"""keel perplexity on a tiny model: forms of output, and what is refused how."""
import json
import math
import pathlib
import tempfile
import unittest

from keelkit import keel, need_keel

TINY = pathlib.Path(__file__).resolve().parents[1] / "lm/golden/qwen3.gguf"
TEXT = "the rain in the plain then was in her hat and on the pan in a tin " * 20


class Perplexity(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.text = pathlib.Path(self.folder.name) / "text"
        self.text.write_text(TEXT)

    def measure(self, *args):
        out = keel("perplexity", TINY, "--text", self.text, "--ctx", 64, "--json", *args)
        self.assertEqual(out.returncode, 0, out.stderr)
        return json.loads(out.stdout)

    def test_json_tells_what_the_text_form_tells(self):
        got = self.measure("--kl-against", "f32")
        said = keel("perplexity", TINY, "--text", self.text, "--ctx", 64).stdout
        self.assertIn(f"{got['perplexity']:.4f}", said)
        self.assertEqual(got["scored"], got["chunks"] * 31)
        self.assertAlmostEqual(math.exp(got["mean_nll"]), got["perplexity"], places=3)
        self.assertGreater(got["standard_error"], 0)
        self.assertGreater(got["kl"]["mean"], 0)

    def test_a_model_is_at_no_distance_from_itself(self):
        got = self.measure("--weights", "f32", "--kv-dtype", "f32", "--kl-against", "f32")
        self.assertEqual((got["kl"]["mean"], got["kl"]["max"]), (0, 0))
        self.assertEqual(got["kl"]["agreement"], 1)

    def test_threads_do_not_change_a_digit(self):
        self.assertEqual(*[self.measure("--threads", n)["mean_nll"] for n in (1, 2)])

    def test_max_bytes_cuts_the_text(self):
        whole, cut = self.measure(), self.measure("--max-bytes", 500)
        self.assertEqual(cut["text_bytes"], 500)
        self.assertLess(cut["chunks"], whole["chunks"])

    def test_bad_usage_and_bad_input_have_their_exit_codes(self):
        for want, args, word in (
                (2, (TINY,), "--text"),
                (2, (TINY, "--text", self.text, "--ctx", "3"), "ctx"),
                (2, (TINY, "--text", self.text, "--weights", "int3"), "int4"),
                (3, (TINY, "--text", "/nonexistent"), "/nonexistent"),
                (3, (TINY, "--text", self.text, "--ctx", "129"), "128"),
                (3, (TINY, "--text", self.text, "--ctx", "64", "--max-bytes", "20"),
                 "chunk"),
                (3, (self.text, "--text", self.text), "GGUF")):
            got = keel("perplexity", *args)
            self.assertEqual(got.returncode, want, (args, got.stderr))
            self.assertIn(word, got.stderr)
            self.assertEqual(len(got.stderr.strip().splitlines()), 1, got.stderr)


if __name__ == "__main__":
    need_keel()
    unittest.main(verbosity=2)
