"""The HTTP/2 server end against clients nobody here wrote (h2, curl, nghttp, h2load), and
against clients that misbehave."""
import json
import os
import re
import socket
import ssl
import struct
import subprocess
import tempfile
import time
import unittest

import keelkit

try:
    import h2.config
    import h2.connection
    import h2.errors
    import h2.events
    import h2.exceptions
    import h2.settings
except ImportError:
    keelkit.skip("the Python package h2 is not installed")

PROBE = os.path.join(os.environ.get("EK_BIN", ""), "tests", "probe_h2")
PATIENCE_S = keelkit.PATIENCE_S
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
NO_ERROR, PROTOCOL, FLOW, REFUSED, CALM = 0, 1, 3, 7, 11


def frame(kind, flags=0, stream=0, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + \
        struct.pack(">I", stream) + payload


SETTINGS = frame(4)
# :method GET, :scheme http, :path /hold, :authority a; static table and literals.
HOLD = b"\x82\x86\x04\x05/hold\x01\x01a"
GET = b"\x82\x86\x84\x01\x01a"


class Probe:
    def __init__(self, *args):
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen([PROBE, *args], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.log,
                                        text=True)
        self.port = int(self.process.stdout.readline())
        self.url = f"http://127.0.0.1:{self.port}"

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        code = self.process.wait(PATIENCE_S)
        text = os.pread(self.log.fileno(), 1 << 20, 0).decode()
        self.log.close()
        if code:
            raise AssertionError(f"the server ended with {code}:\n{text}")

    def counts(self):
        c = Client(self.port)
        s = c.request("/counts")
        body = c.wait(s)["data"]
        c.close()
        return json.loads(body)

    def memory(self):
        with open(f"/proc/{self.process.pid}/status") as f:
            return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1))


class Client:
    """The Python h2 package on a socket. State of each stream: head, data, trailers,
    ended, reset."""

    def __init__(self, port, context=None, window=65535, validate=True):
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        if context:
            self.sock = context.wrap_socket(self.sock, server_hostname="localhost")
        self.conn = h2.connection.H2Connection(h2.config.H2Configuration(
            client_side=True, validate_outbound_headers=validate,
            normalize_outbound_headers=validate, header_encoding="utf-8"))
        self.conn.local_settings.initial_window_size = window
        self.conn.initiate_connection()
        self.streams, self.goaway, self.ended, self.acks = {}, None, False, 0
        self.consumes = True
        self.flush()

    def flush(self):
        if data := self.conn.data_to_send():
            self.sock.sendall(data)

    def request(self, path, body=None, headers=(), method="GET", end=True):
        stream = self.conn.get_next_available_stream_id()
        self.streams[stream] = {"data": b"", "head": None, "interim": [], "trailers": None,
                                "ended": False, "reset": None}
        self.conn.send_headers(stream, [
            (":method", method), (":scheme", "http"), (":authority", "h"), (":path", path),
            *headers], end_stream=end and body is None)
        if body is not None:
            self.send(stream, body, end)
        self.flush()
        return stream

    def send(self, stream, body, end=True):
        at = 0
        while at < len(body) or (end and not body):
            room = min(self.conn.local_flow_control_window(stream), 16384)
            if room == 0 and body:
                self.flush()
                self.step()
                continue
            piece = body[at:at + room]
            at += len(piece)
            self.conn.send_data(stream, piece, end_stream=end and at == len(body))
            self.flush()
            if not body:
                break

    def step(self):
        try:
            data = self.sock.recv(65536)
        except ConnectionResetError:
            data = b""
        if not data:
            self.ended = True
            return
        for e in self.conn.receive_data(data):
            s = self.streams.get(getattr(e, "stream_id", None) or 0)
            if isinstance(e, h2.events.ResponseReceived):
                s["head"] = dict(e.headers)
            elif isinstance(e, h2.events.InformationalResponseReceived):
                s["interim"].append(dict(e.headers))
            elif isinstance(e, h2.events.DataReceived):
                s["data"] += e.data
                if self.consumes and e.flow_controlled_length:
                    self.conn.acknowledge_received_data(e.flow_controlled_length,
                                                        e.stream_id)
            elif isinstance(e, h2.events.TrailersReceived):
                s["trailers"] = dict(e.headers)
            elif isinstance(e, h2.events.StreamEnded):
                s["ended"] = True
            elif isinstance(e, h2.events.StreamReset):
                s["reset"] = e.error_code
            elif isinstance(e, h2.events.ConnectionTerminated):
                self.goaway = e
            elif isinstance(e, h2.events.PingAckReceived):
                self.acks += 1
        self.flush()

    def until(self, what, seconds=PATIENCE_S):
        end = time.monotonic() + seconds
        while not what() and not self.ended:
            if time.monotonic() > end:
                raise AssertionError("timed out")
            self.step()

    def wait(self, stream):
        s = self.streams[stream]
        self.until(lambda: s["ended"] or s["reset"] is not None)
        return s

    def close(self):
        self.sock.close()


