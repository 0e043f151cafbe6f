#!/usr/bin/env python3
"""soak.py - keel serve under everything at once: random arrivals, clients that leave,
cancelled and malformed requests, a queue that overflows, too few KV pages, beginnings that
are shared within a salt, priorities, deadlines, answers whose text is known.

    KEEL=build/release/bin/keel PYTHONPATH=tests tests/serve/soak.py --minutes 30

It promises: every request is answered, refused or told that it is late; an answer is,
whatever else runs, that of the quiet server; no request is stuck; no page check fails;
memory, descriptors and KV pages end where they began, the pages free or in the prefix cache.
It ends with 0 when all that held, and prints what did not.
"""
import argparse
import collections
import http.client
import json
import os
import pathlib
import random
import socket
import statistics
import struct
import sys
import threading
import time

import keelkit

TINY = pathlib.Path(__file__).resolve().parents[1] / "lm/golden/llama.gguf"
COMPLETE = "/v1/completions"
TIMEOUT = 120     # seconds without a byte: the request is stuck
PAUSE = 0.05      # mean seconds between the requests of a client
RSS_SLACK = 4096  # KiB that memory may differ by between an early and the last quarter
# Room for few: 4 seats, 8 waiting, and 20 pages where 4 full contexts would be 32; and
# no reservation, so that answers do run out of pages.
LIMITS = ("--max-seqs", "4", "--max-queue", "8", "--kv-memory", "60KiB", "--threads", "2",
          "--reserve-tokens", "0")
COMMON = "The captain of the ship says to all who are on it "
KNOWN = [{"prompt": text, "max_tokens": n, "ignore_eos": True, "temperature": t, "seed": 7}
         for text, n, t in (("abc", 20, 0), ("hello there", 60, 1), ("\u65e5\u672c", 5, 1.5),
                            ("0 1 2 3 4 5 6 7 8 9", 80, 0), ("x", 1, 0),
                            (COMMON + "that they stay.", 30, 0), (COMMON + "to go.", 30, 1),
                            (COMMON + COMMON[:-1] + ":", 10, 0))]
BAD_BODIES = [b"", b"{", b"[]", b'{"prompt":5}', b'{"prompt":"a","n":0}', b"\xff\xfe",
              b'{"prompt":"a","max_tokens":1e99}', b'{"prompt":' + b"[" * 5000,
              b'{"prompt":"' + b"a " * 2000 + b'"}', b'{"prompt":"a","model":"other"}']
BAD_BYTES = [b"nonsense\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00", b"GET / HTTP/9.9\r\n\r\n",
             b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
             b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 40000 + b"\r\n\r\n"]


class Broken(Exception):
    """A promise that did not hold."""


def check(is_true, *what):
    if not is_true:
        raise Broken(" ".join(str(w) for w in what))


def texts_of(body):
    """The texts of a whole answer by index, checked for shape."""
    answer = json.loads(body)
    choices = sorted(answer["choices"], key=lambda c: c["index"])
    check(all(c["finish_reason"] in ("stop", "length") for c in choices), "ended:", body)
    check(answer["usage"]["prompt_tokens"] > 0, "usage:", body)
    return [c["text"] for c in choices]


def texts_of_stream(body):
    """The same of a streamed one."""
    events = [e[6:] for e in body.decode().split("\n\n") if e.startswith("data: ")]
    check(events and events[-1] == "[DONE]", "stream without an end:", body[-200:])
    texts, ends = collections.defaultdict(str), {}
    for event in map(json.loads, events[:-1]):
        if event.get("error", {}).get("code") == 504:
            raise Late
        check("error" not in event, "error in a stream:", event)
        for choice in event["choices"]:
            texts[choice["index"]] += choice["text"]
            if choice["finish_reason"]:
                ends[choice["index"]] = choice["finish_reason"]
    check(set(ends) == set(texts) and set(ends.values()) <= {"stop", "length"}, "ends:", ends)
    return [texts[i] for i in sorted(texts)]


