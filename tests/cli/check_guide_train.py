"""docs/guide/train.md, followed to the letter by a newcomer in an empty folder: every
command that stands there, in its order; it ends with recommendations."""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import keelkit

GUIDE = pathlib.Path(__file__).parents[2] / "docs" / "guide" / "train.md"


class Guide(unittest.TestCase):
    def test_every_command_of_the_guide_runs(self):
        text = GUIDE.read_text(encoding="utf-8")
        blocks = [[line[4:] for line in block.splitlines()] for block in
                  re.findall(r"(?m)(?:^    .*\n|^\n(?=    ))+", text)]
        config = [line for line in next(b for b in blocks if "run:" in b)
                  if not line.startswith("keel ")]
        commands = []
        for block in blocks:
            lines = "\n".join(block).strip()
            if lines.startswith("awk "):  # one command of several lines
                commands.append(lines)
            commands += [line for line in block if line.startswith(("keel ", "(cat "))]
        inline = re.findall(r"`(keel train shop\.yaml --[^`]*)`", text)
        self.assertGreater(len(commands), 10)
        self.assertGreaterEqual(len(inline), 2)  # --resume and --explain
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            (path / "shop.yaml").write_text("\n".join(config))
            env = dict(os.environ)
            env["PATH"] = f"{os.path.dirname(keelkit.need_keel())}:{env['PATH']}"
            for command in commands + inline:
                done = subprocess.run(["bash", "-c", command], cwd=folder, env=env, text=True,
                                      capture_output=True, timeout=500)
                self.assertEqual(done.returncode, 0, f"{command}\n{done.stderr}")
                if command.startswith("keel recommend") and ">" not in command:
                    self.assertEqual(len(done.stdout.splitlines()), 10, done.stdout)
            for name in ("shop.svg", "shop/model.safetensors", "runs/wide/log.jsonl"):
                self.assertTrue((path / name).exists(), name)


if __name__ == "__main__":
    keelkit.need_keel()
    unittest.main(verbosity=2)
