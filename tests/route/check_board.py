"""The board in headless Chromium, served by keel route in front of the example backends:
sessions are placed by remaining capacity, and the page says so.

EK_SCREENSHOT=FILE keeps a picture of it.
"""
import json
import os
import pathlib
import time
import unittest
import urllib.request

import browserkit
from browserkit import By
from proxykit import Client, Keel, Proxy, frame, start_voice, wait_for

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SIZES = {"a": 2, "b": 4, "c": 12}
SPEAKING_S = float(os.environ.get("EK_BOARD_SECONDS", "0"))


class Board(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = browserkit.open_browser(1100, 900)
        cls.addClassCleanup(cls.browser.quit)

    def setUp(self):
        words = []
        for name, sessions in SIZES.items():
            # Cores enough for the limit to be what binds, however busy the machine is.
            port = start_voice(self, "--name", name, "--max-sessions", sessions,
                               "--cores", 4 * sessions)
            words.append(f"{name}=127.0.0.1:{port}")
        self.proxy = Proxy(words, "report=/load", report_interval_us=100000)
        self.addCleanup(self.proxy.__exit__, None)
        self.assertTrue(wait_for(lambda: self.proxy.metric("backends_reporting") == 3))
        self.addCleanup(self.browser.get, "about:blank")
        self.url = f"http://127.0.0.1:{self.proxy.admin}/"

    def call(self, n):
        """n sessions that say one thing each."""
        for _ in range(n):
            client = Client(self.proxy.port)
            self.addCleanup(client.close)
            self.assertEqual(client.upgrade()[0], 101)
            client.send(frame(b"hello")).exactly(7)

    def text(self, selector):
        return self.browser.execute_script(
            "return [...document.querySelectorAll(arguments[0])].map(e => e.innerText)",
            selector)

    def until(self, condition):
        browserkit.until(self.browser, condition)

    def test_sessions_go_where_there_is_room_and_the_page_shows_it(self):
        self.browser.get(self.url)
        self.until(lambda: len(self.text(".backend")) == 3)
        self.call(12)
        end = time.monotonic() + SPEAKING_S
        while time.monotonic() < end:
            time.sleep(1)
        # 18 fit: the larger a backend, the more it got, and none is over its capacity.
        self.until(lambda: "12" in self.text("#totals dd")[0])
        open_there = {n: b["open_sessions"] for n, b in self.proxy.backends().items()}
        self.assertEqual(sum(open_there.values()), 12)
        for name, sessions in SIZES.items():
            self.assertLessEqual(open_there[name], sessions)
        self.assertGreater(open_there["c"], open_there["b"] + open_there["a"])
        self.until(lambda: [t.split(" of ")[0] for t in self.text(".backend .load")] ==
                   [str(open_there[n]) for n in SIZES])
        self.assertEqual(self.text("#policy"), ["effective capacity"])
        self.assertIn("the most headroom", self.text("#decisions tr")[0])
        if os.environ.get("EK_SCREENSHOT"):
            self.browser.save_screenshot(os.environ["EK_SCREENSHOT"])

    def test_the_example_with_its_backends_places_by_room(self):
        """What the guide says to type, on free ports."""
        text = (ROOT / "examples/voice.yaml").read_text()
        for port, cores in ((9001, 0.2), (9002, 0.4), (9003, 0.8)):
            real = start_voice(self, "--cores", cores, "--burn-us", 2000)
            text = text.replace(f"127.0.0.1:{port}", f"127.0.0.1:{real}")
        text = text.replace("0.0.0.0:8000", "127.0.0.1:0").replace("127.0.0.1:9090",
                                                                   "127.0.0.1:0")
        keel = Keel(text)
        self.addCleanup(keel.__exit__, None)
        self.assertTrue(wait_for(lambda: keel.metric("backends_reporting") == 3))
        self.browser.get(f"http://127.0.0.1:{keel.admin}/")
        self.until(lambda: len(self.text(".backend")) == 3)
        for _ in range(7):
            client = Client(keel.port)
            self.addCleanup(client.close)
            self.assertEqual(client.upgrade()[0], 101)
            client.send(frame(b"hello")).exactly(7)
        there = {n: b["open_sessions"] for n, b in keel.backends().items()}
        self.assertEqual(sum(there.values()), 7)
        self.assertEqual(max(there, key=there.get), "c", there)
        self.until(lambda: [t.split(" of ")[0] for t in self.text(".backend .load")] ==
                   [str(there[n]) for n in "abc"])
        self.assertEqual(self.text("#policy"), ["effective capacity"])
        self.assertIn("the most headroom", " ".join(self.text("#decisions tr")))

    def test_a_full_pool_and_a_drain_are_told(self):
        self.call(18)
        self.browser.get(self.url)
        self.until(lambda: any("room for 0" in t for t in self.text(".backend .load")))
        request = urllib.request.Request(self.url + "drain?backend=b", data=b"", method="POST")
        urllib.request.urlopen(request, timeout=240).close()
        self.until(lambda: "draining" in self.text(".backend[data-name=b] .flag"))

    def test_the_page_asks_nobody_else_and_no_other_page_may_frame_it(self):
        self.browser.get_log("performance")
        self.browser.get(self.url)
        self.until(lambda: len(self.text(".backend")) == 3)
        for entry in self.browser.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                url = message["params"]["request"]["url"]
                self.assertTrue(url.startswith((self.url, "data:")), url)
        self.assertEqual([], [e for e in self.browser.get_log("browser")
                              if e["level"] == "SEVERE"])
        with urllib.request.urlopen(self.url, timeout=240) as answer:
            self.assertIn("frame-ancestors 'none'", answer.headers["Content-Security-Policy"])

    def test_names_never_become_markup(self):
        self.browser.get(self.url)
        self.until(lambda: len(self.text(".backend")) == 3)
        self.browser.execute_script(
            "document.getElementById('backends').append(drawBackend({name: '<b>x</b>',"
            " address: '<img src=y>', up: true, open_sessions: 1, slow_start: 1}))")
        self.assertEqual([], self.browser.find_elements(By.CSS_SELECTOR, "main b, main img"))


if __name__ == "__main__":
    unittest.main()
