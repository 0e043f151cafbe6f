"""The life of a session: which certificate its client gets, what keeps it alive, what ends
it and what is said then."""
import os
import pathlib
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from proxykit import (PATIENCE_S, Backend, Client, Proxy, accept_websocket,  # noqa: E402
                      echo_http, end_balanced, need_probe, wait_for)

TEXT, CLOSE, PING, PONG = 0x81, 0x88, 0x89, 0x8A
MASK = b"\x07\x70\x3c\xc3"


def frame(first, payload, mask=b""):
    """One frame of RFC 6455, masked as a client's if a mask is given."""
    n = len(payload)
    head = bytes([first, (0x80 if mask else 0) | (n if n < 126 else 126)])
    if n >= 126:
        head += n.to_bytes(2, "big")
    if mask:
        payload = bytes(b ^ mask[i % 4] for i, b in enumerate(payload))
    return head + mask + payload


def read_frame(client):
    """(first byte, payload, is it masked), or None at the end."""
    head = client.exactly(2)
    if len(head) < 2:
        return None
    n = head[1] & 127
    if n == 126:
        n = int.from_bytes(client.exactly(2), "big")
    elif n == 127:
        n = int.from_bytes(client.exactly(8), "big")
    mask = client.exactly(4) if head[1] & 128 else b""
    payload = client.exactly(n)
    if mask:
        payload = bytes(b ^ mask[i % 4] for i, b in enumerate(payload))
    return head[0], payload, bool(mask)


class Frames:
    """A backend whose WebSocket answers Pings and Closes and notes every frame."""

    def __init__(self, answers_pings=True, says=b""):
        self.seen, self.answers_pings, self.says = [], answers_pings, says
        self.gate = threading.Event()

    def __call__(self, client, backend):
        accept_websocket(client, backend)
        if self.says:
            client.send(self.says)
        while True:
            got = read_frame(client)
            if got is None:
                return
            self.seen.append(got)
            if got[0] == PING and self.answers_pings:
                client.send(frame(PONG, got[1]))
            if got[0] == CLOSE:
                client.send(frame(CLOSE, got[1]))
                return
            if got[0] == TEXT:
                client.send(frame(TEXT, got[1]))


class Case(unittest.TestCase):
    def proxy(self, serves, *words, **settings):
        """A proxy in front of backends, one a function; everything ends with the test."""
        self.backends = [Backend(serve) for serve in serves]
        for backend in self.backends:
            self.addCleanup(backend.close)
        return self.proxy_of([b.port for b in self.backends], *words, **settings)

    def proxy_of(self, names, *words, **settings):
        return end_balanced(self, Proxy(names, *words, **settings))

    def last_end(self, proxy):
        self.assertTrue(wait_for(lambda: proxy.records("session_end")))
        return proxy.records("session_end")[-1]