class Raw:
    """Frames by hand."""

    def __init__(self, port, begin=PREFACE + SETTINGS):
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self.data = b""
        self.send(begin)

    def send(self, data):
        try:
            self.sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def frames(self, until=None):
        """What comes until `until(frame)` or the end: (kind, flags, stream, payload)."""
        got = []
        while True:
            while len(self.data) >= 9:
                n = int.from_bytes(self.data[:3], "big")
                if len(self.data) < 9 + n:
                    break
                f = (self.data[3], self.data[4],
                     int.from_bytes(self.data[5:9], "big") & 0x7fffffff, self.data[9:9 + n])
                self.data = self.data[9 + n:]
                got.append(f)
                if until and until(f):
                    return got
            try:
                piece = self.sock.recv(65536)
            except ConnectionResetError:
                piece = b""
            if not piece:
                return got
            self.data += piece

    def goaway(self):
        """The code of GOAWAY; the connection must end after it."""
        with self.sock:
            codes = [int.from_bytes(f[3][4:8], "big") for f in self.frames() if f[0] == 7]
        return codes[-1] if codes else None

    def reset_of(self, stream):
        f = self.frames(lambda f: (f[0] == 3 and f[2] == stream) or f[0] == 7)[-1]
        return int.from_bytes(f[3], "big") if f[0] == 3 else None


class Base(unittest.TestCase):
    args = ()

    @classmethod
    def setUpClass(cls):
        cls.probe = Probe(*cls.args)

    @classmethod
    def tearDownClass(cls):
        cls.probe.close()

    def assert_memory(self, kb, limit):
        if not keelkit.is_sanitized(PROBE):
            self.assertLess(kb, limit)

    def assert_still_serves(self):
        c = Client(self.probe.port)
        self.assertEqual(c.wait(c.request("/", b"hi", method="POST"))["data"], b"hi")
        c.close()


