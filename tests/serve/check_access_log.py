"""keel serve's access log: one JSON line a request, true and safe to parse."""
import http.client
import json
import pathlib
import socket
import time
import unittest

import keelkit

TINY = pathlib.Path(__file__).resolve().parents[1] / "lm/golden/llama.gguf"
SECRET = "zebra-crossing"
# 128 choices, one at a time: seconds, with a model that does nothing else for long.
LONG = {"prompt": ["abc"] * 8, "n": 16, "max_tokens": 120, "ignore_eos": True, "stream": True}
SHORT = {"prompt": "abc", "max_tokens": 2}


class Base(unittest.TestCase):
    level = "info"

    def setUp(self):
        self.server = keelkit.Server(TINY, "--max-seqs", "1", "--max-queue", "200",
                                     "--log-level", self.level)

    def tearDown(self):
        self.assertEqual(self.server.stop(), 0)

    def ask(self, method, path, body=None):
        """(status, X-Request-Id, body)"""
        c = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=240)
        try:
            c.request(method, path, json.dumps(body) if body is not None else None)
            r = c.getresponse()
            return r.status, r.getheader("X-Request-Id"), r.read().decode()
        finally:
            c.close()

    def lines(self, n):
        """The access lines, once there are n."""
        deadline = time.monotonic() + 120
        while True:
            text = self.server.output()
            got = [json.loads(line) for line in text.split("\n")[:-1]]
            got = [line for line in got if line["event"] == "access"]
            if len(got) >= n:
                self.assertEqual(len(got), n, got)
                return got
            self.assertLess(time.monotonic(), deadline, got)
            time.sleep(0.01)


class AccessLog(Base):
    def test_an_answer_has_one_line_with_its_id_status_time_and_tokens(self):
        body = {"prompt": SECRET, "max_tokens": 7, "ignore_eos": True, "n": 2}
        for stream in (False, True):
            status, name, text = self.ask("POST", "/v1/completions", {**body, "stream": stream})
            self.assertEqual(status, 200)
            line = self.lines(1 + stream)[-1]
            self.assertEqual(line["id"], name)
            self.assertEqual((line["method"], line["path"], line["status"]),
                             ("POST", "/v1/completions", 200))
            self.assertEqual((line["choices"], line["stream"], line["completion_tokens"],
                              line["finish"]), (2, int(stream), 14, "length"))
            self.assertGreater(line["prompt_tokens"], 1)
            self.assertTrue(0 < line["ms"] < 240000)
            self.assertIn(name, text)
        self.assertNotIn(SECRET, self.server.output())

    def test_a_refusal_has_one_with_the_id_of_its_answer(self):
        cases = [("POST", "/v1/completions", {"prompt": SECRET, "n": 0}, 400),
                 ("POST", "/v1/completions", {"prompt": "a", "model": SECRET}, 404),
                 ("POST", "/v1/models", None, 405), ("GET", "/nowhere?key=" + SECRET, None, 404)]
        for i, (method, path, body, code) in enumerate(cases):
            status, name, _ = self.ask(method, path, body)
            self.assertEqual(status, code)
            line = self.lines(i + 1)[-1]
            self.assertEqual((line["id"], line["method"], line["path"], line["status"]),
                             (name, method, path.split("?")[0], code))
        self.assertEqual(len({line["id"] for line in self.lines(len(cases))}), len(cases))
        self.assertNotIn(SECRET, self.server.output())

    def test_a_path_cannot_forge_a_field_or_a_line(self):
        evil = '/a" status=200 x="\\"\n{"event":"forged"}\t\x1b[2J'
        quoted = "".join(f"%{b:02x}" for b in evil.encode())
        self.assertEqual(self.ask("GET", "/" + quoted[3:])[0], 404)
        line, = self.lines(1)
        self.assertEqual((line["path"], line["status"]), (evil, 404))
        self.assertEqual(set(line), {"ts", "level", "event", "id", "method", "path", "status",
                                     "ms"})
        self.ask("GET", "/" + '"' * 3000)
        self.assertLess(len(self.lines(2)[1]["path"]), 300)

    def test_bytes_that_are_no_request_have_a_line_with_the_reason(self):
        with socket.create_connection(("127.0.0.1", self.server.port), 240) as s:
            s.sendall(b"nonsense\r\n\r\n")
            self.assertIn(b" 400 ", s.recv(100))
        line, = self.lines(1)
        self.assertEqual(line["status"], 400)
        self.assertTrue(line["why"])

    def open(self, request):
        """Sends the request; returns the socket."""
        s = socket.create_connection(("127.0.0.1", self.server.port), 240)
        body = json.dumps(request).encode()
        s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s"
                  % (len(body), body))
        return s

    def test_clients_that_leave_and_a_full_queue_are_told_apart(self):
        running = self.open(LONG)
        self.assertIn(b" 200 ", running.recv(1000))
        waiting = self.open(SHORT)
        while self.server.metric("evenkeel_num_requests_waiting") < 100:
            time.sleep(0.01)
        self.assertEqual(self.ask("POST", "/v1/completions", LONG)[0], 429)
        waiting.close()
        self.lines(2)
        running.close()
        refused, left, aborted = self.lines(3)
        self.assertEqual((refused["status"], left["status"], aborted["status"]),
                         (429, 499, 200))
        self.assertEqual((left["finish"], left["completion_tokens"]), ("abort", 0))
        self.assertEqual(aborted["finish"], "abort")
        self.assertGreater(aborted["completion_tokens"], 0)

    def test_probes_and_scrapes_that_go_well_are_silent(self):
        for path in ("/health", "/metrics", "/v1/models", "/", "/version"):
            status, name, _ = self.ask("GET", path)
            self.assertEqual(status, 200)
            self.assertTrue(name)
        self.ask("POST", "/tokenize", {"prompt": "a"})
        self.assertEqual(self.lines(1)[0]["path"], "/tokenize")


class DebugLog(Base):
    level = "debug"

    def test_at_level_debug_they_are_logged_too(self):
        _, name, _ = self.ask("GET", "/health")
        line, = self.lines(1)
        self.assertEqual((line["level"], line["id"], line["path"], line["status"]),
                         ("debug", name, "/health", 200))


if __name__ == "__main__":
    unittest.main()
