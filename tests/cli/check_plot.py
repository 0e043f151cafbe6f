"""keel plot: the drawing has every run in every panel, labels keep apart, figures are the
log's; what cannot be drawn is one line and the right exit code."""
import itertools
import json
import math
import os
import re
import tempfile
import unittest
import xml.etree.ElementTree as ET

import keelkit

SVG = "{http://www.w3.org/2000/svg}"


def log_of(run, steps=3000, every=10):
    lines = []
    for step in range(every, steps + 1, every):
        lines.append({"kind": "train", "step": step, "epoch": step // 500,
                      "loss": 4 + 3 / (1 + step / 400 / (run + 1)) + 0.1 * math.sin(step),
                      "lr": 1e-3 / (1 + step), "tokens_per_s": 50000 + 100 * math.cos(step)})
        if step % 250 == 0:
            lines.append({"kind": "valid", "step": step,
                          "filtered": {"ndcg@10": 0.06 - 0.05 / (1 + step / 600 * (run + 1)),
                                       "recall@10": 0.1 - 0.08 / (1 + step / 600)}})
    lines.append({"kind": "end", "step": steps,
                  "test": {"ndcg@10": 0.0531 - run / 1000, "recall@10": 0.0921 - run / 1000}})
    return "".join(json.dumps(line) + "\n" for line in lines)


class Plot(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.svg = self.path("plot.svg")

    def path(self, name):
        return os.path.join(self.folder, name)

    def run_of(self, name, text):
        os.mkdir(self.path(name))
        with open(self.path(name + "/log.jsonl"), "w") as f:
            f.write(text)
        return self.path(name)

    def draw(self, *args):
        done = keelkit.keel("plot", *args, "--out", self.svg, "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return ET.parse(self.svg).getroot(), json.loads(done.stdout)

    def boxes(self, root):
        """Where each text stands, at a generous width a letter."""
        for text in root.iter(SVG + "text"):
            x, y = float(text.get("x")), float(text.get("y"))
            wide = 7.2 * len(text.text)
            left = x - {"middle": wide / 2, "end": wide}.get(text.get("text-anchor"), 0)
            yield text.text, left, left + wide, y - 11, y + 3

    def check_labels(self, root):
        wide = float(root.get("width"))
        boxes = list(self.boxes(root))
        for text, left, right, _, _ in boxes:
            self.assertTrue(-0.1 <= left and right <= wide + 0.1, text)
        for a, b in itertools.combinations(boxes, 2):
            apart = a[2] <= b[1] or b[2] <= a[1] or a[4] <= b[3] or b[4] <= a[3]
            self.assertTrue(apart, (a, b))

    def test_every_run_is_in_every_panel_and_no_label_on_another(self):
        runs = [self.run_of(f"run{i}", log_of(i)) for i in range(11)]
        for n in (1, 2, 11):
            root, _ = self.draw(*runs[:n])
            lines = root.findall(SVG + "polyline")
            self.assertEqual(len(lines), 3 * n)
            looks = {(p.get("class"), p.get("stroke-dasharray")) for p in lines}
            self.assertEqual(len(looks), n)
            self.check_labels(root)
            texts = [t.text for t in root.iter(SVG + "text")]
            self.assertIn("test: ndcg@10 0.0531, recall@10 0.0921", texts)
            for point in lines:
                xy = [tuple(map(float, p.split(","))) for p in point.get("points").split()]
                self.assertTrue(all(0 <= x <= 760 and 0 <= y <= float(root.get("height"))
                                    for x, y in xy))
                self.assertEqual(xy, sorted(xy, key=lambda p: p[0]))

    def test_labels_keep_apart_whatever_the_range(self):
        for i, (steps, scale, base) in enumerate([
                (1, 1, 0), (7, 1e-9, 0), (99999, 1, 1e5), (10 ** 7, 1e12, 0), (123456, 0, 3),
                (5, 1e-7, 1), (2 * 10 ** 9, -1, 0), (30, 0, 0)]):
            text = "".join(json.dumps({"step": s, "loss": base + scale * s / steps}) + "\n"
                           for s in sorted({1, steps // 2 + 1, steps}))
            root, _ = self.draw(self.run_of(f"r{i}", text))
            self.check_labels(root)

    def test_figures_are_the_logs(self):
        run = self.run_of("a", '{"step": 1, "loss": 3}\n{"step": 5, "loss": 1.5}\n'
                               '{"step": 9, "loss": 2.25}\n{"step": 12, "lo')
        _, told = self.draw(run)
        self.assertEqual(told["curves"], [{
            "run": run, "curve": "loss", "points": 3, "last": {"step": 9, "value": 2.25},
            "lowest": {"step": 5, "value": 1.5}, "highest": {"step": 1, "value": 3}}])

    def test_curves_are_chosen_by_name(self):
        runs = [self.run_of("a", log_of(0)), self.run_of("b", '{"step": 1, "loss": 3}\n')]
        root, told = self.draw(*runs, "--curve", "lr", "--curve", "loss")
        self.assertEqual([(c["curve"], c["points"]) for c in told["curves"]],
                         [("lr", 300), ("lr", 0), ("loss", 300), ("loss", 1)])
        heads = [t.text for t in root.iter(SVG + "text") if t.get("class") == "head"]
        self.assertEqual(heads, ["lr", "loss"])
        self.check_labels(root)

    def test_names_are_text_whatever_they_hold(self):
        run = self.run_of("<b>&amp;\"'", '{"step": 1, "loss": 3, "</svg><x>": 4}\n')
        root, _ = self.draw(run, "--curve", "</svg><x>")
        self.assertIn("</svg><x>", [t.text for t in root.iter(SVG + "text")])

    def refused(self, code, *args):
        done = keelkit.keel("plot", *args, "--out", self.svg)
        self.assertEqual(done.returncode, code, done)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertFalse(os.path.exists(self.svg))
        return done.stderr

    def test_what_cannot_be_drawn_is_one_line(self):
        good = self.run_of("a", '{"step": 1, "loss": 3}\n')
        bad = self.run_of("b", '{"step": 1, "loss": 3}\n{"step": \n')
        self.assertRegex(self.refused(3, good, bad), re.escape(bad) + r"/log\.jsonl:2: ")
        self.assertIn("no/such", self.refused(3, "no/such"))
        self.assertIn("no point yet", self.refused(3, self.run_of("c", "")))
        self.assertRegex(self.refused(2, good, "--curve", "los"), "'los'.* has loss")


if __name__ == "__main__":
    unittest.main(verbosity=2)
