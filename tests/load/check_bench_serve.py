"""keel bench serve against a server that does what a script says: what counts, what is
refused, what has failed; no time is asserted but lower bounds the server enforces."""
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
import unittest
import xml.etree.ElementTree

import keelkit
from fake_server import LAST, ROLE, FakeServer, chunk, token, usage

KEEL = keelkit.need_keel()


def bench(url, *args, **kwargs):
    return keelkit.keel("bench", "serve", "--url", url, *args, **kwargs)


def measure(script, *args, models=({"id": "fake"},), calibrate=False, code=0):
    """(JSON report, requests the server saw, CompletedProcess)"""
    with FakeServer(script, models) as server:
        done = bench(server.url, *([] if calibrate else ["--no-calibrate"]),
                     "--json", "-", *args)
        if done.returncode != code:
            raise AssertionError(f"exit {done.returncode}: {done.stderr}")
        return json.loads(done.stdout), server.requests, done


def trace_file(folder, *rows):
    """A Mooncake trace of (ms, input, output, hashes)."""
    path = os.path.join(folder, "trace.jsonl")
    with open(path, "w") as f:
        for ms, n_in, n_out, ids in rows:
            f.write(json.dumps({"timestamp": ms, "input_length": n_in,
                                "output_length": n_out, "hash_ids": ids}) + "\n")
    return path


class Times(unittest.TestCase):
    def ordered(self, row):
        for a, b in (("min", "p50"), ("p50", "p90"), ("p90", "p95"), ("p95", "p99"),
                     ("p99", "max")):
            self.assertLessEqual(row[a], row[b], row)
        self.assertTrue(row["min"] <= row["mean"] <= row["max"], row)

    def test_the_role_chunk_is_no_first_token(self):
        r, _, _ = measure(lambda q: q.answer(before=0.15, between=0.02), "--requests", 6,
                          "-n", 5, "-c", 3)
        self.assertEqual(r["requests"]["ok"], 6)
        self.assertGreaterEqual(r["ttft_ms"]["min"], 150)
        # Gaps have no lower bound: a client that had no processor reads two at once.
        self.assertLessEqual(r["first_event_ms"]["mean"], r["ttft_ms"]["mean"])
        self.assertEqual(r["itl_ms"]["count"], 6 * 4)
        self.assertGreaterEqual(r["e2e_ms"]["min"], 150 + 4 * 20)
        # (e2e - ttft) / (n - 1) holds for the means, too, where all n are equal.
        want = (r["e2e_ms"]["mean"] - r["ttft_ms"]["mean"]) / 4
        self.assertAlmostEqual(r["tpot_ms"]["mean"], want, delta=0.01)
        for key in ("ttft_ms", "first_event_ms", "tpot_ms", "itl_ms", "e2e_ms"):
            self.ordered(r[key])

    def test_an_open_loop_counts_from_when_a_request_was_due(self):
        lock = threading.Lock()

        def one_at_a_time(q):
            with lock:
                q.answer(before=0.1)

        with tempfile.TemporaryDirectory() as d:
            path = trace_file(d, *[(0, 8, 1, [])] * 8)
            # The ceiling of one under way makes the client wait, and the wait counts.
            for args in ([], ["--rate", 1000, "-c", 1]):
                r, _, _ = measure(one_at_a_time, "--trace", path, *args)
                self.assertEqual(r["loop"], "open")
                self.assertGreaterEqual(r["ttft_ms"]["max"], 799)
                self.assertGreaterEqual(r["ttft_ms"]["mean"], 449)
                self.assertEqual(r["lateness_ms"]["count"], 8)
            self.assertEqual(r["peak_concurrency"], 1)
            r, _, _ = measure(one_at_a_time, "--trace", path, "-c", 1)
            self.assertEqual(r["loop"], "closed")
            self.assertNotIn("lateness_ms", r)

    def test_requests_of_a_trace_come_no_earlier_than_it_says(self):
        with tempfile.TemporaryDirectory() as d:
            path = trace_file(d, (50, 4, 1, []), (250, 4, 2, []), (450, 4, 3, []))
            for args, step in (([], 0.2), (["--scale", "4"], 0.05), (["--rate", "10"], 0.1)):
                r, seen, _ = measure(lambda q: q.answer(), "--trace", path, *args)
                self.assertEqual(sorted(q.body["max_tokens"] for q in seen), [1, 2, 3])
                self.assertGreaterEqual(r["seconds"], 2 * step)
                self.assertEqual(r["tokens"]["output"], 6)

    def test_tokens_that_arrive_together_have_no_gap(self):
        def at_once(q):
            q.begin()
            parts = [ROLE, token(), token(), token(), LAST, usage(3, 3)]
            q.send(b"".join(b"data: %s\n\n" % json.dumps(p).encode() for p in parts)
                   + b"data: [DONE]\n\n")
            q.end()

        r, _, _ = measure(at_once, "--requests", 2)
        self.assertEqual(r["itl_ms"]["count"], 4)
        self.assertEqual(r["itl_ms"]["max"], 0)


