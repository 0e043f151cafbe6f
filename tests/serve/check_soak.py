"""A short soak (soak.py says what it promises); EK_SOAK_SECONDS makes it longer."""
import os
import unittest

import soak

SECONDS = float(os.environ.get("EK_SOAK_SECONDS", "20")) / 2  # twice: two ways to check


WANTED = (("known", "answered"), ("sample", "answered"), ("share", "answered"),
          ("late", "late"), ("late", "answered"), ("crowd", "refused"), ("leave", "left"),
          ("half", "left"), ("bad_body", "refused"), ("bad_bytes", "refused"),
          ("read", "answered"))


class Promises(unittest.TestCase):
    page_check = "pages"

    @classmethod
    def setUpClass(cls):
        cls.soak = soak.Soak(SECONDS, page_check=cls.page_check, wanted=WANTED)
        cls.failures = cls.soak.run()

    def test_every_promise_held(self):
        self.assertEqual(self.failures, [])

    def test_every_kind_of_client_came_and_the_queue_was_full(self):
        for what in WANTED:
            self.assertGreater(self.soak.counts[what], 0, what)


class EveryTokenChecked(Promises):
    page_check = "full"


class Instrument(unittest.TestCase):
    """The soak sees what it is there to see."""

    def test_a_stream_without_an_end_a_failed_one_and_a_missing_finish_are_noticed(self):
        piece = b'data: {"choices":[{"index":0,"text":"a","finish_reason":%s}]}\n\n'
        done, error = b"data: [DONE]\n\n", b'data: {"error":{"message":"x"}}\n\n'
        good = piece % b"null" + piece % b'"length"'
        self.assertEqual(soak.texts_of_stream(good + done), ["aa"])
        with self.assertRaises(soak.Late):
            soak.texts_of_stream(piece % b"null" + b'data: {"error":{"code":504}}\n\n' + done)
        for bad in (good, piece % b"null" + done, piece % b'"abort"' + done,
                    piece % b"null" + error + done, b""):
            with self.assertRaises(soak.Broken):
                soak.texts_of_stream(bad)

    def test_growing_memory_is_noticed_and_a_warm_up_is_not(self):
        made = soak.Soak.__new__(soak.Soak)
        made.seconds = 100
        made.rss = [(s, 10000 + 200 * s) for s in range(101)]
        self.assertGreater(made.growth_kib(), soak.RSS_SLACK)
        made.rss = [(s, 10000 + 200 * min(s, 20)) for s in range(101)]
        self.assertEqual(made.growth_kib(), 0)


if __name__ == "__main__":
    unittest.main()