class Plain(Base):
    def test_bodies_come_back_whole_on_interleaved_streams(self):
        c = Client(self.probe.port)
        bodies = {c.request("/", os.urandom(n), method="POST"): n
                  for n in (0, 1, 16384, 16385, 70000, 300000)}
        for stream, n in bodies.items():
            s = c.wait(stream)
            self.assertEqual((s["head"][":status"], len(s["data"])), ("200", n))
            self.assertEqual(s["head"]["x-probe"], "h2")
        c.close()

    def test_trailers_cross_and_trailers_alone_are_one_head(self):
        c = Client(self.probe.port)
        s = c.wait(c.request("/trailers"))
        self.assertEqual((s["data"], s["trailers"]),
                         (b"body", {"grpc-status": "0", "x-empty": ""}))
        s = c.wait(c.request("/only"))
        self.assertTrue(s["ended"] and s["trailers"] is None and s["data"] == b"")
        c.close()

    def test_an_early_answer_ends_with_reset_no_error(self):
        c = Client(self.probe.port)
        stream = c.request("/early", method="POST", end=False)
        c.until(lambda: c.streams[stream]["reset"] is not None)
        s = c.streams[stream]
        self.assertEqual((s["head"][":status"], s["ended"], s["reset"]), ("200", True, 0))
        c.close()

    def test_a_reset_has_its_code(self):
        c = Client(self.probe.port)
        self.assertEqual(c.wait(c.request("/reset", end=False))["reset"], CALM)
        c.close()

    def test_a_websocket_by_rfc_8441_is_a_tunnel(self):
        c = Client(self.probe.port)
        c.until(lambda: c.conn.remote_settings.enable_connect_protocol == 1)
        stream = c.request("/chat", method="CONNECT", end=False,
                           headers=[(":protocol", "websocket"),
                                    ("sec-websocket-version", "13")])
        c.send(stream, b"frames", end=False)
        c.until(lambda: c.streams[stream]["data"] == b"frames")
        self.assertEqual(c.streams[stream]["head"][":status"], "200")
        c.send(stream, b"", end=True)
        self.assertTrue(c.wait(stream)["ended"])
        c.close()

    def test_connect_without_a_known_protocol_is_501(self):
        c = Client(self.probe.port)
        s = c.wait(c.request("/", method="CONNECT", headers=[(":protocol", "tcp")]))
        self.assertEqual(s["head"][":status"], "501")
        c.close()

    def test_a_reader_without_windows_gets_no_more_than_it_allowed(self):
        c = Client(self.probe.port)
        c.consumes = False
        before = self.probe.memory()
        streams = [c.request("/big") for _ in range(20)]
        c.until(lambda: sum(len(c.streams[s]["data"]) for s in streams) >= 65535)
        time.sleep(0.2)
        self.assert_memory(self.probe.memory() - before, 4000)
        c.close()

    def test_a_writer_is_held_to_the_window_its_reader_opens(self):
        c = Client(self.probe.port)
        stream = c.request("/hold", method="POST", end=False)
        c.send(stream, b"x" * 65535, end=False)
        c.conn.ping(b"12345678")
        c.flush()
        c.until(lambda: c.acks == 1)
        self.assertEqual(c.conn.local_flow_control_window(stream), 0)
        # Others go on: the connection's window is given back at once.
        self.assertEqual(len(c.wait(c.request("/", b"y" * 50000, method="POST"))["data"]),
                         50000)
        c.close()

    def test_a_drain_lets_streams_end_and_says_which_were_the_last(self):
        r = Raw(self.probe.port)
        drain = b"\x82\x86\x04\x06/drain\x01\x01a"
        r.send(frame(4, 1) + frame(1, 4, 1, b"\x83\x86\x84\x01\x01a") +
               frame(1, 5, 3, drain))
        r.frames(lambda f: f[0] == 7)
        # Sent before the client could know: it is still served.
        r.send(frame(1, 5, 5, GET))
        got = r.frames(lambda f: f[0] == 7)
        self.assertEqual(got[-1][3], struct.pack(">II", 5, NO_ERROR))
        self.assertIn((1, 5), [(f[0], f[2]) for f in got])
        r.send(frame(1, 5, 7, GET) + frame(0, 1, 1, b"late"))
        got = r.frames()
        self.assertIn((0, 1, b"late"), [(f[0], f[2], f[3]) for f in got])
        self.assertNotIn(7, [f[2] for f in got])
        r.sock.close()

    def test_curl_and_nghttp_read_it(self):
        for path, size in (("/big", 8 << 20), ("/trailers", 4)):
            got = subprocess.run(
                [keelkit.need_program("curl"), "-s", "--http2-prior-knowledge", "-w",
                 "%{http_version} %{size_download}", "-o", "/dev/null",
                 self.probe.url + path], capture_output=True, text=True, timeout=PATIENCE_S)
            self.assertEqual(got.stdout, f"2 {size}")
        got = subprocess.run([keelkit.need_program("nghttp"), "-nv",
                              self.probe.url + "/trailers"],
                             capture_output=True, text=True, timeout=PATIENCE_S)
        self.assertIn("grpc-status: 0", got.stdout)

    def test_h2load_gets_every_answer(self):
        got = subprocess.run([keelkit.need_program("h2load"), "-n5000", "-c4", "-m40",
                              self.probe.url + "/"], capture_output=True, text=True,
                             timeout=PATIENCE_S)
        self.assertIn("5000 succeeded, 0 failed", got.stdout)

    def test_hundreds_of_open_streams_take_little_memory(self):
        c = Client(self.probe.port)
        for _ in range(10):
            c.request("/hold", method="POST", end=False)
        c.conn.ping(b"12345678")
        c.flush()
        c.until(lambda: c.acks == 1)
        before = self.probe.memory()
        for _ in range(900):
            c.request("/hold", method="POST", end=False)
        c.conn.ping(b"12345678")
        c.flush()
        c.until(lambda: c.acks == 2)
        self.assert_memory((self.probe.memory() - before) / 900, 1.6)
        c.close()