class Certificates(Case):
    NAMES = {"first": "a.test", "wild": "*.voice.test", "own": "b.voice.test"}

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        for file, name in cls.NAMES.items():
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                            "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                            "-subj", "/CN=t", "-addext", f"subjectAltName=DNS:{name}",
                            "-keyout", f"{cls.folder.name}/{file}.key",
                            "-out", f"{cls.folder.name}/{file}.pem"],
                           check=True, capture_output=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def words(self):
        return [w for f in self.NAMES for w in (f"cert={self.folder.name}/{f}.pem",
                                                f"key={self.folder.name}/{f}.key")]

    def meet(self, proxy, name, version=None, alpn=()):
        """The names of the certificate that a client gets who asks for this one."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(cadata="".join(
            pathlib.Path(f"{self.folder.name}/{f}.pem").read_text() for f in self.NAMES))
        if version:
            context.maximum_version = version
        if alpn:
            context.set_alpn_protocols(alpn)
        sock = socket.create_connection(("127.0.0.1", proxy.port), timeout=PATIENCE_S)
        with context.wrap_socket(sock, server_hostname=name) as tls:
            self.assertEqual(tls.selected_alpn_protocol(), alpn[0] if alpn else None)
            if not alpn:
                self.assertEqual(Client(sock=tls).get()[0], 200)
            return tls.getpeercert()["subjectAltName"][0][1]

    def test_each_name_gets_its_certificate_and_others_the_first(self):
        proxy = self.proxy([echo_http("a")], *self.words())
        for name, want in (("a.test", "a.test"), ("A.Test", "a.test"),
                           ("x.voice.test", "*.voice.test"),
                           ("b.voice.test", "b.voice.test"),
                           ("x.y.voice.test", "a.test"), ("voice.test", "a.test"),
                           ("other.test", "a.test"), (None, "a.test")):
            for version in (None, ssl.TLSVersion.TLSv1_2):
                self.assertEqual(self.meet(proxy, name, version), want, name)

    def test_protocols_are_agreed_on_with_every_certificate(self):
        proxy = self.proxy([echo_http("a")], *self.words())
        for name in ("a.test", "x.voice.test"):
            for alpn in (["h2"], ["http/1.1"]):
                self.meet(proxy, name, alpn=alpn)

    def test_a_further_certificate_that_cannot_be_used_is_named(self):
        words = self.words()
        words[3], words[5] = words[5], words[3]
        out = subprocess.run([need_probe(), "backend=a=127.0.0.1:1", *words],
                             capture_output=True, text=True, timeout=60)
        self.assertIn("own.key: the key does not belong to the certificate", out.stderr)

    def test_tls_to_a_socket_file_needs_a_name(self):
        out = subprocess.run([need_probe(), "backend=a=unix:/run/a", "tls=1"],
                             capture_output=True, text=True, timeout=60)
        self.assertIn("backend 'a': TLS to a socket file", out.stderr)
        self.assertIn("expected tls_name", out.stderr)

    def test_a_socket_file_is_spoken_to_over_tls_by_name(self):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(f"{self.folder.name}/first.pem",
                                f"{self.folder.name}/first.key")

        def wrapped(client, backend):
            inner = Client(sock=context.wrap_socket(client.sock, server_side=True))
            echo_http("a")(inner, backend)
        path = f"{self.folder.name}/socket"
        backend = Backend(wrapped, path=path)
        self.addCleanup(backend.close)
        proxy = self.proxy_of([f"a=unix:{path}"], "tls=1", "tls_name=a.test",
                              f"ca={self.folder.name}/first.pem")
        client = proxy.connect()
        self.assertEqual(client.get()[0], 200)
        client.close()


class Pings(Case):
    """Of the proxy's own, in WebSockets."""

    def test_a_silent_session_that_answers_stays_and_nobody_sees_the_pongs(self):
        backend = Frames()
        proxy = self.proxy([backend], websocket_ping_us=50000)
        client = proxy.connect()
        client.upgrade()
        for _ in range(5):
            first, payload, is_masked = read_frame(client)
            self.assertEqual((first, payload[:8], len(payload), is_masked),
                             (PING, b"evenkeel", 16, False))
            client.send(frame(PONG, payload, MASK))
        client.send(frame(TEXT, b"still here", MASK))
        while True:
            first, payload, _ = read_frame(client)
            if first == TEXT:
                break
            client.send(frame(PONG, payload, MASK))
        self.assertEqual(payload, b"still here")
        kinds = {(first, masked) for first, _, masked in backend.seen}
        self.assertTrue(wait_for(lambda: any(f[0] == PING for f in backend.seen)))
        self.assertLessEqual(kinds, {(PING, True), (TEXT, True)})
        self.assertGreaterEqual(proxy.metric("websocket_pings_total"), 5)
        self.assertEqual(proxy.metric("websocket_ping_timeouts_total"), 0)
        client.close()

    def test_pings_of_the_sides_own_and_their_pongs_pass(self):
        backend = Frames(says=frame(PING, b"evenkeel89abcdef"))  # as long as ours
        proxy = self.proxy([backend], websocket_ping_us=50000)
        client = proxy.connect()
        client.upgrade()
        pings = []
        client.send(frame(PING, b"mine", MASK))
        while True:
            first, payload, _ = read_frame(client)
            if first == PONG:
                break
            pings.append(payload)
            client.send(frame(PONG, payload, MASK))
        self.assertEqual(payload, b"mine")
        self.assertIn(b"evenkeel89abcdef", pings)
        self.assertTrue(wait_for(lambda: (PONG, b"evenkeel89abcdef", True)
                                 in backend.seen))
        client.close()

    def test_a_side_that_does_not_answer_ends_the_session_by_its_name(self):
        for side, answers in (("client", True), ("backend", False)):
            proxy = self.proxy([Frames(answers)], websocket_ping_us=100000,
                               ping_timeout_us=5000000)
            client = proxy.connect()
            client.upgrade()
            if side == "backend":
                while (got := self.read_or_none(client)) is not None:
                    client.send(frame(PONG, got[1], MASK))
            end = self.last_end(proxy)
            self.assertEqual((end["by"], end["why"]), (side, "no_pong"))
            self.assertEqual(proxy.metric("websocket_ping_timeouts_total"), 1)
            client.close()

    @staticmethod
    def read_or_none(client):
        try:
            return read_frame(client)
        except ConnectionError:
            return None

    def test_pongs_keep_a_session_over_the_limit_of_silence(self):
        proxy = self.proxy([Frames()], websocket_ping_us=50000, tunnel_timeout_us=5000000)
        client = proxy.connect()
        client.upgrade()
        until = time.monotonic() + 7
        while time.monotonic() < until:
            client.send(frame(PONG, read_frame(client)[1], MASK))
        self.assertEqual(proxy.metric("open_sessions"), 1)
        client.close()

    def test_a_ping_waits_for_the_end_of_a_frame(self):
        backend = Frames()
        proxy = self.proxy([backend], websocket_ping_us=50000)
        client = proxy.connect()
        client.upgrade()
        whole = frame(0x82, b"x" * 1000, MASK)
        client.send(whole[:500])
        # Once its first half is there (the head is taken out of it):
        self.assertTrue(wait_for(lambda: any(len(c.buffer) == 492
                                             for c in self.backends[0].clients)))
        n = len(backend.seen)
        time.sleep(0.3)  # the backend's Ping is due by now, if this machine is quick
        self.assertEqual(len(backend.seen), n)
        client.send(whole[500:])
        self.assertTrue(wait_for(lambda: any(f[0] == PING for f in backend.seen[n:])))
        self.assertIn((0x82, b"x" * 1000, True), backend.seen)
        self.assertLessEqual({f[0] for f in backend.seen}, {0x82, PING})
        client.close()

    def test_a_stopped_process_is_found(self):
        proxy = self.proxy([Frames()], websocket_ping_us=200000, ping_timeout_us=5000000)
        script = ("import sys\n"
                  "from websockets.sync.client import connect\n"
                  "with connect(sys.argv[1], ping_interval=None, open_timeout=None) as ws:\n"
                  "    print('open', flush=True)\n"
                  "    ws.recv()\n")
        process = subprocess.Popen([sys.executable, "-c", script,
                                    f"ws://127.0.0.1:{proxy.port}/"],
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                   text=True)
        try:
            if process.stdout.readline() != "open\n":
                self.skipTest("websockets is not installed")
            self.assertTrue(wait_for(
                lambda: proxy.metric("websocket_pings_total") >= 4))
            self.assertEqual(proxy.metric("open_sessions"), 1)
            os.kill(process.pid, signal.SIGSTOP)
            self.assertTrue(wait_for(lambda: proxy.records("session_end")))
            end = self.last_end(proxy)
            self.assertEqual((end["by"], end["why"]), ("client", "no_pong"))
        finally:
            process.kill()
            process.wait()
            process.stdout.close()

    def test_bytes_that_are_no_frames_pass_and_get_no_pings(self):
        def garbage(client, backend):
            accept_websocket(client, backend)
            client.send(b"\xff" * 50)
            client.send(client.exactly(50))
            client.rest()
        proxy = self.proxy([garbage], websocket_ping_us=50000, counts_frames=1)
        client = proxy.connect()
        client.upgrade()
        client.send(b"\x00" * 50)
        self.assertEqual(client.exactly(100), b"\xff" * 50 + b"\x00" * 50)
        time.sleep(0.3)
        client.sock.setblocking(False)
        with self.assertRaises(BlockingIOError):
            client.sock.recv(1)
        client.close()


