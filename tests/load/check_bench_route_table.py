"""bench/speed/route.py, which prints the table of keel route against other proxies: without
peers, and with those that are installed, every row is whole. No figure is judged."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import keelkit

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/speed"))
import route  # noqa: E402
import table  # noqa: E402

KEYS = {"name", "ours", "peer", "unit", "ratio", "low", "high", "must", "aim", "proxies",
        "peer_name", "load", "repeats"}


class Rows(unittest.TestCase):
    def test_a_ratio_is_turned_so_that_more_is_better(self):
        values = {"keel": [10, 12], "haproxy": [20, 24], "nginx": [5, 6]}
        less = route.row("CPU", "us", values, "haproxy", 1.0)
        self.assertEqual((less["ratio"], table.verdict(less)), (2.0, "yes"))
        best = route.row("CPU", "us", values, "best", 1.0)
        self.assertEqual((best["peer_name"], best["ratio"], table.verdict(best)),
                         ("nginx", 0.5, "SHORT"))
        more = route.row("rate", "1/s", values, "best", 1.0, None, True)
        self.assertEqual((more["peer_name"], more["ratio"]), ("haproxy", 0.5))

    def test_without_the_peer_there_is_no_ratio(self):
        alone = route.row("CPU", "us", {"keel": [10, 12]}, "haproxy", 1.0)
        self.assertEqual((alone["ratio"], alone["peer_name"]), (None, None))
        self.assertIsNone(route.row("CPU", "us", {"haproxy": [1]}, "haproxy", 1.0))
        self.assertIn("| 11.00 |", route.line(alone))

    def test_a_row_that_is_short_is_bold(self):
        short = route.row("CPU", "us", {"keel": [10], "nginx": [5]}, "best", 1.0)
        self.assertIn("**10.00**", route.line(short))
        self.assertIn("**short**", route.line(short))


class Table(unittest.TestCase):
    def table(self, *args):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "rows.json")
            got = subprocess.run(
                [sys.executable, ROOT / "bench/speed/route.py", "--keel", keelkit.need_keel(),
                 "--cores", "0,0", "--repeats", "1", "--seconds", "1", "--speech", "1",
                 "--pairs", "100", "--json", path, *args],
                capture_output=True, text=True, timeout=600)
            self.assertEqual(got.returncode, 0, got.stdout + got.stderr)
            with open(path) as f:
                return [json.loads(text) for text in f], got.stderr

    def test_every_row_is_whole_without_peers(self):
        for program in ("taskset", "openssl"):
            keelkit.need_program(program)
        rows, _ = self.table("--proxies", "keel", "--rows",
                             "idle,tls,grpc-idle,handshake,frames100,grpc,http2")
        self.assertEqual(len(rows), 13)
        for r in rows:
            self.assertTrue(KEYS <= set(r), r)
            self.assertGreater(r["ours"], 0)
            self.assertIsNone(r["ratio"])

    def test_a_peer_that_is_not_there_is_said_and_left_out(self):
        rows, said = self.table("--proxies", "keel,envoy", "--rows", "idle")
        self.assertIn("envoy is not installed", said)
        self.assertEqual(list(rows[0]["proxies"]), ["keel"])

    def test_a_word_that_names_no_group_is_refused(self):
        got = subprocess.run([sys.executable, ROOT / "bench/speed/route.py", "--keel", "x",
                              "--rows", "idle,nonsense"], capture_output=True, text=True)
        self.assertEqual(got.returncode, 2)
        self.assertIn("nonsense", got.stderr)


if __name__ == "__main__":
    unittest.main()
