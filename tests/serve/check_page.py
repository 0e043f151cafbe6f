"""The chat page in headless Chromium, served by keel serve: a message is sent, the
streamed answer appears, stop works, settings are obeyed, nothing is fetched elsewhere.

EK_SCREENSHOT=FILE keeps a picture of the conversation.
"""
import json
import os
import time
import unittest

import browserkit
from browserkit import By
from keelkit import Server, need_model

MODEL = need_model()


class ChatPage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(MODEL)
        cls.addClassCleanup(cls.server.stop)
        cls.browser = browserkit.open_browser()
        cls.addClassCleanup(cls.browser.quit)

    def setUp(self):
        self.browser.get(self.server.url + "/")
        self.browser.execute_script("localStorage.clear()")
        self.browser.get(self.server.url + "/")

    def find(self, selector):
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def text(self, selector):
        # In one script: the page replaces its nodes while an answer streams.
        return self.browser.execute_script(
            "const n = document.querySelectorAll(arguments[0]);"
            "return n.length ? n[n.length - 1].innerText : '';", selector)

    def until(self, condition, seconds=240):
        browserkit.until(self.browser, condition, seconds)

    def is_idle(self):
        return self.find("#send").is_displayed()

    def set(self, name, value):
        self.browser.execute_script(
            "const e = document.getElementById(arguments[0]); e.value = arguments[1];"
            "e.dispatchEvent(new Event('change', {bubbles: true}));", name, str(value))

    def ask(self, text):
        self.find("#input").send_keys(text)
        self.find("#send").click()

    def test_a_message_is_sent_and_the_streamed_answer_appears(self):
        self.set("temperature", 0)
        self.set("max_tokens", 40)
        self.ask("What is the capital of France?")
        self.until(lambda: self.text(".turn.assistant .text"))
        self.until(self.is_idle)
        self.assertIn("Paris", self.text(".turn.assistant .text"))
        self.assertIn("tokens", self.text("#status"))
        self.assertEqual("What is the capital of France?", self.text(".turn.user .text"))
        self.assertIn("SmolLM2", self.browser.title)
        if os.environ.get("EK_SCREENSHOT"):
            self.browser.save_screenshot(os.environ["EK_SCREENSHOT"])

    def test_the_answer_grows_while_it_streams(self):
        self.set("temperature", 0)
        self.set("max_tokens", 200)
        self.ask("Tell me a long story about a ship.")
        seen = set()
        self.until(lambda: seen.add(len(self.text(".turn.assistant .text"))) or self.is_idle())
        self.assertGreater(len(seen), 3)

    def test_stop_ends_the_answer_and_keeps_what_was_said(self):
        # Without an end of its own: whatever the model says, there is something to stop.
        self.browser.execute_script(
            "const real = window.fetch; window.fetch = (u, o) => { if (o && o.body)"
            " o.body = JSON.stringify({...JSON.parse(o.body), ignore_eos: true});"
            "return real(u, o); };")
        self.set("temperature", 0)
        self.set("max_tokens", 7000)
        self.ask("Count from one to one thousand in words.")
        self.until(lambda: len(self.text(".turn.assistant .text")) > 10)
        self.find("#stop").click()
        self.until(self.is_idle)
        said = self.text(".turn.assistant .text")
        self.assertEqual("Stopped.", self.text("#status"))
        time.sleep(0.5)
        self.assertEqual(said, self.text(".turn.assistant .text"))
        self.until(lambda: self.server.metric("evenkeel_num_requests_running") == 0)

    def test_the_system_prompt_and_history_are_sent(self):
        self.set("temperature", 0)
        self.set("max_tokens", 8)
        self.set("system", "You are a parrot.")
        self.browser.execute_script(
            "window.sent = []; const real = window.fetch;"
            "window.fetch = (u, o) => { if (o && o.body) window.sent.push(o.body);"
            "return real(u, o); };")
        for text in ("First", "Second"):
            self.ask(text)
            self.until(lambda: self.text("#status").find("tokens ·") >= 0 and self.is_idle())
            self.browser.execute_script("document.getElementById('status').textContent = ''")
        sent = [json.loads(b) for b in self.browser.execute_script("return window.sent")]
        roles = [m["role"] for m in sent[1]["messages"]]
        self.assertEqual(["system", "user", "assistant", "user"], roles)
        self.assertEqual("You are a parrot.", sent[1]["messages"][0]["content"])
        self.assertEqual(8, sent[1]["max_tokens"])

    def test_what_a_model_says_never_becomes_markup(self):
        self.browser.execute_script(
            "markdown(document.getElementById('log'), arguments[0])",
            "<img src=x onerror=alert(1)> **bold** `<b>`\n\n```\n<script>\n```\n- one\n- two")
        self.assertEqual([], self.browser.find_elements(By.CSS_SELECTOR, "#log img, #log script, #log b"))
        self.assertEqual("bold", self.text("#log strong"))
        self.assertEqual("<script>", self.text("#log pre"))
        self.assertEqual(2, len(self.browser.find_elements(By.CSS_SELECTOR, "#log li")))

    def test_an_error_is_shown_as_a_sentence(self):
        self.set("max_tokens", 1)
        self.set("temperature", -1)
        self.ask("Hello")
        self.until(lambda: self.text(".turn.error .text"))
        self.assertIn("temperature", self.text(".turn.error .text"))
        self.assertTrue(self.is_idle())

    def test_dark_and_light_differ_and_the_phone_page_does_not_scroll_sideways(self):
        def ground():
            return self.browser.execute_script(
                "return getComputedStyle(document.body).backgroundColor")
        before = ground()
        self.find("#theme").click()
        self.assertNotEqual(before, ground())
        wide = self.browser.execute_script(
            "return document.documentElement.scrollWidth - window.innerWidth")
        self.assertLessEqual(wide, 0)

    def test_no_request_leaves_the_server(self):
        self.browser.get_log("performance")
        self.browser.get(self.server.url + "/")
        self.until(lambda: "SmolLM2" in self.browser.title)
        for entry in self.browser.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                url = message["params"]["request"]["url"]
                self.assertTrue(url.startswith((self.server.url, "data:")), url)


if __name__ == "__main__":
    unittest.main()
