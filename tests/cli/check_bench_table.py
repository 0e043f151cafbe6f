"""bench/speed/main.py, which prints the table of serving speed: with a tiny model of random
weights and no peer every row is whole. No figure is judged."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import keelkit

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEYS = {"name", "ours", "peer", "unit", "ratio", "low", "high", "must", "aim", "cpu", "isa",
        "threads", "repeats", "load"}
sys.path.insert(0, str(ROOT / "bench/speed"))
import table  # noqa: E402


class Table(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.model = os.path.join(cls.folder.name, "tiny.gguf")
        subprocess.run([sys.executable, ROOT / "bench/peers/random_model.py", cls.model,
                        "--shape", "tiny"], check=True)

    def run_table(self, *args):
        return subprocess.run(
            [sys.executable, ROOT / "bench/speed/main.py", "--keel", keelkit.need_keel(),
             "--model", self.model, "--threads", "2", "--repeats", "2", "--is-tiny",
             "--cache", self.folder.name, *args], capture_output=True, text=True,
            timeout=600)

    def test_random_models_are_models(self):
        got = keelkit.keel("inspect", self.model, "--json")
        self.assertEqual(got.returncode, 0, got.stderr)
        got = keelkit.keel("generate", self.model, "-p", "a b c", "-n", "4", "--json")
        self.assertEqual(json.loads(got.stdout)["completion_tokens"], 4, got.stderr)

    def test_every_row_is_whole(self):
        path = os.path.join(self.folder.name, "rows.json")
        text = os.path.join(self.folder.name, "text")
        with open(text, "w") as f:
            f.write("a b c d e f " * 600)
        got = self.run_table("--json", path, "--text", text, "--text-bytes", "4000",
                             "--pairs", "2")
        self.assertEqual(got.returncode, 0, got.stdout + got.stderr)
        with open(path) as f:
            rows = [json.loads(line) for line in f]
        names = [r["name"] for r in rows]
        self.assertEqual(len(names), len(set(names)))
        for word in ("prefill 32", "depth 16", "batch 16", "streams, first token", "fp8, bf16",
                     "int4, fp8 weights", "perplexity: fp8", "start to /health"):
            self.assertTrue(any(word in n for n in names), (word, names))
        for r in rows:
            self.assertLessEqual(KEYS, set(r))
            self.assertGreater(r["ours"], 0, r)
            if r["ratio"] is None:
                self.assertEqual((r["peer"], r["low"], r["high"]), (None, None, None))
            else:
                self.assertTrue(r["low"] <= r["ratio"] <= r["high"] or "interval" in r["note"])
            self.assertIn(f"| {r['name']} |", got.stdout)

    def test_rows_chooses_groups(self):
        got = self.run_table("--rows", "start")
        self.assertEqual(got.stdout.count("\n| tiny"), 1, got.stdout + got.stderr)
        got = self.run_table("--rows", "prefil")
        self.assertEqual(got.returncode, 2)
        self.assertIn("prefil", got.stderr)


class Rows(unittest.TestCase):
    def test_ratios_are_of_pairs_and_turned_so_that_more_is_better(self):
        r = table.row("x", "tokens/s", [2, 30, 4], [1, 10, 1], 2.0, 4.0)
        self.assertEqual((r["ours"], r["peer"], r["ratio"], r["low"], r["high"]), (4, 1, 3, 2, 4))
        self.assertEqual(table.verdict(r), "yes")
        r = table.row("x", "ms", [5, 5, 5], [10, 20, 5], 2.0, None, "", True)
        self.assertEqual((r["ratio"], table.verdict(r)), (2, "yes"))
        self.assertEqual(table.verdict({**r, "ratio": 1.99}), "SHORT")

    def test_the_bootstrap_interval_holds_the_mean_and_narrows_with_pairs(self):
        pairs = [(1 + 0.01 * (i % 7), 1) for i in range(70)]
        mean, low, high = table.bootstrap(pairs)
        self.assertTrue(low < mean < high)
        _, low_few, high_few = table.bootstrap(pairs[:7])
        self.assertLess(high - low, high_few - low_few)


if __name__ == "__main__":
    keelkit.need_keel()
    try:
        import numpy  # noqa: F401
    except ImportError:
        keelkit.skip("numpy is not installed, which makes the model")
    unittest.main(verbosity=2)
