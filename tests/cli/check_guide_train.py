"""docs/guide/train.md, followed by a newcomer: every command that stands there, in its
order, on a CSV of events; it ends with recommendations."""
import datetime
import os
import pathlib
import random
import re
import subprocess
import tempfile
import unittest

import keelkit

GUIDE = pathlib.Path(__file__).parents[2] / "docs" / "guide" / "train.md"
ITEMS = ["b17", "a02"] + [f"c{i:02}" for i in range(38)]
START = datetime.datetime(2024, 5, 31)


def events():
    """Rows of users who mostly go on to the item that follows, in no order of time."""
    rng = random.Random(1)
    rows = []
    for user in ["ann", "bob"] + [f"user {i}" for i in range(78)]:
        item, at = rng.randrange(len(ITEMS)), START
        for _ in range(rng.randint(4, 20)):
            item = (item + rng.choice((1, 1, 1, 7))) % len(ITEMS)
            at += datetime.timedelta(seconds=rng.randint(60, 99999))
            rows.append(f"{user},{ITEMS[item]},{at}\n")
    rng.shuffle(rows)
    return rows


class Guide(unittest.TestCase):
    def test_every_command_of_the_guide_runs(self):
        text = GUIDE.read_text(encoding="utf-8")
        blocks = [[line[4:] for line in block.splitlines()] for block in
                  re.findall(r"(?m)(?:^    .*\n|^\n(?=    ))+", text)]
        config = [line for line in next(b for b in blocks if "run:" in b)
                  if not line.startswith("keel ")]
        commands = [line for b in blocks for line in b if line.startswith("keel ")]
        inline = re.findall(r"`(keel train shop\.yaml --[^`]*)`", text)
        self.assertGreater(len(commands), 10)
        self.assertGreaterEqual(len(inline), 2)  # --resume and --explain
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            (path / "shop.yaml").write_text("\n".join(config))
            rows = events()
            (path / "events.csv").write_text("who,sku,at\n" + "".join(rows))
            (path / "newer.csv").write_text("who,sku,at\n" + "".join(
                rows + ["ann,b17,2025-01-01 00:00:00\n"]))
            env = dict(os.environ)
            env["PATH"] = f"{os.path.dirname(keelkit.need_keel())}:{env['PATH']}"
            for command in commands + inline:
                done = subprocess.run(["bash", "-c", command], cwd=folder, env=env, text=True,
                                      capture_output=True, timeout=500)
                self.assertEqual(done.returncode, 0, f"{command}\n{done.stderr}")
                if command.startswith("keel recommend"):
                    self.assertEqual(len(done.stdout.splitlines()), 10, done.stdout)
            for name in ("shop.svg", "shop/model.safetensors", "runs/wide/log.jsonl"):
                self.assertTrue((path / name).exists(), name)


if __name__ == "__main__":
    keelkit.need_keel()
    unittest.main(verbosity=2)