class Rules(Base):
    """RFC 9113: what is malformed, and how it is answered."""

    def refused(self, block, code=PROTOCOL, flags=5):
        r = Raw(self.probe.port)
        r.send(frame(1, flags, 1, block))
        self.assertEqual(r.reset_of(1), code, block)
        r.sock.close()

    def test_malformed_requests_are_reset(self):
        def literal(name, value):
            return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value

        for extra in (
                literal(b"X-Upper", b"1"), literal(b"connection", b"close"),
                literal(b"transfer-encoding", b"chunked"), literal(b"upgrade", b"x"),
                literal(b"keep-alive", b"1"), literal(b"proxy-connection", b"x"),
                literal(b"te", b"gzip"), literal(b"x", b"a\r\nb: c"), literal(b"x", b"\0"),
                literal(b"a b", b"1"), literal(b"", b"1"), literal(b"x", b" a"),
                literal(b":status", b"200"), literal(b":unknown", b"1"), b"\x82",
                literal(b"content-length", b"5"), literal(b"content-length", b"+0"),
                literal(b"x", b"1") + b"\x84"):
            self.refused(GET + extra)
        for block in (b"\x86\x84\x01\x01a", b"\x82\x84\x01\x01a", b"\x82\x86\x01\x01a",
                      b"\x82\x86\x04\x00\x01\x01a", b"\x82\x86\x04\x01x\x01\x01a",
                      b"\x82\x86\x84"):
            self.refused(block)
        self.assert_still_serves()

    def test_host_that_contradicts_authority_is_400(self):
        c = Client(self.probe.port, validate=False)
        s = c.wait(c.request("/", headers=[("host", "elsewhere")]))
        self.assertEqual(s["head"][":status"], "400")
        s = c.wait(c.request("/", headers=[("host", "h")]))
        self.assertEqual(s["head"][":status"], "200")
        c.close()

    def test_what_http_1_would_refuse_is_400(self):
        """A backend may speak HTTP/1.1: there the path is a word of a line."""
        def ask(path="/", scheme="http", authority="h", headers=()):
            c = Client(self.probe.port, validate=False)
            stream = c.conn.get_next_available_stream_id()
            c.streams[stream] = {"data": b"", "head": None, "interim": [],
                                 "trailers": None, "ended": False, "reset": None}
            c.conn.send_headers(stream, [
                (":method", "GET"), (":scheme", scheme), (":authority", authority),
                (":path", path), *headers], end_stream=True)
            c.flush()
            s = c.wait(stream)
            c.close()
            return s["head"][":status"] if s["head"] else "reset"

        for wrong in ({"path": "admin", "scheme": "ftp"}, {"path": "http://x/", "scheme": "x"},
                      {"path": "/a#b"}, {"authority": "a@b"}, {"authority": "a,b"},
                      {"headers": [("content_length", "5")]},
                      {"headers": [("transfer_encoding", "chunked")]}):
            self.assertIn(ask(**wrong), ("400", "reset"), wrong)
        self.assertEqual(ask("/a?b=%23", headers=[("x_y", "1")]), "200")
        self.assertEqual(ask("/", scheme="ftp"), "200")

    def test_more_or_less_body_than_content_length_is_reset(self):
        for n, flags in ((3, 1), (7, 0)):
            r = Raw(self.probe.port)
            r.send(frame(1, 4, 1, b"\x83\x86\x84\x01\x01a\x0f\x0d\x015") +
                   frame(0, flags, 1, b"x" * n))
            self.assertEqual(r.reset_of(1), PROTOCOL)
            r.sock.close()

    def test_broken_connections_end_with_goaway(self):
        open_1 = frame(1, 4, 1, HOLD)
        cases = {
            "not a preface": b"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
            "no settings first": PREFACE + open_1,
            "data on stream 0": PREFACE + SETTINGS + frame(0, 0, 0, b"x"),
            "data on an idle stream": PREFACE + SETTINGS + frame(0, 0, 5, b"x"),
            "headers on an even stream": PREFACE + SETTINGS + frame(1, 5, 2, GET),
            "settings with a stream": PREFACE + frame(4, 0, 1),
            "settings of 5 bytes": PREFACE + frame(4, 0, 0, b"12345"),
            "ack with a payload": PREFACE + SETTINGS + frame(4, 1, 0, b"123456"),
            "window over 2^31-1": PREFACE + frame(4, 0, 0, b"\0\4\xff\xff\xff\xff"),
            "frame size below 16384": PREFACE + frame(4, 0, 0, b"\0\5\0\0\0\1"),
            "ping of 7 bytes": PREFACE + SETTINGS + frame(6, 0, 0, b"1234567"),
            "ping with a stream": PREFACE + SETTINGS + frame(6, 0, 1, b"12345678"),
            "window update by 0": PREFACE + SETTINGS + frame(8, 0, 0, b"\0\0\0\0"),
            "connection window overflow": PREFACE + SETTINGS +
            frame(8, 0, 0, b"\x7f\xff\xff\xff"),
            "push promise": PREFACE + SETTINGS + open_1 + frame(5, 4, 1, b"\0\0\0\2" + GET),
            "continuation alone": PREFACE + SETTINGS + frame(9, 4, 1, GET),
            "a frame inside a head": PREFACE + SETTINGS + frame(1, 1, 1, b"\x82") +
            frame(6, 0, 0, b"12345678"),
            "hpack index 0": PREFACE + SETTINGS + frame(1, 5, 1, b"\x80"),
            "hpack index past the table": PREFACE + SETTINGS + frame(1, 5, 1, b"\xff\xff"),
            "hpack table over its size": PREFACE + SETTINGS + frame(1, 5, 1, b"\x3f\xff\x7f"),
            "padding over the frame": PREFACE + SETTINGS + open_1 +
            frame(0, 8, 1, b"\x05abc"),
            "a frame of 2^24-1 bytes": PREFACE + SETTINGS + b"\xff\xff\xff\0\0\0\0\0\1",
            "reset of an idle stream": PREFACE + SETTINGS + frame(3, 0, 9, b"\0\0\0\x08"),
        }
        for name, data in cases.items():
            with self.subTest(name):
                r = Raw(self.probe.port, data)
                self.assertNotIn(r.goaway(), (NO_ERROR,), name)
        self.assert_still_serves()

    def test_every_cut_of_a_conversation_does_no_harm(self):
        talk = PREFACE + SETTINGS + frame(1, 4, 1, HOLD) + frame(0, 1, 1, b"body") + \
            frame(1, 5, 3, GET) + frame(8, 0, 0, b"\0\0\1\0") + frame(3, 0, 1, b"\0\0\0\x08")
        for n in range(0, len(talk), 3):
            r = Raw(self.probe.port, talk[:n])
            r.sock.close()
        self.assert_still_serves()


