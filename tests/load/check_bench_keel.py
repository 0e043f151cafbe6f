"""keel bench serve against keel serve with a tiny model: both ends are ours, and what one
counts the other must have counted, too."""
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

import keelkit

TINY = pathlib.Path(__file__).resolve().parents[1] / "lm/golden/llama.gguf"


def bench(server, *args):
    done = keelkit.keel("bench", "serve", "--url", server.url, "--endpoint", "completions",
                        "--json", "-", *args)
    if done.returncode:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)


class Keel(unittest.TestCase):
    def serve(self, *args, **kwargs):
        server = keelkit.Server(TINY, "--ctx", "64", *args, **kwargs)
        self.addCleanup(server.stop)
        return server

    def test_tokens_are_those_the_server_counts(self):
        server = self.serve("--max-seqs", "8")
        before = server.metric("evenkeel_generation_tokens_total")
        r = bench(server, "-p", 6, "-n", 16, "-c", 8, "--requests", 100, "--no-calibrate")
        self.assertEqual(r["requests"]["ok"], 100)
        self.assertEqual(r["tokens"]["output"], 1600)
        self.assertEqual(server.metric("evenkeel_generation_tokens_total") - before, 1600)
        # 6 words of 4 letters, at least a token each
        self.assertGreaterEqual(r["tokens"]["prompt"], 600)

    def test_prompts_of_a_vocabulary_of_bytes_come_out_near_their_length(self):
        r = bench(self.serve(), "-p", 40, "-n", 2, "--requests", 20)
        self.assertLess(abs(r["tokens"]["prompt"] / 20 - 40), 6)

    def test_hundreds_of_streams_at_once_are_all_answered_or_refused(self):
        server = self.serve("--max-seqs", "8", "--max-queue", "512")
        r = bench(server, "-p", 8, "-n", 8, "-c", 300, "--requests", 900)
        n = r["requests"]
        self.assertEqual((n["ok"] + n["refused"], n["failed"]), (900, 0))
        self.assertEqual(r["peak_concurrency"], 300)

    def test_a_full_queue_is_seen_as_refusals(self):
        server = self.serve("--max-seqs", "1", "--max-queue", "1")
        r = bench(server, "-p", 4, "-n", 40, "--rate", 5000, "--requests", 300,
                  "--no-calibrate")
        n = r["requests"]
        self.assertEqual(n["ok"] + n["refused"], 300)
        self.assertGreater(n["refused_429"], 0)
        self.assertEqual(n["failed"], 0)

    def test_traces_of_the_field_run_scaled(self):
        folder = os.path.join(os.environ.get("EK_DATA", ""), "traces")
        if not os.path.isdir(folder):
            keelkit.skip("the traces are not fetched")
        server = self.serve("--max-seqs", "8")
        for name, args in (("mooncake-conversation.jsonl", ["--length-scale", "0.001"]),
                           ("azure-llm-2023-conv.csv", ["--length-scale", "0.02"])):
            r = bench(server, "--trace", os.path.join(folder, name), "--requests", 200,
                      "--rate", 400, *args)
            self.assertEqual(r["requests"]["ok"], 200, r["errors"])
            self.assertEqual(r["loop"], "open")

    def test_a_prefix_cache_finds_the_blocks_of_equal_hashes(self):
        server = self.serve("--max-seqs", "2")
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "trace.jsonl")
            with open(path, "w") as f:
                for i in range(6):
                    f.write(json.dumps({"timestamp": 0, "input_length": 900,
                                        "output_length": 64, "hash_ids": [7, i]}) + "\n")
            r = bench(server, "--trace", path, "--length-scale", "0.05", "-c", 1)
        self.assertEqual(r["requests"]["ok"], 6, r["errors"])
        # 512 x 0.05 = 25 tokens in common: a page of 16 of them is found 5 times.
        self.assertGreaterEqual(server.metric("evenkeel_prefix_cache_hits_total"), 5 * 16)

    def test_https_with_an_authority_of_its_own(self):
        openssl = keelkit.need_program("openssl")
        with tempfile.TemporaryDirectory() as d:
            cert, key = os.path.join(d, "cert.pem"), os.path.join(d, "key.pem")
            subprocess.run([openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt",
                            "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", cert,
                            "-days", "2", "-subj", "/CN=localhost",
                            "-addext", "subjectAltName=IP:127.0.0.1"],
                           check=True, capture_output=True)
            server = self.serve("--tls-cert", cert, "--tls-key", key, tls=True)
            r = bench(server, "--ca-file", cert, "-p", 8, "-n", 4, "--requests", 20, "-c", 4)
            self.assertEqual(r["requests"]["ok"], 20)
            done = keelkit.keel("bench", "serve", "--url", server.url)
            self.assertEqual(done.returncode, 1)
            self.assertIn("certificate", done.stderr)


if __name__ == "__main__":
    unittest.main()
