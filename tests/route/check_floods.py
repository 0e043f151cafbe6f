"""Clients that mean harm, in front of the proxy: each is refused and counted in /metrics,
the backend is told that its work is not wanted, memory stays, and the stream that another
client has open meanwhile goes on."""
import fcntl
import pathlib
import socket
import struct
import sys
import termios
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "net"))
from proxykit import Backend, Proxy, echo_http, keelkit, need_probe, wait_for  # noqa: E402
from check_h2 import (CALM, GET, HOLD, NO_ERROR, PREFACE, SETTINGS, Probe, Raw,  # noqa: E402
                      frame)
from check_h2 import Client as H2Client  # noqa: E402

CANCEL = b"\0\0\0\x08"
IDS = range(1, 6001, 2)


class Case(unittest.TestCase):
    def start(self, *words, backend=None, **settings):
        if backend is None:
            self.probe = Probe()
            self.addCleanup(self.probe.close)
        port = backend.port if backend else self.probe.port
        protocol = () if backend else ("h2=1",)
        self.proxy = Proxy([port], *protocol, *words, logs_sessions=0, **settings)

        def end():
            with self.proxy:
                self.assertTrue(wait_for(lambda: self.proxy.metric("placements") == 0))
                self.assertTrue(wait_for(lambda: self.proxy.metric("open_sessions") == 0))
        self.addCleanup(end)
        if backend is None:
            self.other = H2Client(self.proxy.port)
            self.addCleanup(self.other.close)
            self.stream = self.other.request("/", method="POST", end=False)
            self.said = b""
            self.assert_other_goes_on()

    def assert_other_goes_on(self):
        """The stream that was open before the flood still carries both ways."""
        self.said += b"still here. "
        self.other.send(self.stream, b"still here. ", end=False)
        self.other.until(lambda: self.other.streams[self.stream]["data"] == self.said)

    def count(self, name):
        return self.proxy.metric(f'h2_{name}_total{{side="client"}}')

    def flood(self, data, *counters, code=CALM):
        def count():
            return sum(self.count(c) for c in counters)
        before = count()
        raw = Raw(self.proxy.port)
        raw.send(data)
        got = raw.goaway()
        if code is not None:
            self.assertEqual(got, code)
        else:
            self.assertNotEqual(got, NO_ERROR)
        self.assertEqual(count(), before + 1)
        # One placement is left: the other client's.
        self.assertTrue(wait_for(lambda: self.proxy.metric("placements") == 1))
        self.assert_other_goes_on()

    def assert_memory(self, limit_kb):
        if not keelkit.is_sanitized(need_probe()):
            self.assertLess(self.proxy.anon_kb(), limit_kb)