class Late(Exception):
    """The request's deadline passed."""


class Client(threading.Thread):
    def __init__(self, soak, seed):
        super().__init__(daemon=True)
        self.soak, self.rng = soak, random.Random(seed)
        self.kept = None  # a connection that is used again

    def run(self):
        acts = [(self.known, 30), (self.sample, 20), (self.crowd, 10), (self.leave, 20),
                (self.share, 20), (self.late, 10),
                (self.bad_body, 8), (self.bad_bytes, 6), (self.half, 4), (self.read, 4)]
        names, weights = zip(*acts)
        while not self.soak.is_over.is_set():
            act = self.rng.choices(names, weights)[0]
            try:
                outcome = act()
            except (Broken, OSError, ValueError, KeyError, http.client.HTTPException) as e:
                self.hang_up()
                self.soak.fail(f"{act.__name__}: {type(e).__name__}: {e}")
                outcome = "failed"
            self.soak.count(act.__name__, outcome)
            time.sleep(self.rng.expovariate(1 / PAUSE))
        self.hang_up()

    def hang_up(self):
        if self.kept:
            self.kept.close()
        self.kept = None

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.soak.server.port), TIMEOUT)

    def ask(self, body, method="POST", path=COMPLETE):
        """(status, body) over a kept connection, or a new one."""
        c = self.kept
        if c is None:
            c = http.client.HTTPConnection("127.0.0.1", self.soak.server.port, timeout=TIMEOUT)
        c.request(method, path, body if isinstance(body, bytes) else json.dumps(body))
        r = c.getresponse()
        data = r.read()
        keeps = not r.will_close and self.rng.random() < 0.7
        self.kept = c if keeps else None
        if not keeps:
            c.close()
        return r.status, data

    def complete(self, request):
        """The texts, or None when the queue was full."""
        stream = self.rng.random() < 0.5
        status, body = self.ask({**request, "stream": stream})
        if status == 429:
            check(json.loads(body)["error"]["code"] == 429, body)
            return None
        if status == 504 and "timeout" in request:
            raise Late
        check(status == 200, status, body)
        return texts_of_stream(body) if stream else texts_of(body)

    def known(self):
        return self.ask_again(self.rng.randrange(len(KNOWN)))

    def ask_again(self, i, **more):
        """Asks for a known answer; nothing in `more` may change it."""
        texts = self.complete({**KNOWN[i], **more})
        if texts is None:
            return "refused"
        check(texts[:1] == self.soak.known[i], "another answer to", KNOWN[i], more, ":", texts)
        if KNOWN[i]["temperature"] == 0:
            check(set(texts) == set(texts[:1]), "choices differ:", KNOWN[i], more, texts)
        return "answered"

    def share(self):
        """Known answers to prompts that begin alike, of several tenants and urgencies."""
        return self.ask_again(self.rng.randrange(len(KNOWN) - 3, len(KNOWN)),
                              cache_salt=self.rng.choice([None, "a", "b", str(time.time())]),
                              n=self.rng.randint(1, 3), priority=self.rng.randint(-2, 2))

    def late(self):
        """Known answers with little time: all of one in time, or none."""
        try:
            return self.ask_again(self.rng.randrange(len(KNOWN)), n=self.rng.randint(1, 2),
                                  timeout=self.rng.choice([0.001, 0.005, 0.02, 0.1, 10]))
        except Late:
            return "late"

    def sample(self):
        request = {"prompt": "".join(self.rng.choices("abc xyz", k=self.rng.randint(1, 40))),
                   "max_tokens": self.rng.randint(1, 60), "n": self.rng.randint(1, 3),
                   "temperature": self.rng.choice([0, 1]), "ignore_eos": True,
                   "stop": self.rng.choice([None, "a", ["zz", "b"]])}
        texts = self.complete(request)
        check(texts is None or len(texts) == request["n"], texts)
        return "refused" if texts is None else "answered"

    def crowd(self):
        """More choices than there is room for beside anything else."""
        texts = self.complete({"prompt": "a", "n": 12, "max_tokens": 30, "ignore_eos": True})
        return "refused" if texts is None else "answered"

    def send(self, s, request):
        body = json.dumps(request).encode()
        s.sendall(b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s"
                  % (COMPLETE.encode(), len(body), body))

    def leave(self):
        """Asks, reads a little or nothing, and goes: by FIN or by reset."""
        with self.connect() as s:
            self.send(s, {"prompt": "abc", "max_tokens": 100, "n": self.rng.randint(1, 4),
                          "ignore_eos": True, "stream": self.rng.random() < 0.7})
            if self.rng.random() < 0.6:
                s.recv(self.rng.randint(1, 2000))
            if self.rng.random() < 0.3:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return "left"

    def bad_body(self):
        status, body = self.ask(self.rng.choice(BAD_BODIES))
        check(status in (400, 404, 429), status, body)
        check(json.loads(body)["error"]["code"] == status, body)
        return "refused"

    def bad_bytes(self):
        with self.connect() as s:
            try:
                s.sendall(self.rng.choice(BAD_BYTES))
                s.shutdown(socket.SHUT_WR)
                got = s.recv(100)
            except (BrokenPipeError, ConnectionResetError):
                return "closed"
        check(got == b"" or got.startswith(b"HTTP/1.1 4") or got.startswith(b"HTTP/1.1 5"), got)
        return "refused" if got else "closed"

    def half(self):
        """A request that stops in its head or in its body."""
        with self.connect() as s:
            whole = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{}"
            s.sendall(whole[:self.rng.randrange(1, len(whole))])
            time.sleep(self.rng.random() / 10)
        return "left"

    def read(self):
        path = self.rng.choice(["/health", "/metrics", "/v1/models", "/"])
        status, body = self.ask(b"", "GET", path)
        check(status == 200 and body, status, body)
        return "answered"


