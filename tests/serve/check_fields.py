"""keel serve over a tiny model: whose prefixes a request may share, whose turn it is, and
how long it may take."""
import concurrent.futures
import http.client
import json
import pathlib
import shutil
import tempfile
import time
import unittest

import keelkit

TINY = pathlib.Path(__file__).resolve().parents[1] / "lm/golden/llama.gguf"
PROMPT = "The captain of the ship says to all who are on it that they are to stay."
# Long answers for a model that does nothing else for long.
LONG = {"prompt": ["abc"] * 8, "n": 16, "max_tokens": 120, "ignore_eos": True}

N_HOLDERS = 64  # of LONG: ten seconds' work on a fast machine
ONE_SEAT = ("--max-seqs", "1", "--threads", "1", "--max-queue", str(128 * N_HOLDERS))


class Base(unittest.TestCase):
    options = ()

    def setUp(self):
        self.server = self.serve(*self.options)

    def serve(self, *options, **kwargs):
        server = keelkit.Server(TINY, *options, **kwargs)
        self.addCleanup(lambda: self.assertEqual(server.stop(), 0))
        return server

    def ask(self, body, path="/v1/completions", key=None, server=None):
        """(status, answer as JSON, or the events of a stream)"""
        c = http.client.HTTPConnection("127.0.0.1", (server or self.server).port, timeout=240)
        try:
            headers = {"Authorization": "Bearer " + key} if key else {}
            c.request("POST", path, json.dumps(body), headers)
            r = c.getresponse()
            text = r.read().decode()
        finally:
            c.close()
        if r.getheader("Content-Type") == "application/json":
            return r.status, json.loads(text)
        return r.status, [e[6:] for e in text.split("\n\n") if e.startswith("data: ")]

    def complete(self, key=None, server=None, **body):
        status, answer = self.ask({"prompt": PROMPT, "max_tokens": 6, "temperature": 0,
                                   "ignore_eos": True, **body}, key=key, server=server)
        self.assertEqual(status, 200, answer)
        return answer

    def cached(self, **kwargs):
        return self.complete(**kwargs)["usage"]["prompt_tokens_details"]["cached_tokens"]

    def metric(self, name):
        return self.server.metric("evenkeel_" + name)

    def refused(self, body, param):
        status, answer = self.ask({"prompt": "a", **body})
        self.assertEqual((status, answer["error"]["param"]), (400, param), answer)
        return answer["error"]["message"]