class Ends(Case):
    """A Close before the end, and what the log says of it."""

    def closed(self, proxy):
        client = proxy.connect()
        client.upgrade()
        got = read_frame(client)
        self.assertEqual(got, (CLOSE, b"\x03\xe9", False))
        client.send(frame(CLOSE, b"\x03\xe9", MASK))
        self.assertEqual(client.rest(), b"")
        client.close()

    def test_both_sides_get_a_close_at_the_greatest_age(self):
        backend = Frames()
        proxy = self.proxy([backend], max_age_us=2000000)
        self.closed(proxy)
        end = self.last_end(proxy)
        self.assertEqual((end["by"], end["why"]), ("proxy", "max_age"))
        self.assertTrue(wait_for(lambda: backend.seen == [(CLOSE, b"\x03\xe9", True)]))

    def test_the_library_on_both_sides_reads_1001(self):
        try:
            from websockets.exceptions import ConnectionClosed
            from websockets.sync.client import connect
            from websockets.sync.server import serve
        except ImportError:
            self.skipTest("websockets is not installed")
        codes = []

        def handler(ws):
            try:
                while True:
                    ws.send(b"x" * 5000)
                    time.sleep(0.001)
            except ConnectionClosed as e:
                codes.append(e.rcvd.code)
        server = serve(handler, "127.0.0.1", 0, ping_interval=None, open_timeout=None)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.shutdown)
        proxy = self.proxy_of([server.socket.getsockname()[1]], max_age_us=3000000)
        with connect(f"ws://127.0.0.1:{proxy.port}/", ping_interval=None,
                     open_timeout=None) as ws:
            with self.assertRaises(ConnectionClosed) as raised:
                while True:
                    self.assertEqual(ws.recv(), b"x" * 5000)
        self.assertEqual(raised.exception.rcvd.code, 1001)
        self.assertTrue(wait_for(lambda: codes == [1001]))
        self.assertEqual(self.last_end(proxy)["why"], "max_age")

    def test_a_close_waits_for_the_end_of_a_frame(self):
        whole = frame(0x82, b"y" * 50000)

        def serve(client, backend):
            accept_websocket(client, backend)
            client.send(whole[:30000])
            told.append(read_frame(client))  # this side's Close does not wait
            client.send(whole[30000:] + whole)  # what follows the Close is dropped
            client.rest()
        told = []
        proxy = self.proxy([serve], max_age_us=2000000)
        client = proxy.connect()
        client.upgrade()
        self.assertEqual(read_frame(client), (0x82, b"y" * 50000, False))
        self.assertEqual(read_frame(client), (CLOSE, b"\x03\xe9", False))
        self.assertEqual(told, [(CLOSE, b"\x03\xe9", True)])
        client.send(frame(CLOSE, b"\x03\xe9", MASK))
        self.assertEqual(client.rest(), b"")
        client.close()

    def test_a_side_that_does_not_answer_the_close_holds_nobody(self):
        proxy = self.proxy([Frames()], max_age_us=2000000)
        client = proxy.connect()
        client.upgrade()
        self.assertEqual(read_frame(client), (CLOSE, b"\x03\xe9", False))
        self.assertEqual(client.rest(), b"")
        self.assertEqual(self.last_end(proxy)["why"], "max_age")

    def test_a_drains_deadline_says_close(self):
        proxy = self.proxy([Frames()], drain_us=200000)
        client = proxy.connect()
        client.upgrade()
        proxy.process.terminate()
        self.assertEqual(read_frame(client), (CLOSE, b"\x03\xe9", False))
        client.send(frame(CLOSE, b"\x03\xe9", MASK))
        self.assertEqual(client.rest(), b"")
        client.close()
        self.assertEqual(proxy.process.wait(PATIENCE_S), 0)
        end = self.last_end(proxy)
        self.assertEqual((end["by"], end["why"]), ("proxy", "drain"))
        self._cleanups.pop()

    def test_records_tell_of_start_minute_and_end(self):
        proxy = self.proxy([Frames()], counts_frames=1, log_interval_us=100000)
        client = proxy.connect()
        client.upgrade()
        for _ in range(3):
            client.send(frame(TEXT, b"hello", MASK))
            self.assertEqual(read_frame(client)[1], b"hello")
        self.assertTrue(wait_for(
            lambda: any(r["frames_down"] == 3 for r in proxy.records("session_open"))))
        client.send(frame(CLOSE, b"", MASK))
        self.assertEqual(read_frame(client)[0], CLOSE)
        client.close()
        start, end = proxy.records("session_start")[0], self.last_end(proxy)
        minute = next(r for r in proxy.records("session_open") if r["frames_down"] == 3)
        for record in (start, minute, end):
            self.assertEqual((record["session"], record["backend"], record["reason"]),
                             (end["session"], "b0", end["reason"]))
        self.assertEqual((minute["bytes_up"], minute["bytes_down"]), (33, 21))
        self.assertEqual((end["frames_up"], end["frames_down"]), (4, 4))
        self.assertEqual((end["status"], end["why"]), (101, "done"))
        self.assertIn(end["by"], ("client", "backend"))
        self.assertGreater(end["seconds"], 0)


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST, SETTINGS, PING_FRAME, GOAWAY = 0, 1, 3, 4, 6, 7
END_STREAM, END_HEADERS, ACK = 1, 4, 1


