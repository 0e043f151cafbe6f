"""Man pages, completion, help and usage say the same as keel does: all are made from the
verbs' tables. groff and bash are the judges."""
import os
import re
import subprocess
import tempfile
import unittest

import keelkit

FOLDER = None


def verbs():
    usage = keelkit.keel("--help")
    return re.findall(r"^  (\w+) ", usage.stdout, re.M)


def all_verbs():
    """Verbs of verbs too: "bench serve"."""
    subs = [f"{verb} {sub}" for verb in ("bench", "data") for sub in
            re.findall(r"^  (\w+)  ", keelkit.keel(verb, "--help").stdout, re.M)]
    return verbs() + subs


def page_of(verb):
    return "keel-" + verb.replace(" ", "-")


def read(name):
    with open(os.path.join(FOLDER, name)) as f:
        return f.read()


class Docs(unittest.TestCase):
    def test_every_verb_has_its_page_and_the_main_page_names_it(self):
        pages = sorted(p for p in os.listdir(FOLDER) if p.endswith(".1"))
        self.assertEqual(pages, sorted(["keel.1"] + [f"{page_of(v)}.1" for v in all_verbs()]))
        for verb in all_verbs():
            self.assertIn(page_of(verb).replace("-", "\\-"), read("keel.1"))

    def test_groff_finds_nothing_to_warn_of(self):
        keelkit.need_program("groff")
        for page in os.listdir(FOLDER):
            if page.endswith(".1"):
                got = subprocess.run(
                    ["groff", "-z", "-ww", "-man", "-Tutf8", os.path.join(FOLDER, page)],
                    capture_output=True, text=True, timeout=60)
                self.assertEqual((got.returncode, got.stderr), (0, ""), page)

    def test_page_and_help_name_the_same_flags(self):
        for verb in all_verbs():
            shown = keelkit.keel(*verb.split(), "--help")
            self.assertEqual((shown.returncode, shown.stderr), (0, ""), verb)
            in_help = set(re.findall(r"^ .{5}(--[\w-]+)", shown.stdout, re.M))
            page = read(f"{page_of(verb)}.1").replace("\\-", "-")
            in_page = set(re.findall(r"\\fB(--[\w-]+)\\fR", page.split(".SH OPTIONS")[1]
                                     .split(".SH CONFIGURATION")[0]))
            self.assertTrue({"--config", "--set", "--help"} <= in_help)
            self.assertEqual(in_help, in_page, verb)

    def test_help_fits_80_columns(self):
        for verb in all_verbs():
            for line in keelkit.keel(*verb.split(), "--help").stdout.splitlines():
                if not line.startswith(" ") or line.startswith("    "):
                    self.assertLessEqual(len(line), 80, f"{verb}: {line}")

    def complete(self, *words):
        """What bash offers behind `keel words...`; the last word is being typed."""
        script = (f". {FOLDER}/keel.bash; COMP_WORDS=(keel \"$@\"); "
                  "COMP_CWORD=$#; _keel; printf '%s\\n' \"${COMPREPLY[@]}\"")
        got = subprocess.run(["bash", "-uc", script, "bash", *words], capture_output=True,
                             text=True, timeout=60)
        self.assertEqual((got.returncode, got.stderr), (0, ""))
        return got.stdout.split()

    def test_bash_completes_verbs_flags_and_choices(self):
        self.assertEqual(set(self.complete("")), {*verbs(), "--help", "--version"})
        for verb in all_verbs():
            shown = keelkit.keel(*verb.split(), "--help").stdout
            flags = set(re.findall(r"^ .{5}(--[\w-]+)", shown, re.M))
            self.assertTrue(flags <= set(self.complete(verb, "--")), verb)
            for flag, choices in re.findall(r"(--[\w-]+) ([\w.-]+(?:\|[\w.-]+)+)$", shown,
                                            re.M):
                self.assertEqual(self.complete(*verb.split(), flag, ""), choices.split("|"))

    def test_names_with_spaces_are_one_word(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a b")
            open(path, "w").close()
            self.assertEqual(self.complete("x", folder + "/"), path.split())


class Usage(unittest.TestCase):
    def test_wrong_usage_exits_2_and_says_what_is_right(self):
        self.assertEqual(keelkit.keel().returncode, 2)
        got = keelkit.keel("bogus-verb")
        self.assertEqual(got.returncode, 2)
        self.assertIn("unknown verb 'bogus-verb'", got.stderr)
        for verb in all_verbs():
            words = verb.split()
            got = keelkit.keel(*words, "--bogus-flag")
            self.assertEqual(got.returncode, 2)
            self.assertRegex(got.stderr, f"^keel {verb}: --bogus-flag: unknown flag")
            self.assertEqual(got.stderr.count("\n"), 1)
            near = keelkit.keel(*words[:-1], words[-1] + verb[-1])
            self.assertIn(f"did you mean '{words[-1]}'?", near.stderr)

    def test_version_is_one_line(self):
        got = keelkit.keel("--version")
        self.assertEqual(got.returncode, 0)
        self.assertRegex(got.stdout, r"^keel \d+\.\d+\.\d+\n$")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as FOLDER:
        made = keelkit.keel("--write-docs", FOLDER)
        if made.returncode:
            raise SystemExit(made.stderr)
        unittest.main()