class Load(unittest.TestCase):
    def test_a_closed_loop_keeps_so_many_under_way_and_never_more(self):
        eight = threading.Barrier(8)

        def together(q):
            eight.wait(keelkit.PATIENCE_S)
            q.answer()

        with FakeServer(together) as server:
            done = bench(server.url, "--no-calibrate", "-c", 8, "--requests", 40,
                         "--json", "-")
            r = json.loads(done.stdout)
            self.assertEqual(server.peak, 8)
        self.assertEqual((r["requests"]["sent"], r["requests"]["ok"]), (40, 40))
        self.assertEqual(r["peak_concurrency"], 8)

    def test_the_warm_up_and_the_questions_before_are_not_counted(self):
        r, seen, _ = measure(lambda q: q.answer(prompt=3 * q.n_words + 10), "--requests", 5,
                             "--warm-up", 7, "-p", 100, "-n", 2, calibrate=True)
        self.assertEqual(len(seen), 2 + 7 + 5)
        self.assertEqual(r["requests"]["sent"], 5)
        self.assertEqual(len({q.prompt for q in seen}), len(seen))

    def test_prompts_come_out_as_long_as_asked_for(self):
        for per_word, overhead in ((1, 0), (3, 10), (5, 31)):
            r, seen, _ = measure(
                lambda q: q.answer(1, prompt=per_word * q.n_words + overhead),
                "--requests", 4, "-p", 211, calibrate=True)
            self.assertLessEqual(abs(r["tokens"]["prompt"] - 4 * 211), 4 * per_word / 2)
            self.assertAlmostEqual(r["workload"]["tokens_per_word"], per_word, places=3)

    def test_duration_ends_the_sending_and_waits_for_answers(self):
        r, seen, _ = measure(lambda q: q.answer(before=0.05), "--duration", "300ms",
                             "-c", 2, "-n", 1)
        self.assertEqual(r["requests"]["ok"], len(seen))
        self.assertGreaterEqual(r["seconds"], 0.3)
        self.assertEqual(r["requests"]["unfinished"], 0)
        r, seen, _ = measure(lambda q: q.answer(), "--duration", "300ms", "--rate", 100,
                             "-n", 1)
        self.assertEqual(r["requests"]["ok"], len(seen))
        self.assertGreater(len(seen), 0)

    def test_the_same_seed_sends_the_same_and_another_does_not(self):
        def prompts(seed):
            _, seen, _ = measure(lambda q: q.answer(1), "--requests", 3, "--seed", seed,
                                 "-c", 1)
            return [q.prompt for q in seen]

        self.assertEqual(prompts(1), prompts(1))
        self.assertFalse(set(prompts(1)) & set(prompts(2)))

    def test_equal_hashes_are_equal_beginnings(self):
        with tempfile.TemporaryDirectory() as d:
            path = trace_file(d, (0, 1100, 1, [7, 8, 9]), (0, 1300, 1, [7, 8, 10]),
                              (0, 1100, 1, [3, 8, 9]))
            _, seen, _ = measure(lambda q: q.answer(), "--trace", path, "-c", 1)
            a, b, c = (q.prompt.split() for q in seen)
            self.assertEqual([len(a), len(b), len(c)], [1100, 1300, 1100])
            self.assertEqual(a[:1024], b[:1024])
            self.assertNotEqual(a[1024:1100], b[1024:1100])
            self.assertNotEqual(a[:512], c[:512])
            _, seen, _ = measure(lambda q: q.answer(), "--trace", path, "-c", 1,
                                 "--length-scale", 0.25)
            a, b = (q.prompt.split() for q in seen[:2])
            self.assertEqual((len(a), a[:256]), (275, b[:256]))
            self.assertNotEqual(a[256:], b[256:275])

    def test_a_trace_is_shortened_to_what_the_model_takes(self):
        with tempfile.TemporaryDirectory() as d:
            path = trace_file(d, (0, 5000, 50, []), (0, 100, 50, []))
            r, seen, _ = measure(lambda q: q.answer(), "--trace", path, "-c", 1,
                                 models=[{"id": "m", "max_model_len": 1000}])
            self.assertEqual(r["requests"]["shortened"], 1)
            self.assertTrue(900 < seen[0].n_words + 50 < 1000)
            r, seen, _ = measure(lambda q: q.answer(), "--trace", path, "--max-tokens", 60)
            self.assertEqual(r["requests"]["shortened"], 2)
            self.assertEqual({q.n_words + q.body["max_tokens"] for q in seen}, {60})

    def test_bodies_are_what_the_options_say(self):
        with tempfile.TemporaryDirectory() as d:
            key = os.path.join(d, "key")
            with open(key, "w") as f:
                f.write("secret-7\nmore\n")
            _, seen, _ = measure(lambda q: q.answer(), "--requests", 1, "-n", 3,
                                 "--api-key-file", key, "--temperature", "0.5",
                                 "--body", '{"top_k": 3, "cache_salt": "x\\u0000y"}')
        q = seen[0]
        self.assertEqual(q.path, "/v1/chat/completions")
        self.assertEqual(q.headers["Authorization"], "Bearer secret-7")
        messages = q.body.pop("messages")
        self.assertEqual([m["role"] for m in messages], ["user"])
        self.assertEqual(q.body, {"model": "fake", "stream": True, "max_tokens": 3,
                                  "stream_options": {"include_usage": True},
                                  "ignore_eos": True, "temperature": 0.5, "top_k": 3,
                                  "cache_salt": "x\0y"})
        _, seen, _ = measure(lambda q: q.answer(), "--requests", 1, "--no-ignore-eos",
                             "--endpoint", "completions", "--model-name", "other")
        q = seen[0]
        self.assertEqual((q.path, q.body["model"]), ("/v1/completions", "other"))
        self.assertNotIn("ignore_eos", q.body)
        self.assertIsInstance(q.body["prompt"], str)