class Floods(Base):
    args = ("resets=50", "frames=100", "max_head=4096")

    def flooded(self, data, counter):
        before = self.probe.counts()[counter]
        r = Raw(self.probe.port)
        r.send(data)
        self.assertEqual(r.goaway(), CALM)
        self.assertEqual(self.probe.counts()[counter], before + 1)
        self.assert_still_serves()

    def test_rapid_reset(self):
        self.flooded(b"".join(frame(1, 4, i, HOLD) + frame(3, 0, i, b"\0\0\0\x08")
                              for i in range(1, 401, 2)), "reset_floods")

    def test_made_you_reset(self):
        self.flooded(b"".join(frame(1, 4, i, HOLD) +
                              frame(8, 0, i, b"\x7f\xff\xff\xff")
                              for i in range(1, 401, 2)), "reset_floods")

    def test_malformed_requests_again_and_again(self):
        self.flooded(b"".join(frame(1, 5, i, GET + b"\x82") for i in range(1, 401, 2)),
                     "reset_floods")

    def test_continuation_flood(self):
        self.flooded(frame(1, 1, 1, GET) + frame(9, 0, 1, b"") * 100,
                     "continuation_floods")

    def test_ping_settings_priority_and_empty_data_frames(self):
        for flood in (frame(6, 0, 0, b"12345678"), SETTINGS,
                      frame(2, 0, 1, b"\0\0\0\0\x10")):
            self.flooded(flood * 300, "frame_floods")
        self.flooded(frame(1, 4, 1, HOLD) + frame(0, 0, 1) * 300, "frame_floods")

    def test_a_large_head_is_431_and_a_bomb_costs_nothing(self):
        c = Client(self.probe.port)
        s = c.wait(c.request("/", headers=[("x", "y" * 5000)]))
        self.assertEqual(s["head"][":status"], "431")
        s = c.wait(c.request("/", headers=[(f"x{i}", "y") for i in range(120)]))
        self.assertEqual(s["head"][":status"], "431")
        c.close()
        # One entry of 4 kB in the table, then 15,000 references to it.
        bomb = b"\x40\x01x\x7f\xa1\x1e" + b"y" * 4000
        r = Raw(self.probe.port)
        r.send(frame(1, 5, 1, GET + bomb) + frame(1, 5, 3, GET + b"\xbe" * 15000))
        got = r.frames(lambda f: f[2] == 3 and f[0] == 1)
        self.assertEqual(got[-1][0], 1)
        r.sock.close()
        self.assert_memory(self.probe.memory(), 40000)


