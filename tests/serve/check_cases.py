"""What users of other servers ran into (docs/cases.md), where no other test has it, over a
tiny model; and that the tests named there exist."""
import concurrent.futures
import http.client
import json
import pathlib
import re
import time
import unittest

import keelkit

ROOT = pathlib.Path(__file__).resolve().parents[2]
TINY = ROOT / "tests/lm/golden/llama.gguf"
CTX = 64


class Cases(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = keelkit.Server(TINY, "--ctx", CTX, "--max-seqs", "4")

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def ask(self, server=None, **body):
        """(status, content type, body)"""
        c = http.client.HTTPConnection("127.0.0.1", (server or self.server).port, timeout=240)
        try:
            c.request("POST", "/v1/completions", json.dumps(body))
            r = c.getresponse()
            return r.status, r.getheader("Content-Type"), r.read().decode()
        finally:
            c.close()

    def choices(self, server=None, **body):
        status, _, text = self.ask(server, **{"ignore_eos": True, **body})
        self.assertEqual(status, 200, text)
        return json.loads(text)["choices"]

    def text(self, **body):
        return self.choices(**{"prompt": "abc", "max_tokens": 20, **body})[0]["text"]

    def test_a_stream_that_cannot_fit_is_a_400_and_no_empty_stream(self):
        for body in ({"prompt": [5] * CTX}, {"prompt": [5] * 10, "max_tokens": CTX}):
            status, kind, text = self.ask(stream=True, **body)
            self.assertEqual((status, kind), (400, "application/json"), text)
            self.assertIn(str(CTX), json.loads(text)["error"]["message"])

    def test_the_context_is_everyones_and_not_divided_by_the_seats(self):
        models = json.loads(self.server.get("/v1/models"))
        self.assertEqual(models["data"][0]["max_model_len"], CTX)
        body = {"prompt": [5] * 4, "max_tokens": CTX - 4, "ignore_eos": True}
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: self.ask(**body), range(8)))
        for status, _, text in answers:
            self.assertEqual(status, 200, text)
            self.assertEqual(json.loads(text)["usage"]["completion_tokens"], CTX - 4)

    def test_one_that_overflows_leaves_those_under_way_alone(self):
        whole = self.text(max_tokens=40, temperature=0)
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            good = [pool.submit(self.text, max_tokens=40, temperature=0) for _ in range(8)]
            bad = [pool.submit(self.ask, prompt=[5] * n) for n in (CTX, CTX + 1, 1000)]
            self.assertEqual({f.result() for f in good}, {whole})
            self.assertEqual([f.result()[0] for f in bad], [400] * 3)

    def test_more_choices_than_seats_and_more_threads_than_processors_end_well(self):
        few = keelkit.Server(TINY, "--ctx", CTX, "--max-seqs", "1", "--threads", "9")
        try:
            request = {"prompt": "abc", "n": 5, "max_tokens": 4, "seed": 3}
            got = [c["text"] for c in self.choices(few, **request)]
        finally:
            self.assertEqual(few.stop(), 0)
        self.assertEqual(got, [c["text"] for c in self.choices(**request)])

    def test_after_idling_a_server_answers_as_before(self):
        # Longer than its threads and loop spin or wait for anything but an event.
        request = json.dumps({"prompt": "abc", "max_tokens": 20, "temperature": 0, "n": 4,
                              "ignore_eos": True})
        c = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=240)
        answers = []
        for pause in (0, 2):
            time.sleep(pause)
            c.request("POST", "/v1/completions", request)
            answers.append(json.loads(c.getresponse().read())["choices"])
        c.close()
        self.assertEqual(answers[0], answers[1])

    def test_edge_values_mean_what_the_guide_says(self):
        greedy = self.text(temperature=0)
        for same in ({"top_p": 0}, {"top_k": 1}, {"temperature": 0, "seed": 9},
                     {"temperature": 0, "stop": []}, {"temperature": 0, "stop": None}):
            self.assertEqual(self.text(**same), greedy, same)
        for seed in (-1, -2**63, 2**63 - 1):
            self.assertEqual(self.text(seed=seed), self.text(seed=seed))
        self.assertEqual(self.text(max_tokens=1, temperature=0, logit_bias={"7": 100}),
                         self.text(max_tokens=1, seed=1, logit_bias={"7": 100}))
        for field, value in (("max_tokens", 0), ("stop", ""), ("seed", "1"), ("seed", 1.5)):
            status, _, text = self.ask(prompt="abc", **{field: value})
            self.assertEqual((status, json.loads(text)["error"]["param"]), (400, field))

    def test_a_usage_chunk_has_what_every_chunk_has(self):
        _, _, text = self.ask(prompt="abc", max_tokens=2, stream=True,
                              stream_options={"include_usage": True})
        chunks = [json.loads(e[6:]) for e in text.split("\n\n")[:-2]]
        self.assertEqual(chunks[-1]["choices"], [])
        self.assertEqual({(c["id"], c["model"], c["object"], c["created"]) for c in chunks},
                         {(chunks[0]["id"], "llama", "text_completion", chunks[0]["created"])})
        self.assertEqual([c["usage"] for c in chunks[:-1]], [None] * (len(chunks) - 1))


class Table(unittest.TestCase):
    def test_every_test_named_exists(self):
        table = (ROOT / "docs/cases.md").read_text(encoding="utf-8")
        named = re.findall(r"`([\w/]+\.(?:c|py)):(\w+)`", table)
        self.assertGreater(len(named), 40)
        for path, name in named:
            source = (ROOT / "tests" / path).read_text(encoding="utf-8")
            self.assertRegex(source, rf"\b(?:def|static void)\s{name}\(", path)
        for section, n in (("Serve", 24), ("Route", 30), ("Training", 18)):
            part = table.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
            rows = [int(n) for n in re.findall(r"^\| (\d+) \|", part, re.M)]
            self.assertEqual(rows, list(range(1, n + 1)), section)


if __name__ == "__main__":
    unittest.main()
