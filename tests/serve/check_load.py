"""What keel serve tells a balancer: /load, the ORCA response header, /metrics."""
import http.client
import json
import time
import unittest

import keelkit

MODEL = keelkit.need_model()
BODY = {"messages": [{"role": "user", "content": "Tell a very long story."}],
        "max_tokens": 400, "ignore_eos": True, "stream": True}
FORMAT = "endpoint-load-metrics-format"


class Load(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = keelkit.Server(MODEL, "--ctx", "512", "--max-seqs", "4")

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()

    def load(self):
        return json.loads(self.server.get("/load"))

    def until(self, n):
        for _ in range(600):
            if self.load()["active_sessions"] == n:
                return self.load()
            time.sleep(0.05)
        self.fail(f"never {n} sessions: {self.load()}")

    def test_a_request_is_a_session_until_it_is_over(self):
        before = self.until(0)
        self.assertEqual((before["effective_capacity"], before["binding"]), (4, "seats"))
        streams = []
        for _ in range(3):
            c = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=240)
            c.request("POST", "/v1/chat/completions", json.dumps(BODY), {FORMAT: "json"})
            r = c.getresponse()
            r.read(10)
            streams.append((c, r))
        now = self.until(3)
        self.assertLessEqual(now["remaining_sessions"], 1)
        self.assertGreater(now["resources"]["kv_pages"]["used"], 0)
        self.assertEqual(now["begun_total"], before["begun_total"] + 3)
        kind, text = streams[2][1].getheader("endpoint-load-metrics").split(" ", 1)
        self.assertEqual(kind, "JSON")
        named = json.loads(text)["named_metrics"]
        self.assertEqual(named["active_sessions"], 3)
        streams[0][0].close()  # a client that leaves
        streams[0][1].close()
        for _, r in streams[1:]:
            r.read()
        self.until(0)

    def test_the_header_comes_when_it_is_asked_for(self):
        for value, start in (("TEXT", "TEXT cpu_utilization="), ("json", "JSON {"),
                             ("bin", "BIN "), ("other", None), (None, None)):
            c = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=240)
            c.request("GET", "/health", headers={FORMAT: value} if value else {})
            r = c.getresponse()
            r.read()
            said = r.getheader("endpoint-load-metrics")
            self.assertTrue(said.startswith(start) if start else said is None, said)
            c.close()

    def test_metrics_hold_the_same_and_no_family_twice(self):
        text = self.server.get("/metrics")
        self.assertIn("evenkeel_effective_capacity 4\n", text)
        families = [line.split()[2] for line in text.splitlines()
                    if line.startswith("# TYPE ")]
        self.assertEqual(len(families), len(set(families)))


if __name__ == "__main__":
    unittest.main()