class Limits(Base):
    args = ("max_streams=20",)

    def test_streams_over_the_limit_are_refused_and_others_go_on(self):
        r = Raw(self.probe.port)
        r.send(b"".join(frame(1, 4, i, HOLD) for i in range(1, 60, 2)))
        got = r.frames(lambda f: f[0] == 3 and f[2] == 59)
        refused = [f[2] for f in got if f[0] == 3 and f[3] == b"\0\0\0\x07"]
        self.assertEqual(refused, list(range(41, 60, 2)))
        # The peer has said that it knows the limit: then it breaks the protocol.
        r.send(frame(4, 1) + frame(1, 4, 61, HOLD))
        self.assertEqual(r.goaway(), PROTOCOL)


class Time(Base):
    # Each long enough for a slow client, as this one may be, to say what it wants to.
    args = ("stall=2000", "idle=2000", "handshake=2000", "ping=2000")

    def test_silence_instead_of_settings(self):
        self.assertIsNotNone(Raw(self.probe.port, b"").goaway())
        self.assertIsNotNone(Raw(self.probe.port, PREFACE[:10]).goaway())

    def test_an_idle_connection_is_closed_with_no_error(self):
        c = Client(self.probe.port)
        c.wait(c.request("/"))
        c.until(lambda: c.goaway)
        self.assertEqual(c.goaway.error_code, NO_ERROR)
        c.close()

    def test_a_reader_that_opens_no_window_is_told_to_calm_down(self):
        before = self.probe.counts()["stalls"]
        r = Raw(self.probe.port, PREFACE + frame(4, 0, 0, b"\0\4\0\0\0\0"))
        r.send(frame(1, 5, 1, b"\x82\x86\x04\x04/big\x01\x01a"))
        for _ in range(4):
            time.sleep(0.3)
            r.send(frame(6, 0, 0, b"12345678"))
        self.assertEqual(r.goaway(), CALM)
        self.assertEqual(self.probe.counts()["stalls"], before + 1)

    def test_a_peer_that_answers_no_ping_is_closed_and_one_that_does_stays(self):
        before = self.probe.counts()["ping_timeouts"]
        r = Raw(self.probe.port)
        r.send(frame(1, 4, 1, HOLD))
        self.assertIsNotNone(r.goaway())
        self.assertEqual(self.probe.counts()["ping_timeouts"], before + 1)
        c = Client(self.probe.port)
        c.request("/hold", end=False, method="POST")
        end = time.monotonic() + 7
        c.sock.settimeout(0.1)
        while time.monotonic() < end:
            try:
                c.step()
            except TimeoutError:
                pass
        self.assertFalse(c.ended)
        c.close()


