"""cmake --install puts the command, its man pages, its completion, its systemd unit and the
library where they belong, and nothing else; what was installed works from there."""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import keelkit

PREFIX = None
CONTAINERFILE = pathlib.Path(__file__).parents[2] / "packaging/Containerfile"


def installed():
    return sorted(os.path.relpath(os.path.join(folder, name), PREFIX)
                  for folder, _, names in os.walk(PREFIX) for name in names)


class Install(unittest.TestCase):
    def test_the_command_its_pages_and_the_library_are_all_there_is(self):
        usage = keelkit.keel("--help").stdout
        verbs = re.findall(r"^  (\w+) ", usage, re.M)
        self.assertIn("serve", verbs)
        names = list(verbs)
        for verb, known in (("bench", "memory"), ("data", "pack")):
            things = re.findall(r"^  (\w+)  ", keelkit.keel(verb, "--help").stdout, re.M)
            self.assertIn(known, things)
            names += [f"{verb}-{thing}" for thing in things]
        pages = [f"share/man/man1/{p}.1" for p in ("keel", *(f"keel-{n}" for n in names))]
        self.assertEqual(installed(), sorted(
            ["bin/keel", "include/evenkeel/session.h", "lib/libevenkeel.a",
             "lib/libevenkeel.so", "lib/libevenkeel.so.1", "lib/libevenkeel.so.1.0.0",
             "lib/pkgconfig/evenkeel.pc", "lib/systemd/system/evenkeel-route.service",
             "lib/systemd/system/evenkeel-serve.service",
             "share/bash-completion/completions/keel", "share/doc/evenkeel/route.yaml",
             "share/doc/evenkeel/serve.env",
             *pages]))

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

    def test_systemd_accepts_the_units_and_they_start_the_installed_command(self):
        for verb in "serve", "route":
            unit = os.path.join(PREFIX, f"lib/systemd/system/evenkeel-{verb}.service")
            with open(unit, encoding="utf-8") as f:
                text = f.read()
            self.assertIn(f"\nExecStart={PREFIX}/bin/keel {verb} ", text)
            self.assertIn("\nType=notify\n", text)
            # By default systemd ends who is not ready after 90 s: a large model loads.
            self.assertIn("\nTimeoutStartSec=", text)
            analyze = keelkit.need_program("systemd-analyze")
            got = subprocess.run([analyze, "verify", "--man=no", unit],
                                 capture_output=True, text=True, timeout=60)
            ours = [line for line in got.stderr.split("\n") if "evenkeel" in line]
            self.assertEqual((got.returncode, ours), (0, []), got.stderr)

    def test_the_routes_unit_waits_longer_than_the_drain_of_the_example(self):
        example = os.path.join(PREFIX, "share/doc/evenkeel/route.yaml")
        with open(example, encoding="utf-8") as f:
            drain = int(re.search(r"^drain: (\d+)min", f.read(), re.M).group(1))
        unit = os.path.join(PREFIX, "lib/systemd/system/evenkeel-route.service")
        with open(unit, encoding="utf-8") as f:
            stop = int(re.search(r"TimeoutStopSec=(\d+)min", f.read()).group(1))
        self.assertGreater(stop, drain)

    def test_the_unit_waits_as_long_as_the_default_drain_and_the_settings_are_options(self):
        share = os.path.join(PREFIX, "share/doc/evenkeel/serve.env")
        with open(share, encoding="utf-8") as f:
            settings = dict(line.strip().split("=", 1) for line in f
                            if re.match(r"EVENKEEL_\w+=", line))
        usage = keelkit.keel("serve", "--help").stdout
        for option in re.findall(r"--[a-z-]+", settings["EVENKEEL_OPTIONS"]):
            self.assertIn(option, usage)
        drain = re.search(r"--drain.*?default:? (\d+)s", usage, re.S)
        unit = os.path.join(PREFIX, "lib/systemd/system/evenkeel-serve.service")
        with open(unit, encoding="utf-8") as f:
            text = f.read()
        for name in re.findall(r"\$\{?(\w+)", text):
            self.assertIn(name, settings)
        self.assertGreater(int(re.search(r"TimeoutStopSec=(\d+)s", text).group(1)),
                           int(drain.group(1)))


class Container(unittest.TestCase):
    def test_the_image_holds_the_libraries_the_command_needs(self):
        tool = keelkit.need_program("objdump")
        dpkg = keelkit.need_program("dpkg-query")
        got = subprocess.run([tool, "-p", keelkit.need_keel()], capture_output=True,
                             text=True, timeout=60, check=True)
        with open(CONTAINERFILE, encoding="utf-8") as f:
            run_stage = f.read().split("\nFROM ")[2]
        for library in re.findall(r"NEEDED +(\S+)", got.stdout):
            if re.match(r"lib(asan|ubsan|tsan)\.", library):
                continue
            owner = subprocess.run([dpkg, "-S", f"*/{library}"], capture_output=True,
                                   text=True, timeout=60).stdout
            packages = {line.split(":")[0] for line in owner.split("\n") if line}
            self.assertTrue(packages & {"libc6", *run_stage.split()}, (library, owner))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as PREFIX:
        made = subprocess.run(
            [keelkit.need_program("cmake"), "--install", os.environ["EK_BIN"], "--prefix",
             PREFIX], capture_output=True, text=True, timeout=120)
        if made.returncode:
            raise SystemExit(made.stdout + made.stderr)
        unittest.main()
