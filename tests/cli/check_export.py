"""keel export: the script of docs/guide/train.md, run as it stands there, recommends what
keel recommend does; a folder is replaced only when it is an export."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import keelkit

try:
    import numpy as np
    from safetensors.numpy import load_file
except ImportError as missing:
    keelkit.skip(f"the package {missing.name} is not installed")

GUIDE = pathlib.Path(__file__).parents[2] / "docs" / "guide" / "train.md"
CONFIG = """
run: {{name: made, dir: {dir}/{name}, threads: 2}}
data: {{path: {dir}/log.csv}}
model: {{kind: {kind}, dim: 16, negatives: 30, max_length: 9, {more}}}
train: {{batch: 32, epochs: 3, lr: 0.01}}
"""
MODELS = {"dot": ("sasrec", "blocks: 2, heads: 2"),
          "cosine": ("sasrec", "similarity: cosine, temperature: 0.1, ffn: 24"),
          "hstu": ("hstu", "blocks: 1")}
N_ITEMS = 40


class Export(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = cls.temporary.name
        rows = ["user_id,item_id,timestamp"]
        for user in range(80):
            rows += [f"u{user},{cls.name((user * 7 + step * (1 + user % 3)) % N_ITEMS)},{step}"
                     for step in range(4 + user % 11)]
        pathlib.Path(cls.path("log.csv")).write_text("\n".join(rows) + "\n")
        for name, (kind, more) in MODELS.items():
            config = cls.path(name + ".yaml")
            pathlib.Path(config).write_text(
                CONFIG.format(dir=cls.folder, name=name, kind=kind, more=more))
            done = keelkit.keel("train", config, "--json")
            assert done.returncode == 0, done.stderr
        script = re.search(r"```python\n(.*?)```", GUIDE.read_text(), re.S).group(1)
        pathlib.Path(cls.path("recommend.py")).write_text(script)
        cls.script = script

    @classmethod
    def path(cls, name):
        return os.path.join(cls.folder, name)

    @staticmethod
    def name(i):
        return f"item {i} é"

    def export(self, run, out, *args):
        done = keelkit.keel("export", self.path(run), "--out", self.path(out), "--json", *args)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return json.loads(done.stdout)

    def test_the_guides_script_has_20_lines(self):
        self.assertLessEqual(len(self.script.splitlines()), 20)

    def test_the_guides_script_recommends_as_keel_does(self):
        for run in ("dot", "cosine"):
            self.export(run, run + ".out")
            for length in (1, 2, 5, 9, 10, 23):
                history = [self.name(i * 3 % N_ITEMS) for i in range(length)]
                done = subprocess.run(
                    [sys.executable, self.path("recommend.py"), self.path(run + ".out"),
                     *history], capture_output=True, text=True, timeout=120)
                self.assertEqual(done.returncode, 0, done.stderr)
                got = [line.rsplit(" ", 1) for line in done.stdout.splitlines()]
                items = [word for name in history for word in ("--items", name)]
                told = keelkit.keel("recommend", self.path(run), *items, "--json")
                self.assertEqual(told.returncode, 0, told.stderr)
                want = json.loads(told.stdout)["items"]
                self.assertEqual(len(want), 10)
                self.assertEqual([name for name, _ in got], [w["item"] for w in want])
                for (_, score), w in zip(got, want):
                    self.assertAlmostEqual(float(score), w["score"], 3)

    def test_json_and_tensors_are_the_checkpoints(self):
        for run, (kind, _) in MODELS.items():
            told = self.export(run, run + ".all")
            with open(self.path(run + ".all/model.json"), encoding="utf-8") as f:
                m = json.load(f)
            self.assertEqual((m["format"], m["kind"], m["dim"], m["max_length"]),
                             (1, kind, 16, 9))
            self.assertEqual(m["config"]["model"]["kind"], kind)
            self.assertEqual(sorted(m["items"]), sorted(self.name(i) for i in range(N_ITEMS)))
            a = load_file(self.path(run + ".all/model.safetensors"))
            b = load_file(self.path(run + "/checkpoints/best/model.safetensors"))
            self.assertEqual(set(a), set(b))
            self.assertTrue(all(np.array_equal(a[k], b[k]) for k in a))
            self.assertEqual(told["tensors"], len(a))
            self.assertEqual(told["bytes"], sum(t.nbytes for t in a.values()))
            self.assertEqual(a["items"].shape, (N_ITEMS, 16))

    def refused(self, code, *args):
        done = keelkit.keel("export", *args)
        self.assertEqual((done.returncode, done.stdout), (code, ""), done)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        return done.stderr

    def test_only_an_export_is_replaced_and_only_when_asked(self):
        self.export("dot", "twice")
        self.refused(1, self.path("dot"), "--out", self.path("twice"))
        self.export("dot", "twice", "--force")
        os.mkdir(self.path("mine"))
        pathlib.Path(self.path("mine/keep")).write_text("me")
        said = self.refused(1, self.path("dot"), "--out", self.path("mine"), "--force")
        self.assertIn("model.json", said)
        self.assertEqual(os.listdir(self.path("mine")), ["keep"])

    def test_what_is_no_checkpoint_is_one_line(self):
        self.assertIn("--out", self.refused(2, self.path("dot")))
        said = self.refused(3, self.folder, "--out", self.path("x"))
        self.assertIn("no checkpoint", said)
        self.assertFalse(os.path.exists(self.path("x")))


if __name__ == "__main__":
    unittest.main(verbosity=2)