def h2(kind, flags=0, stream=0, payload=b""):
    return (len(payload).to_bytes(3, "big") + bytes([kind, flags])
            + stream.to_bytes(4, "big") + payload)


def fields(*pairs):
    """A header block of literals."""
    return b"".join(b"\0" + bytes([len(n)]) + n + bytes([len(v)]) + v for n, v in pairs)


REQUEST = fields((b":method", b"POST"), (b":scheme", b"http"), (b":path", b"/"),
                 (b":authority", b"t"))


def read_h2(client):
    """(kind, flags, stream, payload), or None at the end."""
    try:
        head = client.exactly(9)
    except ConnectionError:
        return None
    if len(head) < 9:
        return None
    return (head[3], head[4], int.from_bytes(head[5:9], "big"),
            client.exactly(int.from_bytes(head[:3], "big")))


def silent_h2(client, backend):
    """A backend of HTTP/2 that begins an answer and acknowledges no PING."""
    client.exactly(len(PREFACE))
    client.send(h2(SETTINGS) + h2(SETTINGS, ACK))
    while (got := read_h2(client)) is not None:
        backend.note(got)
        if got[0] == HEADERS:
            client.send(h2(HEADERS, END_HEADERS, got[2], b"\x88"))


class Http2(Case):
    def open(self, proxy):
        client = proxy.connect()
        client.send(PREFACE + h2(SETTINGS) + h2(HEADERS, END_HEADERS, 1, REQUEST))
        return client

    def until(self, client, kind):
        while (got := read_h2(client)) is not None:
            if got[0] == kind:
                return got
        return None

    def test_a_client_that_answers_no_ping_is_left_and_one_that_does_stays(self):
        proxy = self.proxy([silent_h2], "h2=1", http2_ping_us=50000,
                           ping_timeout_us=5000000)
        client = self.open(proxy)
        for _ in range(5):
            got = self.until(client, PING_FRAME)
            client.send(h2(PING_FRAME, ACK, 0, got[3]))
        self.assertEqual(proxy.metric("open_sessions"), 1)
        self.assertIsNotNone(self.until(client, GOAWAY))
        end = self.last_end(proxy)
        self.assertEqual((end["by"], end["why"]), ("client", "a PING was not answered"))
        client.close()

    def test_a_backend_that_answers_no_ping_is_left(self):
        proxy = self.proxy([silent_h2], "h2=1", backend_http2_ping_us=50000,
                           ping_timeout_us=500000)
        client = self.open(proxy)
        self.assertIsNotNone(self.until(client, RST))
        end = self.last_end(proxy)
        self.assertEqual((end["by"], end["why"]), ("backend", "a PING was not answered"))
        self.assertTrue(any(f[0] == PING_FRAME for f in self.backends[0].requests))
        client.close()

    def test_a_connection_without_streams_is_not_pinged(self):
        proxy = self.proxy([silent_h2], "h2=1", http2_ping_us=20000,
                           idle_timeout_us=2000000)
        client = proxy.connect().send(PREFACE + h2(SETTINGS))
        kinds = []
        while (got := read_h2(client)) is not None:
            kinds.append(got[0])
        self.assertIn(GOAWAY, kinds)  # for idleness
        self.assertNotIn(PING_FRAME, kinds)
        client.close()

    def test_trailers_that_come_before_the_backend_is_there_are_kept(self):
        got = []

        def serve(client, backend):
            if client.head() is None:
                return
            got.append(client.until(b"0\r\n"))
            got.append(client.until(b"\r\n\r\n"))
            client.send("HTTP/1.1 204 No Content\r\n\r\n")
        proxy = self.proxy([serve])
        client = proxy.connect()
        client.send(PREFACE + h2(SETTINGS) + h2(HEADERS, END_HEADERS, 1, REQUEST)
                    + h2(DATA, 0, 1, b"hello")
                    + h2(HEADERS, END_HEADERS | END_STREAM, 1,
                         fields((b"x-sum", b"abc"), (b"x-none", b""))))
        self.assertIsNotNone(self.until(client, HEADERS))
        self.assertEqual(got[0], b"5\r\nhello\r\n0\r\n")
        self.assertEqual(got[1].lower(), b"x-sum: abc\r\nx-none: \r\n\r\n")
        client.close()

    def test_interim_answers_without_end_are_ended(self):
        def serve(client, backend):
            client.head()
            while True:
                client.send("HTTP/1.1 103 Early Hints\r\nLink: " + "x" * 1000 + "\r\n\r\n")
        for version in (1, 2):
            proxy = self.proxy([serve])
            if version == 1:
                client = proxy.connect().send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
                statuses = []
                while not statuses or statuses[-1] == 103:
                    statuses.append(client.head()[0])
                self.assertEqual(statuses[-1], 502)
                n = len(statuses)
            else:
                client = self.open(proxy)
                n = 0
                while (got := read_h2(client)) and n < 1000:  # its end is END_STREAM
                    n += got[0] == HEADERS
                    if got[0] == RST or (got[0] <= HEADERS and got[1] & END_STREAM):
                        break
            self.assertLess(n, 200)
            self.assertEqual(proxy.metric("bad_answers_total"), 1)
            client.close()

    def test_some_interim_answers_are_no_fault(self):
        def serve(client, backend):
            while client.head():
                for _ in range(50):
                    client.send("HTTP/1.1 102 Processing\r\n\r\n")
                client.send("HTTP/1.1 204 No Content\r\n\r\n")
        proxy = self.proxy([serve])
        client = proxy.connect()
        for _ in range(3):
            client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            self.assertEqual([client.head()[0] for _ in range(51)], [102] * 50 + [204])
        client.close()