class Floods(Case):
    def test_rapid_reset(self):
        self.start()
        self.flood(b"".join(frame(1, 4, i, HOLD) + frame(3, 0, i, CANCEL) for i in IDS),
                   "reset_floods")
        # What reached the backend was cancelled there.
        self.assertTrue(wait_for(lambda: self.probe.counts()["streams"] <=
                                 self.probe.counts()["closed"] + 3))

    def test_made_you_reset(self):
        """Each makes the server reset a stream whose request is with the backend."""
        for what, bad in {
                "a window that overflows": lambda i: frame(8, 0, i, b"\x7f\xff\xff\xff"),
                "a window opened by 0": lambda i: frame(8, 0, i, bytes(4)),
                "trailers without an end": lambda i: frame(1, 4, i, b"\x00\x01t\x01x"),
                "a pseudo field in trailers": lambda i: frame(1, 5, i, b"\x84"),
                "a priority of 4 bytes": lambda i: frame(2, 0, i, bytes(4)),
                "a stream that depends on itself":
                    lambda i: frame(2, 0, i, struct.pack(">IB", i, 1))}.items():
            with self.subTest(what):
                self.start()
                raw = Raw(self.proxy.port)
                raw.send(b"".join(frame(1, 4, i, HOLD) + bad(i) for i in IDS))
                self.assertNotIn(raw.goaway(), (NO_ERROR, None))
                self.assertGreater(sum(self.count(n) for n in (
                    "reset_floods", "protocol_errors", "frame_floods")), 0)
                self.assertTrue(wait_for(lambda: self.proxy.metric("placements") == 1))
                self.assert_other_goes_on()
                self.doCleanups()

    def test_made_you_reset_behind_the_end_of_a_request(self):
        for what, bad in {
                "data": lambda i: frame(0, 0, i, b"x"),
                "a head": lambda i: frame(1, 5, i, GET)}.items():
            with self.subTest(what):
                self.start()
                held = b"\x82\x86\x04\x05/hold\x01\x01a"
                raw = Raw(self.proxy.port)
                raw.send(b"".join(frame(1, 5, i, held) + bad(i) for i in IDS))
                self.assertNotIn(raw.goaway(), (NO_ERROR, None))
                self.assertTrue(wait_for(lambda: self.proxy.metric("placements") == 1))
                self.assert_other_goes_on()
                self.doCleanups()

    def test_malformed_requests_again_and_again(self):
        self.start()
        self.flood(b"".join(frame(1, 5, i, GET + b"\x82") for i in IDS), "reset_floods",
                   "frame_floods")

    def test_continuation_flood(self):
        self.start()
        self.flood(frame(1, 1, 1, GET) + frame(9, 0, 1) * 1000, "continuation_floods")
        self.flood(frame(1, 1, 1, GET) + frame(9, 0, 1, b"\x00\x01x\x01y" * 3000) * 100,
                   "continuation_floods")

    def test_ping_settings_priority_and_empty_data_frames(self):
        self.start()
        for data in (frame(6, 0, 0, b"12345678") * 3000, SETTINGS * 3000,
                     frame(4, 0, 0, struct.pack(">HI", 4, 1) * 20) * 3000,
                     frame(2, 0, 1, b"\0\0\0\0\x10") * 3000,
                     frame(1, 4, 1, HOLD) + frame(0, 0, 1) * 3000,
                     frame(1, 4, 1, HOLD) + frame(0, 8, 1, b"\x03\0\0\0") * 3000):
            self.flood(data, "frame_floods")

    def test_frames_of_no_known_type_and_small_windows_cost_little(self):
        self.start()
        raw = Raw(self.proxy.port)
        raw.send(frame(0xbe, 0xff, 0, b"x" * 100) * 20000 +
                 frame(8, 0, 0, b"\0\0\0\1") * 20000 + frame(6, 0, 0, b"are you?"))
        self.assertEqual(raw.frames(lambda f: f[0] in (6, 7))[-1][:2], (6, 1))
        raw.sock.close()
        self.assert_other_goes_on()
        self.assert_memory(60000)

    def test_data_for_streams_that_are_over_is_skipped_and_counted(self):
        """Who sent it may not know yet (RFC 9113 5.1); its window is given back."""
        self.start()
        n = 40
        raw = Raw(self.proxy.port)
        raw.send(frame(1, 4, 1, HOLD) + frame(3, 0, 1, CANCEL) +
                 frame(0, 0, 1, bytes(16384)) * n + frame(6, 0, 0, b"is alive"))
        got = raw.frames(lambda f: f[0] == 7 or (f[0] == 6 and f[3] == b"is alive"))
        self.assertEqual(got[-1][0], 6, got)
        self.assertEqual(self.count("closed_data"), n)
        self.assertEqual(self.count("protocol_errors"), 0)
        # 640 KiB went through a connection's window of 64 KiB.
        self.assertTrue(any(f[0] == 8 and f[2] == 0 for f in got), got)
        self.assert_other_goes_on()
        raw.sock.close()

    def test_streams_over_the_limit(self):
        self.start()
        before = self.count("refused_streams")
        raw = Raw(self.proxy.port)
        raw.send(b"".join(frame(1, 4, i, HOLD) for i in range(1, 2401, 2)))
        got = raw.frames(lambda f: f[0] == 3 and f[2] == 2399)
        self.assertEqual(sum(f[0] == 3 and f[3] == b"\0\0\0\x07" for f in got), 200)
        self.assertEqual(self.count("refused_streams"), before + 200)
        self.assert_other_goes_on()
        raw.sock.close()
        self.assertTrue(wait_for(lambda: self.proxy.metric("placements") == 1))


