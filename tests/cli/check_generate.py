#!/usr/bin/env python3
"""keel generate: what it writes, where, and its exit codes."""
import json
import os
import pathlib
import signal
import subprocess
import time
import unittest

from keelkit import keel, need_keel, need_model

TESTS = pathlib.Path(__file__).resolve().parents[1]
TINY = TESTS / "lm/golden/llama.gguf"
GOLDEN = json.loads((TESTS / "lm/golden/smollm2.json").read_text())["results"]


class Tiny(unittest.TestCase):
    def test_same_seed_gives_the_same_text_whatever_the_threads(self):
        texts = {keel("generate", TINY, "-p", "hello", "-n", 60, "--seed", 5, "--threads",
                      n).stdout for n in (1, 2, 3)}
        self.assertEqual(len(texts), 1)
        other = keel("generate", TINY, "-p", "hello", "-n", 60, "--seed", 6).stdout
        self.assertNotIn(other, texts)

    def test_the_seed_that_was_drawn_repeats_the_text(self):
        first = json.loads(keel("generate", TINY, "-p", "x", "--json").stdout)
        again = json.loads(keel("generate", TINY, "-p", "x", "--json", "--seed",
                                first["seed"]).stdout)
        self.assertEqual(first["text"], again["text"])
        self.assertGreater(first["completion_tokens"], 0)
        self.assertIn(first["finish_reason"], ("stop", "length"))

    def test_summary_goes_to_standard_error_and_quiet_keeps_it_back(self):
        loud = keel("generate", TINY, "-p", "x", "-n", 4)
        self.assertIn("tok/s", loud.stderr)
        self.assertNotIn("tok/s", loud.stdout)
        quiet = keel("generate", TINY, "-p", "x", "-n", 4, "-q")
        self.assertEqual((quiet.returncode, quiet.stderr), (0, ""))

    def test_folder_and_gguf_of_one_model_say_the_same(self):
        texts = [keel("generate", path, "-p", "the", "-n", 40, "--temperature", 0,
                      "--weights", "f32", "--kv-dtype", "f32").stdout
                 for path in (TINY, TINY.with_suffix(""))]
        self.assertEqual(*texts)
        self.assertGreater(len(texts[0]), 10)

    def test_prompt_comes_from_a_file_or_standard_input_too(self):
        given = keel("generate", TINY, "-p", "some text", "--seed", 1).stdout
        piped = keel("generate", TINY, "--prompt-file", "-", "--seed", 1,
                     input="some text").stdout
        self.assertEqual(given, piped)

    def test_two_formats_take_the_memory_of_both_and_one_is_kept_once(self):
        def run(*args):
            got = keel("generate", TINY, "-p", "hello", "-n", 20, "--temperature", 0, "--json",
                       *args)
            self.assertEqual(got.returncode, 0, got.stderr)
            return json.loads(got.stdout), got.stderr

        int4, _ = run("--weights", "int4")
        both, said = run("--weights", "int4", "--prefill-weights", "bf16")
        other, _ = run("--prefill-weights", "bf16", "--decode-weights", "int4")
        same, _ = run("--weights", "int4", "--prefill-weights", "int4")
        self.assertEqual(int4["prefill_weight_bytes"], 0)
        self.assertGreater(both["prefill_weight_bytes"], 0)
        self.assertEqual(both["weight_bytes"],
                         int4["weight_bytes"] + both["prefill_weight_bytes"])
        self.assertIn("two copies of weights", said)
        self.assertEqual(other["text"], both["text"])
        self.assertEqual(same["weight_bytes"], int4["weight_bytes"])
        self.assertEqual(same["text"], int4["text"])

    def test_the_measured_crossover_is_said(self):
        got = keel("generate", TINY, "-p", "hello", "-n", 4, "--prefill-weights", "bf16",
                   "--decode-weights", "int4", "--weights-rule", "tokens")
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertRegex(got.stderr, r"decode/prefill weights: 1 [0-9.]+/[0-9.]+.*; "
                                     r"(prefill weights from \d+ tokens on|decode weights always)")

    def test_context_ends_the_text(self):
        got = json.loads(keel("generate", TINY, "-p", "abc", "--ctx", 16, "-n", 99,
                              "--temperature", 0, "--json").stdout)
        self.assertLessEqual(got["prompt_tokens"] + got["completion_tokens"], 16)

    def test_bad_usage_and_bad_files_have_their_exit_codes(self):
        for want, args, word in (
                (2, (TINY,), "-p TEXT"),
                (2, (TINY, "-p", "x", "--prompt-file", "y"), "-p TEXT"),
                (2, (TINY, "-p", "x", "--temperature", "-1"), "temperature"),
                (2, (TINY, "-p", "x", "--top-p", "0"), "--top-p"),
                (2, (TINY, "-p", "x", "--seeed", "1"), "did you mean"),
                (3, (__file__, "-p", "x"), "GGUF"),
                (3, ("/nonexistent.gguf", "-p", "x"), "/nonexistent.gguf"),
                (3, (TINY, "-p", "x", "--ctx", "4096"), "4096"),
                (3, (TINY, "--prompt-file", "/nonexistent"), "/nonexistent"),
                (1, (TINY, "-p", "x" * 4000), "tokens"),
                (1, (TINY, "-p", "x", "--stop", ""), "--stop")):
            got = keel("generate", *args)
            self.assertEqual(got.returncode, want, (args, got.stderr))
            self.assertIn(word, got.stderr)
            self.assertEqual(len(got.stderr.strip().splitlines()), 1, got.stderr)


class Real(unittest.TestCase):
    def test_greedy_f32_text_is_that_of_the_reference(self):
        want = "he capital of France is Paris."
        got = keel("generate", need_model(), "-p", GOLDEN[1]["prompt"], "-n", 64,
                   "--temperature", 0, "--weights", "f32", "--kv-dtype", "f32", "-q")
        self.assertEqual(got.stdout, "T" + want)  # <|im_end|> ends it, unseen

    def test_stop_text_is_not_written(self):
        got = json.loads(keel("generate", need_model(), "-p",
                              "The capital of France is", "-n", 64, "--temperature", 0,
                              "--stop", "is.", "--json").stdout)
        self.assertEqual(got["text"], " Par")
        self.assertEqual(got["finish_reason"], "stop")

    def test_interrupt_ends_the_text_and_gives_130(self):
        run = subprocess.Popen([need_keel(), "generate", need_model(), "-p", "Once",
                                "-n", "4000", "--temperature", "0"], text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        os.read(run.stdout.fileno(), 1)  # the first token is there
        time.sleep(0.1)
        run.send_signal(signal.SIGINT)
        _, err = run.communicate(timeout=240)
        self.assertEqual(run.returncode, 130)
        self.assertIn("tok/s", err)


if __name__ == "__main__":
    need_keel()
    suite = unittest.defaultTestLoader.loadTestsFromTestCase
    parts = [suite(Tiny)]
    if os.path.exists(os.environ.get("EK_MODEL", "")):
        parts.append(suite(Real))
    else:
        print("skipped: the tests of the default model, which is not fetched")
    done = unittest.TextTestRunner(verbosity=2).run(unittest.TestSuite(parts))
    raise SystemExit(not done.wasSuccessful())
