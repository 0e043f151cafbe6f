"""keel serve over a tiny model of random weights: promises that take many answers to try,
or that the weights do not matter to. Its answers are full of halves of characters."""
import http.client
import json
import pathlib
import random
import shutil
import subprocess
import tempfile
import time
import unittest

import keelkit

TINY = pathlib.Path(__file__).resolve().parents[1] / "lm/golden/llama.gguf"
SECONDS = 8


def link(path):
    """Where a link points; "" for one that has gone meanwhile."""
    try:
        return str(path.readlink())
    except FileNotFoundError:
        return ""


class Client:
    def __init__(self, *args, model=TINY):
        self.server = keelkit.Server(model, *args)

    def ask(self, path, body, method="POST", headers=None):
        """(status, body as JSON or text, headers)"""
        c = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=240)
        try:
            c.request(method, path, json.dumps(body) if body is not None else None,
                      headers or {})
            r = c.getresponse()
            text = r.read().decode()
        finally:
            c.close()
        is_json = r.getheader("Content-Type") == "application/json"
        return r.status, json.loads(text) if is_json else text, r.headers

    def complete(self, **body):
        status, answer, _ = self.ask("/v1/completions", body)
        assert status == 200, answer
        return answer["choices"][0]

    def stream(self, **body):
        """The text of a streamed completion and its last choice."""
        status, text, _ = self.ask("/v1/completions", {**body, "stream": True})
        assert status == 200, text
        events = [e[6:] for e in text.split("\n\n") if e.startswith("data: ")]
        assert events.pop() == "[DONE]"
        choices = [json.loads(e)["choices"][0] for e in events]
        return "".join(c["text"] for c in choices), choices[-1]


def cut(text, stops, keeps_stop):
    """text up to the stop string that is complete first (the longer at a tie), or None."""
    ends = [(text.index(s) + len(s), text.index(s)) for s in stops if s in text]
    if not ends:
        return None
    end, start = min(ends)
    return text[:end if keeps_stop else start]


class Answers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.client = Client("--ctx", "64")
        cls.rng = random.Random(20)

    @classmethod
    def tearDownClass(cls):
        assert cls.client.server.stop() == 0

    def sample(self):
        """A request whose answer is always the same."""
        return {"prompt": self.rng.choice(["hello", "abc", "\u65e5", "0 1 2", "<s>"]),
                "max_tokens": self.rng.choice([1, 5, 40]), "ignore_eos": True,
                "temperature": self.rng.choice([0, 1, 1.5]),
                "seed": self.rng.randrange(1000), "top_k": self.rng.choice([0, 5, 50]),
                "frequency_penalty": self.rng.choice([0, 1.5])}

    def stops_for(self, text):
        stops = []
        for _ in range(self.rng.randint(1, 5)):
            at = self.rng.randrange(len(text))
            stop = text[at:at + self.rng.choice([1, 2, 3, 5, 8])]
            stops.append(stop + self.rng.choice(["", "", "z", "a"]))
        return stops

    def test_a_stopped_answer_is_the_whole_one_cut_at_the_first_stop_string(self):
        deadline, n_hits = time.monotonic() + SECONDS, 0
        # A slow machine comes to a few only.
        while time.monotonic() < deadline or (
                n_hits <= 5 and time.monotonic() < deadline + 2 * keelkit.PATIENCE_S):
            request = self.sample()
            whole = self.client.complete(**request)["text"]
            streamed, _ = self.client.stream(**request)
            self.assertEqual(streamed, whole)
            if not whole:
                continue
            stops, keeps = self.stops_for(whole), self.rng.random() < 0.3
            want = cut(whole, stops, keeps)
            request |= {"stop": stops, "include_stop_str_in_output": keeps}
            got = self.client.complete(**request)
            streamed, last = self.client.stream(**request)
            for text, choice in ((got["text"], got), (streamed, last)):
                self.assertEqual(text, whole if want is None else want, request)
                self.assertEqual(choice["finish_reason"],
                                 "length" if want is None else "stop")
                self.assertIn(choice["stop_reason"], [None] if want is None else stops)
            n_hits += want is not None
        self.assertGreater(n_hits, 5)

    def refused(self, answer, status, param):
        self.assertEqual(answer[0], status, answer[1])
        self.assertEqual(answer[1]["error"]["param"], param)

    def test_a_request_id_that_cannot_stand_in_a_header_or_a_log_is_refused(self):
        for text in ("a\r\nX-Evil: 1", "\t", "\x7f", 'a" level="error', "",
                     64 * "a"):
            for stream in (False, True):
                self.refused(self.client.ask("/v1/completions", {
                    "prompt": "a", "request_id": text, "stream": stream}), 400, "request_id")
        _, answer, headers = self.client.ask("/v1/completions",
                                             {"prompt": "a", "request_id": 63 * "a"})
        self.assertEqual(answer["id"], "cmpl-" + 63 * "a")
        self.assertEqual(headers["X-Request-Id"], answer["id"])

    def test_the_default_length_of_a_completion_gives_way_to_the_context(self):
        room = self.client.ask("/v1/completions", {"prompt": [5] * 60, "ignore_eos": True})
        self.assertEqual(room[0], 200, room[1])
        self.assertEqual(room[1]["usage"]["completion_tokens"], 4)
        self.refused(self.client.ask("/v1/completions", {"prompt": [5] * 60,
                                                         "max_tokens": 16}),
                     400, "max_tokens")
        self.refused(self.client.ask("/v1/completions", {"prompt": [5] * 60,
                                                         "min_tokens": 16}),
                     400, "min_tokens")

    def test_tokenize_and_detokenize_take_null_as_absent_and_check_the_model(self):
        for path, body in (("/tokenize", {"prompt": "hi", "messages": None, "model": None,
                                          "add_special_tokens": None}),
                           ("/detokenize", {"tokens": [5], "model": None})):
            status, answer, _ = self.client.ask(path, body)
            self.assertEqual(status, 200, answer)
            self.refused(self.client.ask(path, {**body, "model": "nope"}), 404, "model")
            self.refused(self.client.ask(path, {**body, "model": 5}), 400, "model")

    def test_a_range_in_a_message_holds_the_value_that_is_allowed_and_not_the_given(self):
        _, answer, _ = self.client.ask("/v1/completions", {"prompt": "a",
                                                           "max_tokens": 2**31})
        self.assertIn("from 1 to 2147483647, got 2147483648", answer["error"]["message"])