class Bombs(Case):
    def test_hpack_bomb(self):
        """An entry of 4 kB in the table, then 15,000 references to it."""
        self.start()
        before = self.count("oversized_heads")
        bomb = b"\x40\x01x\x7f\xa1\x1e" + b"y" * 4000
        raw = Raw(self.proxy.port)
        raw.send(frame(1, 5, 1, GET + bomb))
        for i in range(3, 203, 2):
            raw.send(frame(1, 5, i, GET + b"\xbe" * 15000))
        got = raw.frames(lambda f: f[2] == 201 and f[0] in (1, 3) or f[0] == 7)
        self.assertEqual(got[-1][0], 1)
        raw.sock.close()
        self.assertEqual(self.count("oversized_heads"), before + 100)
        self.assert_other_goes_on()
        self.assert_memory(60000)

    def test_heads_of_http_2_too_large_or_too_many(self):
        self.start()
        before = self.count("oversized_heads")
        c = H2Client(self.proxy.port)
        self.addCleanup(c.close)
        for n, extra in enumerate(([("x", "y" * 40000)], [(f"x{i}", "y") for i in range(200)],
                                   [("cookie", "a=1")] * 200)):
            s = c.wait(c.request("/", headers=extra))
            self.assertEqual(s["head"][":status"], "431")
            self.assertEqual(self.count("oversized_heads"), before + n + 1)
        s = c.wait(c.request("/" + "x" * 40000))
        self.assertEqual(s["head"][":status"], "431")
        self.assert_other_goes_on()

    def test_heads_and_urls_of_http_1(self):
        self.start()
        before = self.proxy.metric("bad_requests_total")
        texts = (("GET /" + "x" * 9000 + " HTTP/1.1\r\nHost: h\r\n\r\n", 414),
                 ("GET /" + "x" * 100000, 431),
                 ("GET / HTTP/1.1\r\nHost: h\r\nX: " + "y" * 100000, 431),
                 ("GET / HTTP/1.1\r\nHost: h\r\n" + "A: b\r\n" * 101 + "\r\n", 431),
                 ("GET / HTTP/1.1\r\nHost: h\r\n" + "A: b\r\n" * 20000, 431))
        for n, (text, status) in enumerate(texts):
            client = self.proxy.connect()
            try:
                client.send(text)
            except ConnectionError:
                pass
            self.assertEqual(client.head()[0], status)
            client.close()
            self.assertEqual(self.proxy.metric("bad_requests_total"), before + n + 1)
        self.assert_other_goes_on()


