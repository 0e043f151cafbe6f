"""keel serve with too little memory for its clients: answers are those of a server that
has plenty, whatever is checked, shared, given up and computed again."""
import concurrent.futures
import http.client
import json
import pathlib
import unittest

import keelkit

TINY = pathlib.Path(__file__).resolve().parents[1] / "lm/golden/llama.gguf"
COMMON = "The captain of the ship says to all who are on it that "
N = 24


def request(i):
    start = COMMON if i % 3 else ""
    return {"prompt": f"{start}{i} is the secret {i * 7919 % 1000}", "ignore_eos": True,
            "max_tokens": 20 + i % 40, "temperature": i % 2, "seed": i, "logprobs": 3,
            "frequency_penalty": 0.3 * (i % 4), "n": 1 + i % 2}


def choices(server, body):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=240)
    try:
        connection.request("POST", "/v1/completions", json.dumps(body))
        answer = connection.getresponse()
        text = answer.read()
        assert answer.status == 200, text
        return json.loads(text)["choices"]
    finally:
        connection.close()


def metric(server, name):
    return server.metric("evenkeel_" + name)


class Preemption(unittest.TestCase):
    kv = ("--kv-dtype", "bf16", "--kv-memory", "66KiB")

    @classmethod
    def setUpClass(cls):
        server = keelkit.Server(TINY, "--max-seqs", "1", *cls.kv[:2],
                                "--prefix-cache", "off")
        try:
            cls.alone = [choices(server, request(i)) for i in range(N)]
            assert metric(server, "num_preemptions_total") == 0
            assert metric(server, "prefix_cache_hits_total") == 0
            assert metric(server, "kv_cached_pages") == 0
        finally:
            assert server.stop() == 0

    def crowd(self, *options):
        server = keelkit.Server(TINY, "--max-seqs", "8", *self.kv,
                                "--reserve-tokens", "0", *options)
        try:
            with concurrent.futures.ThreadPoolExecutor(N) as pool:
                got = list(pool.map(lambda i: choices(server, request(i)), range(N)))
            self.assertGreater(metric(server, "num_preemptions_total"), 0)
            self.assertGreater(metric(server, "recomputed_tokens_total"), 0)
            self.assertEqual(metric(server, "page_check_failures_total"), 0)
            self.assertEqual(metric(server, "kv_pages_free"), metric(server, "kv_pages"))
            hits = metric(server, "prefix_cache_hits_total")
            self.assertLessEqual(hits, metric(server, "prefix_cache_queries_total"))
            return got, hits
        finally:
            self.assertEqual(server.stop(), 0)

    def test_answers_of_a_crowd_are_those_of_an_empty_server(self):
        for check in ("pages", "full", "off"):
            got, hits = self.crowd("--page-check", check)
            self.assertEqual(got, self.alone)
            self.assertGreater(hits, 0)

    def test_without_a_prefix_cache_too(self):
        got, hits = self.crowd("--prefix-cache", "off")
        self.assertEqual(got, self.alone)
        self.assertEqual(hits, 0)


class PreemptionInFp8(Preemption):
    """What decoding wrote in e4m3 is what reading the answer again writes."""
    kv = ("--kv-dtype", "fp8", "--kv-memory", "33KiB")


if __name__ == "__main__":
    unittest.main()
