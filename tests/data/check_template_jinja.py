"""The template interpreter against Python's jinja2, set up as transformers does it.

Equal means: the same text, or both refuse. Compared on SmolLM2's template (from the
model file), on the chat templates of the llama-cpp-python source package, on templates
written here for the language's corners, and on seeded random expressions.
Exit 77 when jinja2 is absent.
"""

import glob
import json
import os
import subprocess
import sys
import unittest
import warnings

try:
    import jinja_reference
except ImportError:
    print("skipped: needs the Python package jinja2")
    sys.exit(77)
import template_conversations
import template_language
import template_random

warnings.simplefilter("ignore")  # of the Python code jinja2 makes
PROBE = os.path.join(os.environ["EK_BIN"], "tests", "probe_template")
PACKAGE = "llama_cpp_python-0.3.36/vendor/llama.cpp/models/templates"
TEMPLATES = sorted(glob.glob(os.path.join(os.environ.get("EK_CACHE", ""), PACKAGE,
                                          "*.jinja")))


def ask(questions):
    """What the interpreter answers to each (source, variables)."""
    lines = [json.dumps({"source": source, "vars": variables, "now_us":
                         jinja_reference.NOW_US,
                         "trusted": template_conversations.TRUSTED}, allow_nan=False)
             for source, variables in questions]
    done = subprocess.run([PROBE], input="\n".join(lines) + "\n", text=True,
                          encoding="utf-8", stdout=subprocess.PIPE, check=True,
                          timeout=300)
    return [json.loads(line) for line in done.stdout.split("\n") if line]


def difference(ours, text, error):
    """None where both agree, else a sentence."""
    if error is not None:
        if "error" in ours:
            return None
        return f"jinja2 refuses ({type(error).__name__}: {error}), we gave {ours['text']!r}"
    if "error" in ours:
        return f"we refuse ({ours['status']} {ours['error']}), jinja2 gave {text!r}"
    if ours["text"] == text:
        return None
    same = os.path.commonprefix([ours["text"], text])
    at = len(same)
    return (f"at {at}: we have {ours['text'][max(0, at - 40):at + 60]!r}, "
            f"jinja2 has {text[max(0, at - 40):at + 60]!r}")


class Equal(unittest.TestCase):
    env = jinja_reference.environment()

    def compare(self, questions, names):
        """Differences, as (name, sentence), and how many were rendered by both."""
        wrong, rendered = [], 0
        for name, (source, variables), ours in zip(names, questions, ask(questions)):
            text, error = jinja_reference.render(self.env, source, variables)
            rendered += error is None
            sentence = difference(ours, text, error)
            if sentence:
                wrong.append((name, sentence))
        return wrong, rendered

    def compare_template(self, name, source):
        cases = list(template_conversations.cases())
        return self.compare([(source, variables) for _, variables in cases],
                            [f"{name}: {case}" for case, _ in cases])

    def skip(self, why):
        print(f"skipped: {self.id().rsplit('.', 1)[1]}: {why}")
        self.skipTest(why)

    def report(self, wrong):
        self.assertFalse(wrong, "\n" + "\n".join(f"{n}: {s}" for n, s in wrong[:20]))

    def test_the_template_of_the_default_model(self):
        try:
            from gguf import GGUFReader
        except ImportError:
            self.skip("needs the Python package gguf")
        model = os.environ.get("EK_MODEL", "")
        if not os.path.exists(model):
            self.skip("the default model is absent")
        field = GGUFReader(model).fields["tokenizer.chat_template"]
        source = bytes(field.parts[-1]).decode("utf-8")
        wrong, rendered = self.compare_template("SmolLM2", source)
        self.report(wrong)
        self.assertGreater(rendered, 100)

    def test_every_real_template_of_the_source_package(self):
        if not TEMPLATES:
            self.skip("the llama-cpp-python 0.3.36 source package is absent")
        passed, all_wrong, total, total_rendered = 0, [], 0, 0
        n_cases = len(list(template_conversations.cases()))
        for path in TEMPLATES:
            name = os.path.basename(path)
            with open(path, encoding="utf-8", newline="") as f:
                wrong, rendered = self.compare_template(name, f.read())
            passed += not wrong
            total += n_cases
            total_rendered += rendered
            all_wrong += wrong
            if os.environ.get("EK_VERBOSE"):
                print(f"| {name} | {n_cases - len(wrong)}/{n_cases} | {rendered} |")
        print(f"{passed} of {len(TEMPLATES)} templates equal in every one of {n_cases} "
              f"cases; {total_rendered} of {total} renderings give text, the rest is "
              f"refused by both")
        self.report(all_wrong)

    def test_the_language(self):
        questions = [(source, variables) for source, variables in
                     template_language.cases()]
        wrong, _ = self.compare(questions, [repr(source) for source, _ in questions])
        self.report(wrong)

    def test_random_templates(self):
        """Refusing what is named as not interpreted is no difference, but rare."""
        questions = list(template_random.cases())
        wrong, rendered = self.compare(questions, [repr(s) for s, _ in questions])
        # jinja2 folds constants, and then (1)[:1] is undefined and not an error.
        wrong = [w for w in wrong if "cannot be sliced" not in w[1]]
        refused = [w for w in wrong if "EK_EUNSUP" in w[1] or "EK_ELIMIT" in w[1]]
        print(f"{len(questions)} random templates, {rendered} of them give text, "
              f"{len(refused)} not interpreted")
        self.report([w for w in wrong if w not in refused])
        self.assertGreater(rendered, len(questions) // 4)
        self.assertLess(len(refused), len(questions) // 20)

    def test_what_is_not_interpreted_is_refused_by_name(self):
        for (source, _), ours in zip(template_language.refused(),
                                     ask(template_language.refused())):
            self.assertIn(ours.get("status"), ("EK_EUNSUP", "EK_ELIMIT"), source)
            self.assertIn("line 1", ours["error"], source)


class Provenance(unittest.TestCase):
    def test_every_byte_of_a_variable_is_plain_and_no_other(self):
        for path in TEMPLATES:
            with open(path, encoding="utf-8", newline="") as f:
                self.check(os.path.basename(path), f.read())

    def check(self, name, source):
        """A letter that no template has marks what came from the messages."""
        mark = "\u16a0"
        messages = [{"role": "user", "content": mark * 3},
                    {"role": "assistant", "content": mark + " "},
                    {"role": "user", "content": " " + mark}]
        variables = {"messages": messages, "tools": None, "documents": None,
                     "add_generation_prompt": True, "bos_token": "<s>",
                     "eos_token": "</s>"}
        ours, = ask([(source, variables)])
        if "error" in ours:
            return
        text = ours["text"].encode("utf-8")
        self.assertEqual(len(text), len(ours["plain"]), name)
        letter = mark.encode("utf-8")
        at = text.find(letter)
        while at >= 0:
            self.assertEqual(ours["plain"][at:at + len(letter)], "111", name)
            at = text.find(letter, at + 1)
        for at, plain in enumerate(ours["plain"]):
            if plain == "1":
                self.assertIn(text[at:at + 1], letter + b" userassistantUA", f"{name} at {at}")


if __name__ == "__main__":
    unittest.main(verbosity=1)