class Slow(Case):
    def test_slowloris_of_http_1(self):
        self.start(head_timeout_us=3000000)
        before = self.proxy.metric("late_heads_total")
        clients = [self.proxy.connect().send("G") for _ in range(200)]
        for text in ("ET / HTTP/1.1\r\n", "Host: h\r\n", "X-a: b\r\n"):
            for client in clients:
                try:
                    client.send(text)
                except ConnectionError:
                    pass
            self.assert_other_goes_on()
            time.sleep(0.1)
        for client in clients:
            self.assertEqual(client.head()[0], 408)
            client.close()
        self.assertEqual(self.proxy.metric("late_heads_total"), before + 200)
        self.assert_other_goes_on()

    def test_slowloris_of_http_2(self):
        self.start(head_timeout_us=3000000)
        before = self.count("late_heads")
        raws = [Raw(self.proxy.port) for _ in range(50)]
        for raw in raws:
            raw.send(frame(1, 1, 1, GET))
        self.assert_other_goes_on()
        for raw in raws:
            self.assertEqual(raw.goaway(), CALM)
        self.assertEqual(self.count("late_heads"), before + 50)
        for begun in (b"", PREFACE[:10], PREFACE, PREFACE + SETTINGS[:5]):
            raw = Raw(self.proxy.port, begun or b"P")
            raw.frames()  # ends
            raw.sock.close()
        self.assert_other_goes_on()

    def test_readers_that_open_no_window_hold_no_more_than_it(self):
        """8 MiB asked for by each of 500 streams, none of which may be sent."""
        self.start()
        raw = Raw(self.proxy.port, PREFACE + frame(4, 0, 0, struct.pack(">HI", 4, 0)))
        big = b"\x82\x86\x04\x04/big\x01\x01a"
        raw.send(b"".join(frame(1, 5, i, big) for i in range(1, 1001, 2)))
        self.assertTrue(wait_for(lambda: self.proxy.metric("placements") == 501))
        for _ in range(5):
            self.assert_other_goes_on()
            time.sleep(0.1)
        self.assert_memory(120000)  # 500 windows of 64 KiB, and room
        raw.sock.close()
        self.assertTrue(wait_for(lambda: self.proxy.metric("placements") == 1))
        self.assert_other_goes_on()

    def test_a_client_that_reads_nothing_stops_its_own_writer(self):
        self.start()
        sock = socket.create_connection(("127.0.0.1", self.proxy.port), timeout=keelkit.PATIENCE_S)
        self.addCleanup(sock.close)
        sock.sendall(PREFACE + frame(4, 0, 0, struct.pack(">HI", 4, 0x7fffffff)) +
                     frame(8, 0, 0, b"\x7f\xff\0\0") +
                     b"".join(frame(1, 5, i, b"\x82\x86\x04\x04/big\x01\x01a")
                              for i in range(1, 101, 2)))
        for _ in range(5):
            self.assert_other_goes_on()
            time.sleep(0.1)
        self.assert_memory(100000)


    def test_a_flood_by_who_reads_nothing_is_told_of_once_he_reads(self):
        self.start()
        raw = Raw(self.proxy.port, PREFACE + frame(4, 0, 0, struct.pack(">HI", 4, 0x7fffffff)) +
                  frame(8, 0, 0, b"\x7f\xff\0\0"))
        raw.send(b"".join(frame(1, 5, i, b"\x82\x86\x04\x04/big\x01\x01a")
                          for i in range(1, 101, 2)))
        # What is on the way fills both sockets: nothing more fits behind it.
        unread = [-1, 0]
        while unread[-1] != unread[-2] or unread[-1] == 0:
            time.sleep(0.3)
            unread.append(struct.unpack("i", fcntl.ioctl(raw.sock, termios.FIONREAD, bytes(4)))[0])
        raw.send(frame(6, 0, 0, b"12345678") * 3000)
        self.assertTrue(wait_for(lambda: self.count("frame_floods") == 1))
        self.assertEqual(raw.goaway(), CALM)
        self.assertTrue(wait_for(lambda: self.proxy.metric("placements") == 1))
        self.assert_other_goes_on()


class Ids(Case):
    def test_stream_ids_run_out(self):
        """The last one is served; one below it is no new stream."""
        self.start()
        raw = Raw(self.proxy.port)
        raw.send(frame(4, 1) + frame(1, 5, 0x7fffffff, GET))
        got = raw.frames(lambda f: f[2] == 0x7fffffff and f[1] & 1 or f[0] == 7)
        self.assertNotEqual(got[-1][0], 7)
        raw.send(frame(1, 5, 1, GET))
        self.assertNotEqual(raw.goaway(), NO_ERROR)
        self.assert_other_goes_on()

    def test_even_ids_and_ids_that_fall(self):
        self.start()
        for ids in ((2,), (5, 3)):
            self.flood(b"".join(frame(1, 5, i, GET) for i in ids), "protocol_errors", code=None)

    def test_connections_over_the_limit_are_refused_and_counted(self):
        backend = Backend(echo_http("a"))
        self.addCleanup(backend.close)
        self.start(backend=backend, max_connections=20)
        held = [self.proxy.connect() for _ in range(20)]
        self.assertEqual(held[0].get()[0], 200)
        for client in held[1:]:
            self.assertEqual(client.get()[0], 200)
        for _ in range(10):
            client = self.proxy.connect()
            self.assertTrue(client.is_closed())
            client.close()
        self.assertEqual(self.proxy.metric("connections_refused_total"), 10)
        self.assertEqual(held[0].get()[0], 200)
        for client in held:
            client.close()


if __name__ == "__main__":
    need_probe()
    unittest.main(warnings="ignore")
