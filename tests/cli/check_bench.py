"""keel bench memory, kernel and model: every row is whole and in order, and wrong usage is
told. No figure is judged: machines differ and are busy."""
import json
import pathlib
import tempfile
import unittest

from keelkit import keel, need_keel

TINY = pathlib.Path(__file__).resolve().parents[1] / "lm/golden/qwen3.gguf"
ROW = {"name", "unit", "repeats", "min", "median", "max", "cpu", "isa", "threads"}


class Bench(unittest.TestCase):
    def rows(self, *args, **kwargs):
        got = keel("bench", *args, **kwargs)
        self.assertEqual(got.returncode, 0, got.stderr)
        rows = [json.loads(line) for line in got.stdout.splitlines()]
        for row in rows:
            self.assertLessEqual(ROW, set(row))
            self.assertTrue(0 < row["min"] <= row["median"] <= row["max"], row)
        return rows

    def test_memory_gives_a_row_for_each_size_and_number_of_threads(self):
        rows = self.rows("memory", "--mib", 0.25, "--mib", 1, "--threads", 2, "--repeat", 2,
                         "--json")
        self.assertEqual([(r["mib"], r["members"]) for r in rows],
                         [(0.25, 1), (0.25, 2), (1, 1), (1, 2)])

    def test_kernel_gives_the_peak_and_the_matmul_of_each_format(self):
        rows = self.rows("kernel", "--n", 64, "--k", 64, "--rows", 1, "--rows", 3,
                         "--threads", 1, "--repeat", 2, "--json")
        formats = [r["name"] for r in rows if "is_peak" in r]
        self.assertLessEqual({"f32", "bf16", "fp8", "int8", "int4"}, set(formats))
        self.assertEqual([(r["name"], r["rows"]) for r in rows if "is_peak" not in r],
                         [(f, n) for f in formats for n in (1, 3)])
        only = self.rows("kernel", "--peak", "--threads", 1, "--repeat", 2, "--json")
        self.assertEqual([r["name"] for r in only], formats)

    def test_isa_chooses_the_kernels(self):
        for isa in ("ref", "avx2"):
            rows = self.rows("kernel", "--peak", "--isa", isa, "--threads", 1, "--repeat",
                             2, "--json")
            self.assertEqual({r["isa"] for r in rows}, {isa})

    def test_attention_gives_a_row_for_each_kind_and_type(self):
        rows = self.rows("attention", "--batch", 3, "--heads", 2, "--dim", 16, "--lengths",
                         "fixed:70", "--keys", 9, "--threads", 2, "--repeat", 2, "--json")
        kinds = ("jfa", "hstu", "gdpa", "block")
        self.assertEqual([(r["name"], r["dtype"]) for r in rows],
                         [(k, t) for k in kinds for t in ("f32", "bf16")])
        pairs = {"jfa": 70 * 71 // 2, "hstu": 70 * 71 // 2, "gdpa": 70 * 9,
                 "block": 64 * 64 + 6 * 6}
        for r in rows:  # useful work: forward 4 dim a pair and head, backward 2.5 times
            self.assertEqual(r["flop"], 3.5 * 4 * 16 * 2 * 3 * pairs[r["name"]])
            self.assertEqual(r["rows"], 210)
            self.assertTrue(r["peak"] > 0 and r["share"] > 0 and r["beside_bytes"] > 0)
        self.assertEqual(rows[0]["bytes"], 2 * rows[1]["bytes"])  # bf16 is half of f32

    def test_attention_answers_a_line_for_each_job(self):
        got = keel("bench", "attention", "--jobs", "--lengths", "uniform:1:9", "--batch", 2,
                   input="block bf16\nhstu f32\n")
        self.assertEqual(got.returncode, 0, got.stderr)
        rows = [json.loads(line) for line in got.stdout.splitlines()]
        self.assertEqual([(r["name"], r["dtype"]) for r in rows],
                         [("block", "bf16"), ("hstu", "f32")])
        got = keel("bench", "attention", "--jobs", input="jfa f16\n")
        self.assertEqual((got.returncode, got.stdout), (2, ""))
        self.assertIn("expected KIND DTYPE", got.stderr)

    def test_lengths_come_from_a_file_or_a_distribution(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "lengths"
            path.write_text("5\n7\n")
            few = ("--batch", 3, "--kind", "jfa", "--dtype", "f32", "--repeat", 1, "--json")
            self.assertEqual(self.rows("attention", "--lengths", path, *few)[0]["rows"], 17)
            path.write_text("5\nx\n")
            for spec, says in ((path, ":2: expected a length"), ("uniform:3:2", "uniform:LO:HI"),
                               ("lognormal:0:1", "uniform:LO:HI"), ("fixed:99999", "65536"),
                               ("fixed:2x", "fixed:N"), ("zipf:1", "fixed:N")):
                got = keel("bench", "attention", "--lengths", spec)
                self.assertEqual((got.returncode, got.stdout), (2, ""), spec)
                self.assertIn(says, got.stderr)
            got = keel("bench", "attention", "--lengths", path / "none")
            self.assertEqual(got.returncode, 3, got.stderr)

    def test_model_gives_a_row_for_each_prompt_depth_and_batch(self):
        rows = self.rows("model", TINY, "--prefill", 20, "--depth", 0, "--depth", 40,
                         "--batch", 1, "--batch", 3, "--tokens", 4, "--repeat", 2,
                         "--threads", 2, "--kv-dtype", "fp8", "--json")
        self.assertEqual([(r["name"], r["n"], r["depth"], r["batch"]) for r in rows],
                         [("prefill", 20, 0, 1), ("decode", 4, 0, 1), ("decode", 4, 0, 3),
                          ("decode", 4, 40, 1), ("decode", 4, 40, 3)])
        decode = rows[1:]
        self.assertTrue(all(r["bytes_per_token"] > 0 for r in decode))
        # Three sequences share the weights and not their keys and values.
        self.assertLess(decode[1]["bytes_per_token"], decode[0]["bytes_per_token"])
        self.assertGreater(decode[2]["bytes_per_token"], decode[0]["bytes_per_token"])

    def test_keys_and_values_of_fp8_are_half_the_bytes(self):
        one = {}
        for dtype in ("bf16", "fp8"):
            shallow, deep = self.rows(
                "model", TINY, "--prefill", 0, "--depth", 16, "--depth", 116, "--tokens",
                1, "--repeat", 1, "--threads", 1, "--kv-dtype", dtype, "--json")
            one[dtype] = deep["bytes_per_token"] - shallow["bytes_per_token"]
        self.assertEqual(one["bf16"], 2 * one["fp8"])

    def test_jobs_are_answered_one_by_one(self):
        rows = self.rows("model", TINY, "--jobs", "--threads", 1,
                         input="prefill 20\ndecode 5 2 3\ndecode 50 1 1\n")
        self.assertEqual([(r["name"], r["n"], r["depth"], r["batch"]) for r in rows],
                         [("prefill", 20, 0, 1), ("decode", 3, 5, 2), ("decode", 1, 50, 1)])

    def test_tables_have_a_line_for_each_row(self):
        got = keel("bench", "model", TINY, "--prefill", 8, "--tokens", 2, "--repeat", 1,
                   "--threads", 1)
        self.assertRegex(got.stdout, r"(?m)^prefill 8 .* %$")
        self.assertRegex(got.stdout, r"(?m)^decode d0 b1 .* %$")

    def test_bad_usage_and_bad_input_have_their_exit_codes(self):
        for want, args, word, text in (
                (2, ("memory", "--mib", "x"), "--mib", ""),
                (2, ("kernel", "--rows", "0"), "--rows", ""),
                (2, ("model", TINY, "--depth", "-1"), "--depth", ""),
                (2, ("model", TINY, "--batch", "999999"), "999999", ""),
                (2, ("model",), "MODEL", ""),
                (2, ("model", TINY, "--jobs"), "decode DEPTH", "prefil 3\n"),
                (2, ("model", TINY, "--jobs"), "decode DEPTH", "decode 1 1\n"),
                (3, ("model", "/nonexistent"), "/nonexistent", "")):
            got = keel("bench", *args, input=text)
            self.assertEqual(got.returncode, want, (args, got.stderr))
            self.assertIn(word, got.stderr)
            self.assertEqual(len(got.stderr.strip().splitlines()), 1, got.stderr)


if __name__ == "__main__":
    need_keel()
    unittest.main(verbosity=2)