class PrefixCache(Base):
    def test_a_cached_prompt_gives_the_answer_it_gave_before(self):
        ask = {"logprobs": 5, "max_tokens": 20, "return_token_ids": True}
        cold = self.complete(**ask)
        self.assertEqual(cold["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
        warm = self.complete(**ask)
        n = warm["usage"]["prompt_tokens_details"]["cached_tokens"]
        self.assertGreaterEqual(n, 16)
        self.assertLess(n, warm["usage"]["prompt_tokens"])
        self.assertEqual(n % 16, 0)
        self.assertEqual(warm["choices"], cold["choices"])
        one = self.complete(**{**ask, "prompt": PROMPT + " And", "max_tokens": 1})
        self.assertEqual(one["usage"]["prompt_tokens_details"]["cached_tokens"],
                         (warm["usage"]["prompt_tokens"]) // 16 * 16)

    def test_usage_counts_cached_tokens_in_streams_and_chats_and_metrics_and_the_log(self):
        self.assertEqual(self.cached(), 0)
        whole = self.complete()["usage"]
        cached = whole["prompt_tokens_details"]["cached_tokens"]
        status, events = self.ask({"prompt": PROMPT, "max_tokens": 6, "temperature": 0,
                                   "ignore_eos": True, "stream": True, "stream_options":
                                   {"include_usage": True, "continuous_usage_stats": True}})
        self.assertEqual((status, events.pop()), (200, "[DONE]"))
        usages = [json.loads(e)["usage"] for e in events]
        self.assertEqual(usages[-1], whole)
        self.assertEqual({u["prompt_tokens_details"]["cached_tokens"] for u in usages},
                         {cached})
        # Several prompts and choices: each prompt once.
        many = self.complete(prompt=[PROMPT] * 3, n=2)["usage"]
        self.assertEqual(many["prompt_tokens_details"]["cached_tokens"], 3 * cached)
        self.assertEqual(self.metric("prompt_tokens_cached_total"), 5 * cached)
        lines = [json.loads(line) for line in self.server.output().split("\n")[:-1]]
        self.assertEqual([line["cached_tokens"] for line in lines if line["event"] == "access"],
                         [0, cached, cached, 3 * cached])

    def test_another_salt_finds_nothing_and_the_same_one_does(self):
        self.assertEqual(self.cached(), 0)
        self.assertEqual(self.cached(cache_salt="a"), 0)
        self.assertEqual(self.cached(cache_salt="b"), 0)
        self.assertEqual(self.cached(cache_salt="A"), 0)
        for salt in (None, "a", "b", "A"):
            self.assertGreater(self.cached(cache_salt=salt), 0)

    def test_a_salt_that_is_none_is_refused(self):
        for salt in ("", 5, True, ["a"], "a\0b", 513 * "a"):
            self.refused({"cache_salt": salt}, "cache_salt")
        self.cached(cache_salt=512 * "a")

    def test_without_a_prefix_cache_nothing_is_cached(self):
        server = self.serve("--prefix-cache", "off")
        self.assertEqual([self.cached(server=server) for _ in range(3)], [0, 0, 0])

    def test_weights_chosen_by_a_steps_tokens_keep_no_prefix(self):
        # Keys and values depend on the batch there: another request's are not one's own.
        copies = ("--prefill-weights", "bf16", "--decode-weights", "int4")
        server = self.serve(*copies, "--weights-rule", "tokens")
        self.assertEqual([self.cached(server=server) for _ in range(3)], [0, 0, 0])
        self.assertEqual(server.metric("evenkeel_kv_cached_pages"), 0)
        self.assertIn('"prefix_cache":"off"', server.output())
        server = self.serve(*copies)
        self.assertGreater([self.cached(server=server) for _ in range(2)][1], 0)
        self.assertIn('"prefix_cache":"on"', server.output())


class Keys(Base):
    def setUp(self):
        file = tempfile.NamedTemporaryFile("w", suffix=".keys")
        self.addCleanup(file.close)
        file.write("alice\nbob\n")
        file.flush()
        self.server = self.serve("--api-key-file", file.name)

    def test_requests_of_different_keys_never_share(self):
        self.assertEqual(self.cached(key="alice"), 0)
        self.assertEqual(self.cached(key="bob"), 0)
        self.assertGreater(self.cached(key="alice"), 0)
        self.assertGreater(self.cached(key="bob"), 0)
        self.assertEqual(self.cached(key="alice", cache_salt="s"), 0)
        self.assertEqual(self.cached(key="bob", cache_salt="s"), 0)
        # Nor does a salt that spells the other's key reach what is his.
        self.assertEqual(self.cached(key="alice", cache_salt="bob"), 0)
        self.assertGreater(self.cached(key="alice", cache_salt="s"), 0)


class Priority(Base):
    options = ONE_SEAT

    def served(self, n):
        """The access log's lines in the order in which answers ended, once there are n."""
        deadline = time.monotonic() + keelkit.PATIENCE_S
        while self.server.output().count('"access"') < n:
            self.assertLess(time.monotonic(), deadline, self.server.output())
            time.sleep(0.01)
        lines = [json.loads(line) for line in self.server.output().split("\n")[:-1]]
        return [line for line in lines if line["event"] == "access"]

    def await_prompts(self, n):
        while self.metric("request_prompt_tokens_count") < n:
            time.sleep(0.005)

    def hold_the_seat(self):
        """Connections of requests that are the most urgent there are, more than can be
        answered while the test asks for others."""
        holders = []
        for i in range(N_HOLDERS):
            c = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=240)
            self.addCleanup(c.close)
            c.request("POST", "/v1/completions", json.dumps(
                {**LONG, "priority": -2**31, "request_id": f"holder-{i}"}))
            holders.append(c)
            self.await_prompts((i + 1) * len(LONG["prompt"]))
        return holders

    def test_the_lower_number_is_served_first_and_equal_ones_by_arrival(self):
        # Of one token each: an answer of more may wait with its end until the server has
        # taken its beginning, and answers without a beginning pass it meanwhile.
        wanted = (("late", 5), ("normal", 0), ("last", 2**31 - 1), ("late-too", 5),
                  ("urgent", -2**31), ("soon", -3))
        holders = self.hold_the_seat()
        n = len(holders) * len(LONG["prompt"])
        with concurrent.futures.ThreadPoolExecutor(len(wanted)) as pool:
            asked = []
            for name, priority in wanted:
                asked.append(pool.submit(self.complete, prompt="abc", max_tokens=1,
                                         priority=priority, request_id=name))
                n += 1
                self.await_prompts(n)
            for c in holders:
                c.close()
            for f in asked:
                f.result()
        order = [line["id"].removeprefix("cmpl-")
                 for line in self.served(len(holders) + len(wanted)) if line["status"] == 200]
        self.assertNotIn(f"holder-{N_HOLDERS - 1}", order)  # the seat was taken to the end
        self.assertEqual([name for name in order if "holder" not in name],
                         ["urgent", "soon", "normal", "late", "late-too", "last"])

    def test_a_priority_that_is_no_integer_of_32_bits_is_refused(self):
        for value in (2**31, -2**31 - 1, 1.5, "1", True, [0], 1e300):
            message = self.refused({"priority": value}, "priority")
            self.assertIn("from -2147483648 to 2147483647", message)


class Deadline(Base):
    options = ONE_SEAT
    def idle(self):
        deadline = time.monotonic() + 120
        while self.metric("num_requests_running") + self.metric("num_requests_waiting"):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)
        self.assertEqual(self.metric("kv_pages_free"), self.metric("kv_pages"))

    def test_an_answer_that_is_late_is_a_504_and_frees_what_it_had(self):
        start = time.monotonic()
        status, answer = self.ask({**LONG, "timeout": 0.05})
        self.assertEqual(status, 504, answer)
        self.assertEqual((answer["error"]["type"], answer["error"]["code"]),
                         ("DeadlineExceededError", 504))
        self.assertIn("deadline", answer["error"]["message"])
        self.assertGreaterEqual(time.monotonic() - start, 0.05)
        self.idle()
        self.assertGreater(self.metric("deadlines_missed_total"), 0)
        self.assertEqual(self.server.metric('evenkeel_http_responses_total{code="504"}'), 1)
        lines = [json.loads(line) for line in self.server.output().split("\n")[:-1]]
        self.assertEqual([(line["status"], line["finish"], line["choices"]) for line in lines
                          if line["event"] == "access"], [(504, "error", 128)])
        self.complete(timeout=240)

    def test_a_stream_that_is_late_ends_with_the_error(self):
        # A fast machine is done before the first, a slow one has not begun by the last.
        for timeout in (32, 16, 8, 4, 2, 1, 0.5, 0.2, 0.1, 0.05, 0.02):
            status, events = self.ask({**LONG, "timeout": timeout, "stream": True})
            if status != 200:
                continue
            self.assertEqual(events.pop(), "[DONE]")
            last = json.loads(events.pop())
            if "error" in last and events:
                break
        self.assertEqual((status, last["error"]["code"]), (200, 504), last)
        self.assertTrue(all("error" not in json.loads(e) for e in events))
        self.assertGreater(len(events), 0)
        self.idle()

    def test_waiting_counts_and_the_others_go_on(self):
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            running = pool.submit(self.complete, **{**LONG, "n": 8})
            while self.metric("num_requests_running") == 0:
                time.sleep(0.01)
            status, answer = self.ask({"prompt": "abc", "max_tokens": 1, "timeout": 0.001})
            self.assertEqual(status, 504, answer)
            choices = running.result()["choices"]
        self.assertEqual({c["finish_reason"] for c in choices}, {"length"})
        self.assertEqual(len(choices), 64)

    def test_the_servers_limit_holds_whatever_the_client_asks_for(self):
        server = self.serve(*self.options, "--request-timeout", "50ms")
        for body in ({}, {"timeout": 86400}, {"timeout": 0.02}):
            self.assertEqual(self.ask({**LONG, **body}, server=server)[0], 504)
        short = {"prompt": "a", "max_tokens": 1}
        deadline = time.monotonic() + keelkit.PATIENCE_S
        while (status := self.ask(short, server=server)[0]) != 200:  # 50 ms may be short
            self.assertEqual(status, 504)
            self.assertLess(time.monotonic(), deadline)

    def test_a_timeout_that_is_none_is_refused(self):
        for value in (0, -1, 86401, "1s", True, {"call_timeout": 5}, 1e308):
            self.assertIn("from 0.001 to 86400", self.refused({"timeout": value}, "timeout"))


class Chat(Base):
    """The same fields in chats, of a folder that has a template."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        shutil.copytree(TINY.with_suffix(""), folder.name, dirs_exist_ok=True)
        path = pathlib.Path(folder.name) / "tokenizer_config.json"
        template = "{% for m in messages %}{{ m.content }}{% endfor %}"
        path.write_text(json.dumps({**json.loads(path.read_text()),
                                    "chat_template": template}))
        self.server = keelkit.Server(folder.name)
        self.addCleanup(self.server.stop)

    def chat(self, **body):
        return self.ask({"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 4,
                         "ignore_eos": True, "temperature": 0, **body},
                        "/v1/chat/completions")

    def test_a_second_turn_finds_the_first(self):
        cached = []
        for salt in (None, None, "a", "a"):
            status, answer = self.chat(cache_salt=salt, priority=-1, timeout=240)
            self.assertEqual(status, 200, answer)
            cached.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
        self.assertEqual([n > 0 for n in cached], [False, True, False, True])
        _, events = self.chat(stream=True, stream_options={"include_usage": True})
        usage = json.loads(events[-2])["usage"]
        self.assertEqual(usage["prompt_tokens_details"]["cached_tokens"], cached[1])

    def test_the_fields_are_checked_in_chats_too(self):
        for field, value in (("cache_salt", ""), ("priority", 2**31), ("timeout", 0)):
            status, answer = self.chat(**{field: value})
            self.assertEqual((status, answer["error"]["param"]), (400, field))


if __name__ == "__main__":
    unittest.main()