class Misbehaviour(unittest.TestCase):
    def test_429_and_503_are_refusals_and_told_apart(self):
        def script(q):
            kind = q.number % 4
            if kind in (1, 2):
                return q.refuse(429 if kind == 1 else 503, "queue is full")
            return q.answer(2)

        r, _, _ = measure(script, "--requests", 12, "-c", 1)
        self.assertEqual([r["requests"][k] for k in ("ok", "refused_429", "refused_503",
                                                     "refused", "failed")],
                         [6, 3, 3, 6, 0])
        self.assertEqual({e["text"]: e["count"] for e in r["errors"]},
                         {"status 429: queue is full": 3, "status 503: queue is full": 3})

    def failing(self, script, says, args=(), n=8):
        """Half of the requests fail; the others are measured all the same."""
        def half(q):
            return script(q) if q.number % 2 else q.answer(2)

        r, _, _ = measure(half, "--requests", n, "-c", 1, *args)
        self.assertEqual((r["requests"]["ok"], r["requests"]["failed"]), (n // 2, n // 2))
        self.assertEqual(sum(e["count"] for e in r["errors"]), n // 2)
        self.assertRegex(r["errors"][0]["text"], says)
        self.assertEqual(r["ttft_ms"]["count"], n // 2)

    def test_other_states_are_failures_with_the_servers_words(self):
        self.failing(lambda q: q.refuse(500, "engine \x1b[31mdead"), r"status 500: engine \\x1b")
        self.failing(lambda q: q.refuse(400, "prompt too long"), "status 400: prompt too long")

    def test_an_event_that_is_no_json_is_a_failure(self):
        def garbage(q):
            q.event(ROLE)
            q.event('{"choices": [')
            q.event("[DONE]")
            q.end()

        self.failing(garbage, "event of")

    def test_a_page_instead_of_a_stream_is_a_failure(self):
        def page(q):
            q.begin(kind="text/html")
            q.send(b"<html>It works!</html>")
            q.end()

        self.failing(page, "no stream of events")

    def test_bytes_that_are_no_http_are_a_failure(self):
        def noise(q):
            q.raw(b"\x00\xff\x00garbage\r\n\r\n")
            q.hang_up()

        self.failing(noise, ".")

    def test_a_hang_up_in_the_middle_is_a_failure(self):
        def cut(q):
            q.event(ROLE)
            q.event(token())
            q.hang_up()

        self.failing(cut, ".")

    def test_a_stream_without_its_end_is_a_failure(self):
        def stops(q):
            q.event(ROLE)
            q.event(token())
            q.end()

        self.failing(stops, "ended early")

    def test_an_error_in_the_stream_is_a_failure_with_the_servers_words(self):
        def error(q):
            q.event(ROLE)
            q.event({"error": {"message": "page check failed", "code": 500}})
            q.event("[DONE]")
            q.end()

        self.failing(error, "page check failed")

    def test_a_server_that_is_too_slow_is_given_up(self):
        self.failing(lambda q: time.sleep(3), "(?i)time", args=["--timeout", "6s"], n=2)

    def test_any_split_of_the_bytes_is_the_same_answer(self):
        def split(q):
            q.begin()
            parts = [ROLE, token("a\u00e9\u65e5"), token(), LAST, usage(3, 2)]
            text = b": ping\r\n\r\n" + b"".join(b"data: %s\r\n\r\n" % json.dumps(p).encode()
                                              for p in parts) + b"data: [DONE]\r\n\r\n"
            for i in range(len(text)):
                q.send(text[i:i + 1])
            q.end()

        r, _, _ = measure(split, "--requests", 3)
        self.assertEqual((r["requests"]["ok"], r["tokens"]["output"]), (3, 6))
        self.assertEqual(r["itl_ms"]["count"], 3)

    def test_without_usage_events_are_counted_and_it_is_said(self):
        def silent(q):
            q.event(ROLE)
            for _ in range(4):
                q.event(token())
            q.event(LAST)
            q.event("[DONE]")
            q.end()

        r, _, _ = measure(silent, "--requests", 3)
        self.assertEqual(r["requests"]["without_usage"], 3)
        self.assertEqual((r["tokens"]["output"], r["tokens"]["prompt"]), (12, 0))
        with FakeServer(silent) as server:
            done = bench(server.url, "--requests", 3)
            self.assertEqual(done.returncode, 1)
            self.assertIn("--no-calibrate", done.stderr)

    def test_an_answer_without_text_is_no_token_and_not_within_the_slo(self):
        r, _, _ = measure(lambda q: q.answer(0 if q.number % 2 else 2), "--requests", 6,
                          "-c", 1, "--slo", "ttft:100000")
        self.assertEqual((r["requests"]["ok"], r["requests"]["without_text"]), (6, 3))
        self.assertEqual(r["ttft_ms"]["count"], 3)
        self.assertEqual(r["goodput"]["within"], 3)

    def test_goodput_counts_what_meets_every_limit(self):
        r, _, _ = measure(lambda q: q.answer(2, before=1.2 if q.number % 3 == 0 else 0),
                          "--requests", 6, "-c", 1, "--slo", "ttft:1100,e2e:100000")
        self.assertLessEqual(r["goodput"]["within"], 4)
        self.assertGreater(r["goodput"]["within"], 0)
        r, _, _ = measure(lambda q: q.answer(3, between=0.5), "--requests", 3,
                          "-c", 3, "--slo", "ttft:100000,tpot:1")
        self.assertEqual(r["goodput"]["within"], 0)

    def test_a_server_that_dies_is_reported_with_what_was_measured(self):
        def dies(q):
            if q.number == 10:
                q.handler.server.die()
            q.handler.close_connection = True
            q.answer(1)

        for args, n_ok in ((["-c", 2], 9), (["--rate", 50], 1)):
            r, _, done = measure(dies, "--requests", 5000, "--endpoint", "completions",
                                 *args, code=1)
            self.assertTrue(r["server_gone"])
            self.assertGreaterEqual(r["requests"]["ok"], n_ok)
            self.assertRegex(done.stderr, r"^keel bench serve: http://.* went away.*\n$")

    def test_a_server_that_is_not_there_is_one_line(self):
        done = bench("http://127.0.0.1:9", "--requests", 1)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"^keel bench serve: http://127\.0\.0\.1:9/v1/models: "
                                      r".*\n$")
        for models in ([], [{}], [{"id": 7}]):
            with FakeServer(lambda q: q.answer(), models) as server:
                done = bench(server.url)
                self.assertEqual(done.returncode, 1)
                self.assertIn("lists no model", done.stderr)


class Ends(unittest.TestCase):
    def test_ctrl_c_prints_what_was_measured(self):
        with FakeServer(lambda q: q.answer(2, before=0.02 if q.number < 12 else 60)) as server:
            p = subprocess.Popen(
                [KEEL, "bench", "serve", "--url", server.url, "--no-calibrate", "-c", "3"],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            deadline = time.monotonic() + keelkit.PATIENCE_S
            while len(server.requests) < 15 and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(0.2)
            p.send_signal(signal.SIGINT)
            out, err = p.communicate(timeout=keelkit.PATIENCE_S)
        self.assertEqual(p.returncode, 130, err)
        self.assertRegex(out, r"requests +12 ok, 0 failed")
        self.assertRegex(out, r"unfinished +3 ")

    def test_files_hold_the_same_as_the_table_and_the_picture_is_xml(self):
        with tempfile.TemporaryDirectory() as d, \
                FakeServer(lambda q: q.answer(3), [{"id": "a<b>&\"c"}]) as server:
            path, svg = os.path.join(d, "r.json"), os.path.join(d, "r.svg")
            done = bench(server.url, "--no-calibrate", "--requests", 4, "--json", path,
                         "--svg", svg)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            with open(path) as f:
                r = json.load(f)
            self.assertEqual(r["model"], "a<b>&\"c")
            self.assertRegex(done.stdout, r"requests +4 ok")
            row = re.search(r"end to end +([\d.]+)", done.stdout)
            self.assertAlmostEqual(float(row.group(1)), r["e2e_ms"]["mean"], places=2)
            root = xml.etree.ElementTree.parse(svg).getroot()
            self.assertEqual(root.tag, "{http://www.w3.org/2000/svg}svg")
            text = "".join(root.itertext())
            for words in ("a<b>&\"c", "Time to first token", "End to end",
                          "prefers-color-scheme:dark"):
                self.assertIn(words, text)

    def test_bad_usage_exits_2_and_says_what_is_right(self):
        for args, says in ((["--slo", "ttft:x"], "ttft:200"),
                           (["--slo", "ttft:1,ttft:2"], "--slo"),
                           (["--slo", "speed:1"], "--slo"),
                           (["--slo", ""], "--slo"),
                           (["--body", "[1]"], "--body: expected a JSON object"),
                           (["--body", "{"], "--body"),
                           (["--url", "ftp://x"], "http://HOST:PORT"),
                           (["--scale", "2"], "--trace"),
                           (["--burstiness", "2"], "--rate"),
                           (["--rate", "-1"], "0 to"),
                           (["--duration", "30"], "duration")):
            done = keelkit.keel("bench", "serve", *args)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(says, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1)

    def test_bad_files_exit_3_and_name_file_and_line(self):
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "t.csv")
            for text, says in (("", "holds no request"),
                               ("TIMESTAMP,ContextTokens,GeneratedTokens\nx,1,2\n", ":2: "),
                               ('{"timestamp":0,"input_length":1,"output_length":1}\n{\n',
                                ":2:")):
                with open(path, "w") as f:
                    f.write(text)
                done = keelkit.keel("bench", "serve", "--trace", path)
                self.assertEqual(done.returncode, 3, done.stderr)
                self.assertIn(path + (says if says[0] == ":" else ""), done.stderr)
                self.assertIn(says, done.stderr)
            for flag in ("--trace", "--api-key-file"):
                done = keelkit.keel("bench", "serve", flag, "/nowhere/file")
                self.assertEqual(done.returncode, 3)
                self.assertIn("/nowhere/file", done.stderr)

    def test_a_report_that_cannot_be_written_is_an_error(self):
        with FakeServer(lambda q: q.answer(1)) as server:
            done = bench(server.url, "--no-calibrate", "--requests", 1, "--svg",
                         "/nowhere/x.svg")
            self.assertEqual(done.returncode, 1)
            self.assertIn("/nowhere/x.svg", done.stderr)
            self.assertRegex(done.stdout, r"requests +1 ok")


if __name__ == "__main__":
    unittest.main()
