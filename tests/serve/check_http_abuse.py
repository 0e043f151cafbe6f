"""keel serve under bad input: the right status, OpenAI's shape, and alive after each."""
import http.client
import json
import socket
import threading
import time
import unittest

import keelkit

MODEL = keelkit.need_model()
HELLO = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}
# Far longer than a test takes; who asks for it leaves.
LONG = {"messages": [{"role": "user", "content": "Tell a very long story."}],
        "max_tokens": 3000, "ignore_eos": True, "stream": True}


def head(path="/v1/chat/completions", method="POST", extra=""):
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\n{extra}".encode()


class Abuse(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = keelkit.Server(MODEL, "--ctx", "4096", "--max-seqs", "1",
                                    "--max-queue", "1")

    @classmethod
    def tearDownClass(cls):
        code = cls.server.stop()
        assert code == 0, f"the server ended with {code}"

    def tearDown(self):
        self.assertIn("ok", self.server.get("/health"))
        self.wait_idle()

    def wait_idle(self):
        deadline = time.monotonic() + 120
        while self.server.metric("evenkeel_num_requests_running") + \
                self.server.metric("evenkeel_num_requests_waiting") > 0:
            self.assertLess(time.monotonic(), deadline, "a request is stuck")
            time.sleep(0.01)

    def raw(self, data, timeout=240):
        """The answer to raw bytes: (status, body), (None, b"") when closed without."""
        with socket.create_connection(("127.0.0.1", self.server.port), timeout) as s:
            s.sendall(data)
            answer = http.client.HTTPResponse(s)
            try:
                answer.begin()
                return answer.status, answer.read()
            except (http.client.HTTPException, ConnectionError):
                return None, b""

    def post(self, body, path="/v1/chat/completions", headers=None, method="POST"):
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        c = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=240)
        c.request(method, path, body, {"Content-Type": "application/json", **(headers or {})})
        r = c.getresponse()
        answer = r.status, r.read(), dict(r.getheaders())
        c.close()
        return answer

    def assertRefused(self, answer, status, param=None):
        self.assertEqual(answer[0], status, answer[1])
        error = json.loads(answer[1])["error"]
        self.assertEqual(set(error), {"message", "type", "param", "code"})
        self.assertEqual(error["code"], status)
        self.assertTrue(error["message"])
        if param is not None:
            self.assertEqual(error["param"], param)

    def test_malformed_requests_get_400(self):
        for data in (b"nonsense\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n",
                     b"GET / HTTP/1.1\r\n\r\n",  # no Host
                     head(extra="Content-Length: x\r\n\r\n"),
                     head(extra="Content-Length: -1\r\n\r\n"),
                     head(extra="Content-Length: 1\r\nContent-Length: 2\r\n\r\n"),
                     head(extra="Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"),
                     head(extra="Bad Header: x\r\n\r\n"), b"\x00\x01\x02\r\n\r\n",
                     head(extra="Transfer-Encoding: chunked\r\n\r\nzz\r\n")):
            status, body = self.raw(data)
            self.assertIn(status, (400, 501, 505), data)
            self.assertIn("error", json.loads(body))

    def test_a_huge_head_gets_431_and_a_huge_body_413(self):
        status, _ = self.raw(head(extra="X: " + "a" * 100000 + "\r\n\r\n"))
        self.assertEqual(status, 431)
        status, _ = self.raw(head(extra="Content-Length: 100000000\r\n\r\n"))
        self.assertEqual(status, 413)
        status, _ = self.raw(head(extra="Transfer-Encoding: chunked\r\n\r\n7fffffff\r\n"))
        self.assertEqual(status, 413)

    def test_a_chunked_body_and_expect_continue_are_served(self):
        body = json.dumps(HELLO).encode()
        chunks = b"".join(b"%x\r\n%s\r\n" % (len(body[i:i + 7]), body[i:i + 7])
                          for i in range(0, len(body), 7))
        status, answer = self.raw(head(extra="Transfer-Encoding: chunked\r\n\r\n") +
                                  chunks + b"0\r\n\r\n")
        self.assertEqual(status, 200)
        self.assertIn(b"choices", answer)
        with socket.create_connection(("127.0.0.1", self.server.port), 240) as s:
            s.sendall(head(extra=f"Expect: 100-continue\r\nContent-Length: {len(body)}\r\n\r\n"))
            self.assertIn(b"100", s.recv(100))
            s.sendall(body)
            self.assertIn(b"200", s.recv(100))

    def test_a_slow_request_does_not_hold_up_others(self):
        slow = [socket.create_connection(("127.0.0.1", self.server.port)) for _ in range(20)]
        for s in slow:
            s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHos")
        self.assertEqual(self.post(HELLO)[0], 200)
        for s in slow:
            s.close()

    def test_bad_json_is_a_400_with_a_reason(self):
        for body in (b"", b"{", b"[]", b"null", b"\xff\xfe", b"{} x",
                     b'{"messages":[{"role":"user","content":"\\ud83d"}]}',
                     b'{"messages":[{"role":"user","content":"a"}],"n":1,"n":2}',
                     b'{"messages":[{"role":"user","content":"a"}],"x":' + b"[" * 100000,
                     b'{"messages":[{"role":"user","content":"a"}],"x":' + b'{"a":' * 100000,
                     b'{"messages":[{"role":"user","content":"a"}],"temperature":1e400}',
                     b'{"messages":[{"role":"user","content":"a"}],"seed":1' + b"0" * 400 + b"}"):
            self.assertRefused(self.post(body), 400)
            self.assertRefused(self.post(body, "/v1/completions"), 400)
            self.assertRefused(self.post(body, "/tokenize"), 400)
            self.assertRefused(self.post(body, "/detokenize"), 400)

    def test_values_out_of_range_are_named(self):
        for field, values in {"max_tokens": (0, -1, 1e10, "5", [], 2**63 - 1),
                              "n": (0, -1, 10**6, 1.5, "1"),
                              "temperature": (-1, 3, "x"), "top_p": (-0.1, 1.1),
                              "min_p": (5,), "top_k": (-5,), "stop": ("", [""], 5, ["a"] * 99),
                              "frequency_penalty": (9,), "presence_penalty": (-9,),
                              "repetition_penalty": (0, -1), "logit_bias": ({"x": 1}, []),
                              "stream": ("true",), "seed": ("a",)}.items():
            for value in values:
                self.assertRefused(self.post({**HELLO, field: value}), 400, field)

    def test_empty_and_too_long_prompts_are_400_and_an_unknown_model_404(self):
        self.assertRefused(self.post({"messages": []}), 400, "messages")
        self.assertRefused(self.post({"prompt": ""}, "/v1/completions"), 400, "prompt")
        self.assertRefused(self.post({"prompt": []}, "/v1/completions"), 400, "prompt")
        self.assertRefused(self.post({"prompt": [10**6]}, "/v1/completions"), 400, "prompt")
        answer = self.post({"prompt": "word " * 5000}, "/v1/completions")
        self.assertRefused(answer, 400, "prompt")
        self.assertIn("4096", json.loads(answer[1])["error"]["message"])
        answer = self.post({"prompt": "word " * 1000000}, "/v1/completions")
        self.assertRefused(answer, 400, "prompt")
        self.assertRefused(self.post({**HELLO, "model": "nope"}), 404, "model")

    def test_odd_prompts_are_answered(self):
        for text in ("\x00", " ", "\n\n", "<|im_end|>", "\ud83d\ude00", "\u202e\u0301", "a" * 300):
            status, body, _ = self.post(
                {"messages": [{"role": "user", "content": text}], "max_tokens": 2})
            self.assertEqual(status, 200, body)
            status, body, _ = self.post({"prompt": text, "max_tokens": 2}, "/v1/completions")
            self.assertEqual(status, 200, body)

    def test_unknown_paths_and_methods(self):
        self.assertRefused(self.post(b"", "/nope"), 404)
        self.assertRefused(self.post(b"", "/v1/"), 404)
        for path, method in (("/v1/chat/completions", "GET"), ("/v1/models", "POST"),
                             ("/health", "DELETE"), ("/", "PUT")):
            answer = self.post(b"", path, method=method)
            self.assertRefused(answer, 405)
            self.assertTrue(answer[2]["Allow"])
        status, body, headers = self.post(b"", "/v1/models", method="OPTIONS")
        self.assertEqual((status, body), (204, b""))
        self.assertNotIn("Access-Control-Allow-Origin", headers)
        status, body, _ = self.post(b"", "/health", method="HEAD")
        self.assertEqual((status, body), (200, b""))

    def open_stream(self):
        s = socket.create_connection(("127.0.0.1", self.server.port), 240)
        body = json.dumps(LONG).encode()
        s.sendall(head(extra=f"Content-Length: {len(body)}\r\n\r\n") + body)
        return s

    def wait_running(self, running, waiting=0):
        deadline = time.monotonic() + 120
        while (self.server.metric("evenkeel_num_requests_running"),
               self.server.metric("evenkeel_num_requests_waiting")) != (running, waiting):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.005)

    def test_a_client_that_leaves_frees_its_request(self):
        aborted = 'evenkeel_request_success_total{finished_reason="abort"}'
        before = self.server.metric(aborted)
        s = self.open_stream()
        self.assertIn(b"200", s.recv(1000))
        self.wait_running(1)
        s.close()
        self.wait_running(0)
        self.assertEqual(self.server.metric(aborted), before + 1)  # it was not finished
        self.assertEqual(self.server.metric("evenkeel_kv_cache_usage_ratio"), 0)

    def test_a_full_queue_is_429_with_retry_after_and_health_still_answers(self):
        running = self.open_stream()
        self.wait_running(1)
        answer = self.post({**HELLO, "n": 2})  # two answers, and room for one
        self.assertRefused(answer, 429)
        queued = self.open_stream()
        self.wait_running(1, 1)
        answer = self.post(HELLO)
        self.assertRefused(answer, 429)
        self.assertGreaterEqual(int(answer[2]["Retry-After"]), 1)
        for _ in range(5):
            self.assertIn("ok", self.server.get("/health"))
            self.assertEqual(self.server.metric("evenkeel_num_requests_running"), 1)
        queued.close()  # cancelling a queued request leaves the running one alone
        self.wait_running(1, 0)
        self.assertTrue(running.recv(10))
        running.close()
        self.wait_running(0)
        self.assertEqual(self.post(HELLO)[0], 200)

    def test_many_clients_come_and_go(self):
        def visit(i):
            try:
                s = self.open_stream()
                s.recv(1 + i * 200)
                s.close()
            except OSError:
                pass
        threads = [threading.Thread(target=visit, args=(i,)) for i in range(12)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()


class Stop(unittest.TestCase):
    def test_sigterm_finishes_what_is_under_way(self):
        server = keelkit.Server(MODEL, "--ctx", "512", "--drain", "240s")
        c = http.client.HTTPConnection("127.0.0.1", server.port, timeout=240)
        c.request("POST", "/v1/chat/completions", json.dumps({**LONG, "max_tokens": 60}))
        r = c.getresponse()
        first = r.read(10)
        result = []
        stopper = threading.Thread(target=lambda: result.append(server.stop()))
        stopper.start()
        text = (first + r.read()).decode()
        stopper.join()
        self.assertTrue(text.rstrip().endswith("data: [DONE]"))
        self.assertIn('"finish_reason":"length"', text)
        self.assertEqual(result, [0])


class Cors(unittest.TestCase):
    def test_one_origin_is_allowed_when_asked(self):
        server = keelkit.Server(MODEL, "--ctx", "256", "--cors", "https://app.example")
        try:
            c = http.client.HTTPConnection("127.0.0.1", server.port, timeout=240)
            c.request("OPTIONS", "/v1/chat/completions")
            r = c.getresponse()
            r.read()
            self.assertEqual(r.status, 204)
            self.assertEqual(r.getheader("Access-Control-Allow-Origin"), "https://app.example")
            self.assertIn("POST", r.getheader("Access-Control-Allow-Methods"))
            self.assertIn("Authorization", r.getheader("Access-Control-Allow-Headers"))
        finally:
            self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main()