class Soak:
    """`wanted` are counts, (act, outcome), that a slow machine gets more time for."""

    def __init__(self, seconds, model=TINY, n_clients=8, seed=1, page_check="pages", wanted=()):
        self.seconds, self.n_clients, self.seed = seconds, n_clients, seed
        self.wanted, self.is_over = wanted, threading.Event()
        # A sanitizer keeps freed memory to find its use; little of it, or RSS says nothing.
        asan = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=4"
        self.server = keelkit.Server(model, *LIMITS, "--page-check", page_check,
                                     env={"ASAN_OPTIONS": asan.lstrip(":")})
        self.lock = threading.Lock()
        self.counts = collections.Counter()
        self.failures = []
        self.rss = []  # (second, KiB)
        self.known = []
        self.fewest = self.n_descriptors(at_most=1 << 20)  # nobody has connected yet

    def fail(self, what):
        with self.lock:
            if len(self.failures) < 50:
                self.failures.append(what[:500])

    def count(self, act, outcome):
        with self.lock:
            self.counts[act, outcome] += 1

    def n(self, outcome):
        return sum(v for (_, o), v in self.counts.items() if o == outcome)

    def proc(self, name):
        return pathlib.Path(f"/proc/{self.server.process.pid}/{name}")

    def rss_kib(self):
        text = self.proc("status").read_text()
        return int(text.split("VmRSS:")[1].split()[0])

    def n_descriptors(self, at_most):
        """Now, or once they are at most that: our own last connection is among them."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            n = len(list(self.proc("fd").iterdir()))
            if n <= at_most or time.monotonic() > deadline:
                return n
            time.sleep(0.05)

    def growth_kib(self):
        """Memory of the last quarter over that of the second: the first one warms up."""
        def median(first, last):
            return statistics.median(kib for s, kib in self.rss
                                     if first <= s / self.seconds <= last)
        return median(0.75, 1) - median(0.25, 0.5)

    def wait_idle(self):
        """Everything must come to its end by itself."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            left = {name: self.server.metric("evenkeel_" + name) for name in
                    ("num_requests_running", "num_requests_waiting", "kv_pages_free",
                     "kv_pages", "http_connections")}
            if not left["num_requests_running"] + left["num_requests_waiting"] and \
                    left["kv_pages_free"] == left["kv_pages"] and \
                    left["http_connections"] <= 1:
                return
            if time.monotonic() > deadline:
                raise Broken(f"not idle after {TIMEOUT} s: {left}")
            time.sleep(0.05)

    def ask_known(self):
        client = Client(self, self.seed)
        texts = [client.complete(request) for request in KNOWN]
        client.hang_up()
        return texts

    def missing(self):
        """What was to happen, too, and did not yet."""
        return [f"{act} {outcome}" for act, outcome in self.wanted
                if not self.counts[act, outcome]] + [
                    name for name in ("num_preemptions_total", "prefix_cache_hits_total",
                                      "prefix_cache_evicted_pages_total",
                                      "deadlines_missed_total", "pages_checked_total")
                    if not self.server.metric("evenkeel_" + name)]

    def load(self, report_s):
        start = reported = time.monotonic()
        end = start + self.seconds
        clients = [Client(self, self.seed * 1000 + i) for i in range(self.n_clients)]
        for client in clients:
            client.start()
        while self.server.process.poll() is None:
            now = time.monotonic()
            if now > end + TIMEOUT or (now > end and not self.missing()):
                break
            self.rss.append((now - start, self.rss_kib()))
            if report_s and now - reported >= report_s:
                reported = now
                self.report(now - start)
            time.sleep(min(1, self.seconds / 100))
        self.is_over.set()
        for client in clients:
            client.join(2 * TIMEOUT)
            if client.is_alive():
                self.fail("a client is stuck")

    def report(self, second):
        print(f"{second:.0f} s: {self.n('answered')} answered, {self.n('refused')} refused, "
              f"{self.n('left')} left, {self.n('late')} late, {len(self.failures)} failures, "
              f"RSS {self.rss[-1][1]} KiB", flush=True)

    def run(self, report_s=0):
        """Returns the failures, [] when every promise held."""
        try:
            self.known = self.ask_known()
            self.wait_idle()
            before = self.n_descriptors(at_most=self.fewest)
            self.load(report_s)
            self.wait_idle()
            after = self.n_descriptors(at_most=before)
            if after > before:
                self.fail(f"descriptors: {before} became {after}")
            if self.ask_known() != self.known:
                self.fail("the quiet server gives other answers than at the start")
            for name in ("page_check_failures_total", "kv_pages_quarantined"):
                if self.server.metric("evenkeel_" + name):
                    self.fail(f"{name}: a page check failed")
            for name in self.missing():
                self.fail(f"{name}: none; the soak is too mild")
            # ThreadSanitizer's own memory grows with what is touched.
            is_tsan = b"__tsan_init" in pathlib.Path(keelkit.need_keel()).read_bytes()
            if self.growth_kib() > RSS_SLACK and not is_tsan:
                self.fail(f"memory grew by {self.growth_kib()} KiB")
        except (Broken, OSError, http.client.HTTPException) as e:
            self.fail(f"{type(e).__name__}: {e}; {self.server.output()[-2000:]}")
        finally:
            code = self.server.stop()
        if code:
            self.fail(f"the server ended with {code}")
        return self.failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--minutes", type=float, default=30)
    length.add_argument("--seconds", type=float)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--model", default=TINY)
    parser.add_argument("--page-check", choices=["off", "pages", "full"], default="pages")
    args = parser.parse_args()
    soak = Soak(args.seconds or 60 * args.minutes, args.model, args.clients, args.seed,
                args.page_check)
    failures = soak.run(report_s=30)
    for (act, outcome), n in sorted(soak.counts.items()):
        print(f"{act:10} {outcome:9} {n}")
    for failure in failures:
        print("FAILED:", failure)
    if not failures:
        print(f"all promises held; memory changed by {soak.growth_kib():+.0f} KiB of "
              f"{soak.rss[-1][1]}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
