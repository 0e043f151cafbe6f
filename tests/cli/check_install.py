"""cmake --install puts the command, its man pages and its completion where they belong,
and nothing else; what was installed works from there."""
import os
import re
import subprocess
import tempfile
import unittest

import keelkit

PREFIX = None


def installed():
    return sorted(os.path.relpath(os.path.join(folder, name), PREFIX)
                  for folder, _, names in os.walk(PREFIX) for name in names)


class Install(unittest.TestCase):
    def test_the_command_its_pages_and_completion_are_all_there_is(self):
        usage = keelkit.keel("--help").stdout
        verbs = re.findall(r"^  (\w+) ", usage, re.M)
        self.assertIn("serve", verbs)
        pages = [f"share/man/man1/{p}.1" for p in ("keel", *(f"keel-{v}" for v in verbs))]
        self.assertEqual(installed(), sorted(
            ["bin/keel", "share/bash-completion/completions/keel", *pages]))

    def test_the_installed_command_runs_elsewhere(self):
        got = subprocess.run([os.path.join(PREFIX, "bin/keel"), "--version"], cwd="/",
                             capture_output=True, text=True, timeout=60)
        self.assertEqual((got.returncode, got.stderr), (0, ""))
        self.assertRegex(got.stdout, r"^keel \d+\.\d+\.\d+\n$")

    def test_man_finds_the_pages(self):
        man = keelkit.need_program("man")
        got = subprocess.run([man, "-M", os.path.join(PREFIX, "share/man"), "keel-serve"],
                             capture_output=True, text=True, timeout=60,
                             env={**os.environ, "MANPAGER": "cat", "LC_ALL": "C.UTF-8"})
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertIn("keel-serve", got.stdout)

    def test_completion_loads_by_the_name_of_the_command(self):
        script = f". {PREFIX}/share/bash-completion/completions/keel; complete -p keel"
        got = subprocess.run(["bash", "-uc", script], capture_output=True, text=True,
                             timeout=60)
        self.assertEqual((got.returncode, got.stderr), (0, ""))
        self.assertIn("-F _keel keel", got.stdout)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as PREFIX:
        made = subprocess.run(
            [keelkit.need_program("cmake"), "--install", os.environ["EK_BIN"], "--prefix",
             PREFIX], capture_output=True, text=True, timeout=120)
        if made.returncode:
            raise SystemExit(made.stdout + made.stderr)
        unittest.main()