class Folder(unittest.TestCase):
    """A Hugging Face folder whose chat template is this test's."""

    def serve(self, template):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        shutil.copytree(TINY.with_suffix(""), folder.name, dirs_exist_ok=True)
        path = pathlib.Path(folder.name) / "tokenizer_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()),
                                    "chat_template": template}))
        client = Client("--ctx", "64", model=folder.name)
        self.addCleanup(client.server.stop)
        return client, folder.name

    def test_a_folder_is_served_with_its_template(self):
        client, _ = self.serve("{% for m in messages %}{{ m.content }}{% endfor %}")
        talk = [{"role": "user", "content": "he"}, {"role": "user", "content": "llo"}]
        status, answer, _ = client.ask("/v1/chat/completions", {
            "messages": talk, "temperature": 0, "max_tokens": 8, "ignore_eos": True})
        self.assertEqual(status, 200, answer)
        same = client.complete(prompt="hello", temperature=0, max_tokens=8, ignore_eos=True,
                               add_special_tokens=False)
        self.assertEqual(answer["choices"][0]["message"]["content"], same["text"])

    def test_clients_hear_why_there_is_no_chat_and_not_where_the_model_lies(self):
        client, folder = self.serve("a\n{% include 'x' %}")
        status, answer, _ = client.ask("/v1/chat/completions", {
            "messages": [{"role": "user", "content": "a"}]})
        message = answer["error"]["message"]
        self.assertEqual(status, 400)
        self.assertIn("chat template: line 2: tag 'include'", message)
        self.assertNotIn(folder, message)
        self.assertEqual(client.complete(prompt="a", max_tokens=1)["index"], 0)

    def test_a_template_without_end_is_stopped_and_the_server_lives(self):
        for template in ("{% for i in range(99999) %}{% for j in range(99999) %}"
                         "{% endfor %}{% endfor %}",
                         "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
                         "{{ 'a' * 99999999999 }}"):
            client, _ = self.serve(template)
            status, answer, _ = client.ask("/v1/chat/completions", {
                "messages": [{"role": "user", "content": "a"}]})
            self.assertEqual(status, 400)
            self.assertIn("chat template", answer["error"]["message"])
            self.assertEqual(client.ask("/health", None, "GET")[0], 200)


class Start(unittest.TestCase):
    def test_a_browser_may_send_any_header_to_the_allowed_origin(self):
        client = Client("--ctx", "64", "--cors", "https://app.example")
        try:
            _, _, headers = client.ask("/v1/chat/completions", None, "OPTIONS", {
                "Origin": "https://app.example",
                "Access-Control-Request-Headers": "authorization,x-stainless-os"})
            self.assertEqual(headers["Access-Control-Allow-Headers"], "Authorization, *")
        finally:
            self.assertEqual(client.server.stop(), 0)

    def serve(self, *args):
        return keelkit.keel("serve", *args, timeout=240)

    def test_an_origin_that_no_browser_sends_is_a_bad_option(self):
        for origin in ("https://app.example/", "app.example", "a://b\r\nX: 1", "a://b, c://d",
                       "://x", "http://"):
            done = self.serve(TINY, "--check", "--cors", origin)
            self.assertEqual(done.returncode, 2, origin)
            self.assertIn("--cors", done.stderr)
        for origin in ("*", "https://app.example", "http://localhost:3000"):
            self.assertEqual(self.serve(TINY, "--check", "--cors", origin).returncode, 0)

    def test_an_address_that_is_none_is_a_bad_option_and_a_device_a_bad_file(self):
        for address in ("nowhere", "127.0.0.1:99999"):
            done = self.serve(TINY, "--listen", address)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(address, done.stderr)
        done = self.serve("/dev/null")
        self.assertEqual(done.returncode, 3, done.stderr)

    def test_an_empty_model_name_is_none(self):
        client = Client("--ctx", "64", "--model-name", "")
        try:
            models = json.loads(client.server.get("/v1/models"))
            self.assertEqual(models["data"][0]["id"], "llama")
        finally:
            self.assertEqual(client.server.stop(), 0)

    def test_closed_standard_files_are_not_given_to_what_is_opened_next(self):
        # fd 2 would be the listening socket or a client otherwise.
        for closed in ("<&-", ">&-", "2>&-"):
            p = subprocess.Popen(["sh", "-c", f'exec "$0" serve "$1" --listen 127.0.0.1:0 '
                                  f"{closed}", keelkit.need_keel(), TINY],
                                 stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL)
            try:
                fds = pathlib.Path(f"/proc/{p.pid}/fd")
                deadline = time.monotonic() + 240
                while not any("socket:" in link(f) for f in fds.iterdir()):
                    self.assertLess(time.monotonic(), deadline)
                    time.sleep(0.02)
                for fd in range(3):
                    self.assertEqual(str((fds / str(fd)).readlink()), "/dev/null")
            finally:
                p.terminate()
                self.assertEqual(p.wait(240), 0)


if __name__ == "__main__":
    unittest.main()
