"""keel route and keel simulate read their files: the examples are right, mistakes are told
with their place, and a scenario gives the same figures twice."""
import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

KEEL = os.environ["KEEL"]
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def keel(*args):
    return subprocess.run([KEEL, *map(str, args)], text=True, capture_output=True, check=False)


class Config(unittest.TestCase):
    def refused(self, text, want):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(text)
            file.flush()
            r = keel("route", "--check", file.name)
            self.assertEqual(r.returncode, 2, r.stderr)
            self.assertIn(want.replace("FILE", file.name), r.stderr)

    def test_the_example_is_right(self):
        r = keel("route", "--check", ROOT / "examples/voice.yaml")
        self.assertEqual((r.returncode, r.stderr), (0, ""))

    def test_what_the_guide_writes_instead_of_other_proxies_files_is_right(self):
        guide = (ROOT / "docs/guide/route-from.md").read_text()
        blocks = re.findall(r"```yaml\n(.*?)```", guide, re.S)
        self.assertEqual(len(blocks), 3)
        for block in blocks:
            with tempfile.TemporaryDirectory() as folder:
                pem = pathlib.Path(folder) / "voice.pem"
                subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                                "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=voice",
                                "-keyout", pem, "-out", f"{pem}.crt"], check=True,
                               capture_output=True)
                with open(pem, "ab") as both, open(f"{pem}.crt", "rb") as certificate:
                    both.write(certificate.read())
                file = pathlib.Path(folder) / "route.yaml"
                file.write_text(block.replace("/etc/ssl/voice.pem", str(pem)))
                r = keel("route", "--check", file)
                self.assertEqual((r.returncode, r.stderr), (0, ""), block)

    def test_mistakes_are_told_with_their_place(self):
        self.refused("backends:\n  - {address: 'x'}\n",
                     "FILE:2:5: address: 'x' is no address, expected HOST:PORT or unix:PATH")
        self.refused("max_que: 3\n", "FILE:1:1: unknown key 'max_que', did you mean 'max_queue'?")
        self.refused("backends:\n  - {address: 'x:1', name: a}\n  - {address: 'x:2', name: a}\n",
                     "FILE:3:5: name: 'a' is there twice, first at FILE:2:5")
        self.refused("report_interval: fast\n", "FILE:1:18: report_interval: 'fast'")
        self.refused("listen: [0.0.0.0:1]\n", "backend")

    def test_flags_and_the_file_add_up(self):
        r = keel("route", "--check", ROOT / "examples/voice.yaml", "--backend", "a=127.0.0.1:1")
        self.assertEqual(r.returncode, 2)
        self.assertIn("'a' is there twice, first at --backend", r.stderr)
        r = keel("route", "--check", ROOT / "examples/voice.yaml", "--backend", "d=127.0.0.1:1")
        self.assertEqual((r.returncode, r.stderr), (0, ""))


class Simulate(unittest.TestCase):
    def test_scenarios_are_right(self):
        for name in ("calls", "requests", "spike"):
            r = keel("simulate", "--check", ROOT / f"configs/route/{name}.yaml")
            self.assertEqual((r.returncode, r.stderr), (0, ""))

    def test_a_scenario_gives_the_same_figures_twice(self):
        args = ("simulate", "--json", "--set", "seeds=1", "--set", "warmup=1min", "--set",
                "phase=30s", "--set", "backends=4", "--set", "noisy=0")
        a, b = keel(*args), keel(*args)
        self.assertEqual(a.returncode, 0, a.stderr)
        self.assertEqual(a.stdout, b.stdout)
        rows = json.loads(a.stdout)["rows"]
        self.assertEqual(rows[0]["policy"], "effective_capacity")
        self.assertIn("mean", rows[0]["steady"]["overloaded"])


if __name__ == "__main__":
    unittest.main()