class DeadPeers(Case):
    """A machine that is cut off: a network namespace whose link goes down."""

    made = 0  # a namespace's links go some time after it

    def setUp(self):
        DeadPeers.made += 1
        n = (os.getpid() + 3331 * DeadPeers.made) % 10000
        self.space, self.ours, self.theirs = f"ek{n}", f"eka{n}", f"ekb{n}"
        self.net = f"10.{200 + n % 50}.{n // 50 % 250}"
        for command in (f"netns add {self.space}",
                        f"link add {self.ours} type veth peer name {self.theirs}",
                        f"link set {self.theirs} netns {self.space}",
                        f"addr add {self.net}.1/30 dev {self.ours}",
                        f"link set {self.ours} up",
                        f"-n {self.space} addr add {self.net}.2/30 dev {self.theirs}",
                        f"-n {self.space} link set {self.theirs} up"):
            if command.startswith("netns"):
                self.addCleanup(self.ip, f"netns del {self.space}")
            if not self.ip(command):
                self.skipTest("no network namespaces here")

    def ip(self, command):
        try:
            return subprocess.run(["ip", *command.split()],
                                  capture_output=True).returncode == 0
        except OSError:
            return False

    def run_there(self, script, *words):
        process = subprocess.Popen(
            ["ip", "netns", "exec", self.space, sys.executable, "-c", script, *words],
            stdout=subprocess.PIPE, text=True)

        def end():
            process.kill()
            process.wait()
            process.stdout.close()
        self.addCleanup(end)
        return process

    def cut(self):
        self.assertTrue(self.ip(f"-n {self.space} link set {self.theirs} down"))

    def assert_found(self, proxy, side):
        self.assertTrue(wait_for(lambda: proxy.records("session_end")))
        end = self.last_end(proxy)
        self.assertEqual((end["by"], end["why"]), (side, "dead_peer"))

    def test_a_client_that_is_cut_off_is_found(self):
        proxy = self.proxy([Frames()], "listen=0.0.0.0:0", dead_peer_us=3000000)
        process = self.run_there(
            "import socket, sys\n"
            "s = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
            "s.sendall(sys.argv[3].encode())\n"
            "print(s.recv(12).decode(), flush=True)\n"
            "s.recv(1 << 20)\n"
            "s.recv(1)\n",
            f"{self.net}.1", str(proxy.port),
            "GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            "Sec-WebSocket-Version: 13\r\n\r\n")
        self.assertEqual(process.stdout.readline(), "HTTP/1.1 101\n")
        self.cut()
        self.assert_found(proxy, "client")

    def test_a_client_of_http_2_that_is_cut_off_is_found(self):
        proxy = self.proxy([silent_h2], "h2=1", "listen=0.0.0.0:0", dead_peer_us=3000000)
        process = self.run_there(
            "import socket, sys\n"
            "s = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
            "s.sendall(bytes.fromhex(sys.argv[3]))\n"
            "print(len(s.recv(1)), flush=True)\n"
            "while s.recv(65536):\n"
            "    pass\n",
            f"{self.net}.1", str(proxy.port),
            (PREFACE + h2(SETTINGS) + h2(HEADERS, END_HEADERS, 1, REQUEST)).hex())
        self.assertEqual(process.stdout.readline(), "1\n")
        self.assertTrue(wait_for(lambda: proxy.records("session_start")))
        self.cut()
        self.assert_found(proxy, "client")

    def test_a_backend_that_is_cut_off_is_found(self):
        process = self.run_there(
            "import base64, hashlib, socket\n"
            "l = socket.create_server(('0.0.0.0', 0))\n"
            "print(l.getsockname()[1], flush=True)\n"
            "kept = []\n"
            "while True:\n"
            "    s, _ = l.accept()\n"
            "    kept.append(s)\n"
            "    head = s.recv(65536)\n"
            "    if not head:\n"
            "        continue\n"
            "    at = head.lower().index(b'sec-websocket-key: ') + 19\n"
            "    key = head[at:head.index(b'\\r', at)]\n"
            "    key += b'258EAFA5-E914-47DA-95CA-C5AB0DC85B11'\n"
            "    s.sendall(b'HTTP/1.1 101 S\\r\\nUpgrade: websocket\\r\\n'\n"
            "              b'Connection: Upgrade\\r\\nSec-WebSocket-Accept: '\n"
            "              + base64.b64encode(hashlib.sha1(key).digest())\n"
            "              + b'\\r\\n\\r\\n')\n")
        port = int(process.stdout.readline())
        proxy = self.proxy_of([f"b={self.net}.2:{port}"], dead_peer_us=3000000)
        client = proxy.connect()
        self.assertEqual(client.upgrade()[0], 101)
        self.cut()
        self.assert_found(proxy, "backend")
        client.close()


class Names(Case):
    """Backends' names, asked for again by a resolver that reads a file."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.names = pathlib.Path(folder.name) / "names"

    def say(self, *addresses):
        """What the name x says from now on; written aside, since it may be read now."""
        other = self.names.with_suffix(".new")
        other.write_text("".join(f"x {a}\n" for a in addresses))
        other.rename(self.names)

    def at_both(self, serve_a, serve_b):
        """Backends on one port of 127.0.0.1 and 127.0.0.2."""
        for _ in range(20):
            a = Backend(serve_a)
            self.addCleanup(a.close)
            try:
                b = Backend(serve_b, port=a.port, host="127.0.0.2")
            except OSError:
                continue
            self.addCleanup(b.close)
            return a.port
        raise OSError("no port is free on both")

    def named(self, port, *others, **settings):
        settings = {"resolve_interval_us": 20000, "health_interval_us": 50000,
                    "queue_timeout_us": 0, **settings}
        return self.proxy_of([f"x=x:{port}", *others], f"names={self.names}", **settings)

    def ask(self, proxy):
        client = proxy.connect()
        status, _, body = client.get()
        client.close()
        return status, body.split(b"|")[0].decode()

    def test_a_name_that_moves_takes_new_sessions_along_and_no_old_ones(self):
        self.say("127.0.0.1")
        port = self.at_both(Frames(says=frame(TEXT, b"a")), Frames(says=frame(TEXT, b"b")))
        proxy = self.named(port)
        old = proxy.connect()
        old.upgrade()
        self.assertEqual(read_frame(old)[1], b"a")
        self.say("127.0.0.2")
        self.assertTrue(wait_for(lambda: proxy.metric("address_changes_total") == 1))
        new = proxy.connect()
        new.upgrade()
        self.assertEqual(read_frame(new)[1], b"b")
        old.send(frame(TEXT, b"still at a", MASK))
        self.assertEqual(read_frame(old)[1], b"still at a")
        old.close()
        new.close()

    def test_a_pooled_connection_to_the_old_address_is_not_used_again(self):
        self.say("127.0.0.1")
        proxy = self.named(self.at_both(echo_http("a"), echo_http("b")))
        self.assertEqual(self.ask(proxy), (200, "a"))
        self.say("127.0.0.2")
        self.assertTrue(wait_for(lambda: proxy.metric("address_changes_total") == 1))
        self.assertEqual(self.ask(proxy), (200, "b"))

    def test_a_failure_keeps_the_last_addresses_and_is_counted(self):
        self.say("127.0.0.1")
        proxy = self.named(self.at_both(echo_http("a"), echo_http("b")))
        self.say()
        self.assertTrue(wait_for(lambda: proxy.metric("resolve_failures_total") > 2))
        self.assertEqual(self.ask(proxy), (200, "a"))
        told = proxy.records("backend_unresolved")
        self.assertEqual([(t["backend"], t["kept"]) for t in told], [("x", 1)])
        self.say("127.0.0.2")
        self.assertTrue(wait_for(lambda: self.ask(proxy) == (200, "b")))

    def test_a_name_that_says_nothing_at_start_is_a_backend_that_is_down(self):
        self.say()
        other = Backend(echo_http("other"))
        self.addCleanup(other.close)
        port = self.at_both(echo_http("a"), echo_http("b"))
        proxy = self.named(port, f"o=127.0.0.1:{other.port}")
        self.assertFalse(proxy.backends()["x"]["up"])
        for _ in range(5):
            self.assertEqual(self.ask(proxy), (200, "other"))
        self.assertEqual(proxy.metric("connect_failures_total"), 0)
        self.say("127.0.0.1")
        self.assertTrue(wait_for(lambda: proxy.backends()["x"]["up"]))
        seen = set()  # by draws
        self.assertTrue(wait_for(lambda: seen.add(self.ask(proxy)) or len(seen) == 2))
        self.assertEqual(seen, {(200, "a"), (200, "other")})

    def test_an_address_that_refuses_is_passed_over(self):
        self.say("127.0.0.3", "127.0.0.2")
        port = self.at_both(echo_http("a"), echo_http("b"))
        proxy = self.named(port, health_interval_us=60000000)
        for _ in range(5):
            self.assertEqual(self.ask(proxy), (200, "b"))
        self.assertLessEqual(proxy.metric("connect_failures_total"), 1)
        self.assertTrue(proxy.backends()["x"]["up"])

    def test_a_resolver_that_hangs_holds_up_nothing(self):
        self.say("127.0.0.1")
        proxy = self.named(self.at_both(echo_http("a"), echo_http("b")))
        self.say("wait")
        time.sleep(0.3)
        for _ in range(5):
            self.assertEqual(self.ask(proxy), (200, "a"))
        self.assertTrue(proxy.backends()["x"]["up"])
        # And the proxy ends while it hangs: the test's end says so.

    def test_a_name_that_flaps_loses_no_session(self):
        self.say("127.0.0.1")
        proxy = self.named(self.at_both(echo_http("a"), echo_http("b")))
        seen, turn = set(), 0
        while len(seen) < 2 or proxy.metric("address_changes_total") < 6:
            turn += 1
            self.say(*[("127.0.0.1",), ("127.0.0.2",), ("127.0.0.2", "127.0.0.1")]
                     [turn % 3])
            for _ in range(5):
                status, name = self.ask(proxy)
                self.assertEqual(status, 200)
                seen.add(name)

    def test_a_stop_ends_while_names_flap_and_a_client_asks_nothing(self):
        self.say("127.0.0.1")
        port = self.at_both(echo_http("a"), echo_http("b"))
        proxy = Proxy([f"x=x:{port}"], f"names={self.names}", resolve_interval_us=20000)
        self.addCleanup(proxy.log.close)
        self.addCleanup(proxy.stop, signal.SIGKILL)
        silent = proxy.connect()
        self.addCleanup(silent.close)
        self.assertTrue(wait_for(lambda: proxy.metric("connections_total") == 1))
        proxy.process.send_signal(signal.SIGTERM)
        end, turn = time.monotonic() + PATIENCE_S, 0
        while proxy.process.poll() is None and time.monotonic() < end:
            turn += 1
            self.say(f"127.0.0.{1 + turn % 2}")
            time.sleep(0.2)
        self.assertEqual(proxy.process.poll(), 0, proxy.output())

    def test_a_check_warns_of_names_that_nobody_knows(self):
        keel = os.environ.get("KEEL")
        if not keel:
            self.skipTest("KEEL is not set")
        name = "a" * 64 + ".test"  # no label is so long: no server is asked
        done = subprocess.run([keel, "route", "--check", "--backend", f"b={name}:1"],
                              capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0)
        self.assertIn(f"warning: backend 'b': {name}:1: ", done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