class LateHead(Base):
    args = ("head=1000",)

    def test_a_head_that_is_not_whole_in_time_ends_its_connection(self):
        for begun in (frame(1, 1, 1, GET),                     # without END_HEADERS
                      frame(1, 1, 1, GET) + frame(9, 0, 1),
                      frame(1, 5, 1, GET)[:-1],                # a byte is missing
                      frame(1, 4, 1, HOLD) + frame(1, 1, 1, b"\x00\x01t\x01x"),
                      frame(1, 4, 1, HOLD) + frame(1, 1, 3, GET)):
            before = self.probe.counts()["late_heads"]
            r = Raw(self.probe.port)
            r.send(frame(4, 1) + begun)
            self.assertEqual(r.goaway(), CALM, begun)
            self.assertEqual(self.probe.counts()["late_heads"], before + 1)

    def test_a_head_that_trickles_has_no_more_time(self):
        r = Raw(self.probe.port)
        with self.assertRaises(OSError):  # long before it was whole
            for byte in frame(1, 5, 1, GET + b"\x00\x01x\x50" + b"y" * 80):
                r.sock.sendall(bytes([byte]))
                time.sleep(0.1)
        self.assertEqual(r.goaway(), CALM)

    def test_silence_behind_whole_heads_good_or_bad_ends_nothing(self):
        for done in (frame(1, 4, 1, HOLD), frame(1, 1, 1, HOLD[:1]) + frame(9, 4, 1, HOLD[1:]),
                     frame(1, 4, 1, HOLD) + frame(1, 5, 3, GET + b"\x82"),
                     frame(1, 4, 1, HOLD) + frame(1, 5, 1, b"\x82")):
            r = Raw(self.probe.port)
            r.send(frame(4, 1) + done)
            time.sleep(2.5)
            r.send(frame(6, 0, 0, b"12345678"))
            got = r.frames(lambda f: f[0] == 6 or f[0] == 7)
            self.assertEqual(got[-1][:2], (6, 1), done)
            r.sock.close()


class Tls(unittest.TestCase):
    def test_alpn_agrees_on_h2_and_refuses_http_11(self):
        with tempfile.TemporaryDirectory() as d:
            cert, key = os.path.join(d, "c.pem"), os.path.join(d, "k.pem")
            subprocess.run([keelkit.need_program("openssl"), "req", "-x509", "-newkey", "ec",
                            "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days",
                            "2", "-subj", "/CN=localhost", "-addext",
                            "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert],
                           check=True, capture_output=True)
            probe = Probe(cert, key)
            context = ssl.create_default_context(cafile=cert)
            context.set_alpn_protocols(["h2", "http/1.1"])
            c = Client(probe.port, context)
            self.assertEqual(c.sock.selected_alpn_protocol(), "h2")
            body = os.urandom(200000)
            self.assertEqual(c.wait(c.request("/", body, method="POST"))["data"], body)
            c.close()
            context.set_alpn_protocols(["http/1.1"])
            with self.assertRaises((ssl.SSLError, ConnectionResetError)):
                Client(probe.port, context)
            probe.close()


if __name__ == "__main__":
    unittest.main(verbosity=2)
