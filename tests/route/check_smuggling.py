"""Requests that two parsers could read in two ways, by HTTP/1.1 and by HTTP/2 towards a
backend of HTTP/1.1: refused and counted, nothing of them reaches a backend, and another
client's requests go on. What is let through means to an independent parser (h11) what it
means to the proxy."""
import pathlib
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "net"))
from proxykit import KEY, Backend, Proxy, answer, keelkit, need_probe, wait_for  # noqa: E402

try:
    import h11
    import hpack
except ImportError:
    keelkit.skip("the Python packages h11 and hpack are not installed")
from check_h2 import PREFACE, SETTINGS, Raw, frame  # noqa: E402

OTHER = "GET /other HTTP/1.1"


class Recorder:
    """Answers by h11 what it is asked, and keeps what it understood."""

    def __init__(self):
        self.seen, self.lock = [], threading.Lock()

    def __call__(self, client, backend):
        conn = h11.Connection(h11.SERVER)
        body, request, data = b"", None, b""
        while True:
            try:
                event = conn.next_event()
            except h11.RemoteProtocolError as e:
                if data:  # a session that was ended below its body ends like that, too
                    self.seen.append((f"not understood: {e}", {}, b""))
                return
            if event is h11.NEED_DATA:
                data = client.sock.recv(65536)
                conn.receive_data(data)
            elif isinstance(event, h11.Request):
                request, body = event, b""
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                line = f"{request.method.decode()} {request.target.decode()} HTTP/1.1"
                with self.lock:
                    self.seen.append((line, dict(request.headers), body))
                client.send(conn.send(h11.Response(
                    status_code=200, headers=[("content-length", str(len(body)))])) +
                    conn.send(h11.Data(data=body)) + conn.send(h11.EndOfMessage()))
                if conn.our_state is h11.MUST_CLOSE:
                    return
                conn.start_next_cycle()
            elif event is h11.PAUSED or isinstance(event, h11.ConnectionClosed):
                return


class Case(unittest.TestCase):
    def start(self, **settings):
        self.record = Recorder()
        backend = Backend(self.record)
        self.addCleanup(backend.close)
        self.proxy = Proxy([backend.port], logs_sessions=0, **settings)

        def end():
            with self.proxy:
                self.assertTrue(wait_for(lambda: self.proxy.metric("placements") == 0))
        self.addCleanup(end)
        self.other = self.proxy.connect()
        self.addCleanup(self.other.close)

    def assert_others_unharmed(self):
        self.assertEqual(self.other.get("/other")[0], 200)
        passed = [s[0] for s in self.record.seen if s[0] != OTHER]
        self.record.seen.clear()
        self.assertEqual(passed, [])

    def bad(self):
        return sum(self.proxy.metric(name) for name in (
            "bad_requests_total", 'h2_malformed_total{side="client"}',
            'h2_protocol_errors_total{side="client"}'))


def post(*fields, body="", first="POST / HTTP/1.1", host="Host: h"):
    return "\r\n".join([first, *([host] if host else []), *fields]) + "\r\n\r\n" + body


CHUNKED = "Transfer-Encoding: chunked"
NEXT = "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n"

HTTP1 = {
    # RFC 9112 6: lengths and codings
    "length and coding": post("Content-Length: 4", CHUNKED, body="0\r\n\r\n" + NEXT),
    "coding and length": post(CHUNKED, "Content-Length: 4", body="0\r\n\r\n" + NEXT),
    "lengths that differ": post("Content-Length: 0", f"Content-Length: {len(NEXT)}",
                                body=NEXT),
    "lengths by case": post("content-length: 0", "CONTENT-LENGTH: 5", body="12345"),
    "a list of lengths": post("Content-Length: 5, 5", body="12345"),
    "a length and nothing": post("Content-Length: 5,", body="12345"),
    "an empty length": post("Content-Length:"),
    "a hexadecimal length": post("Content-Length: 0x5", body="12345"),
    "a length below 0": post("Content-Length: -1"),
    "a length with a sign": post("Content-Length: +5", body="12345"),
    "a length with a space": post("Content-Length: 1 0", body="1234567890"),
    "a length in quotes": post('Content-Length: "5"', body="12345"),
    "a length over 64 bits": post("Content-Length: 18446744073709551621", body="12345"),
    "a length and a vertical tab": post("Content-Length: \x0b5", body="12345"),
    "an unknown coding": post("Transfer-Encoding: xchunked", body="0\r\n\r\n"),
    "gzip and chunked": post("Transfer-Encoding: gzip, chunked", body="0\r\n\r\n"),
    "chunked, then identity": post("Transfer-Encoding: chunked, identity", body=NEXT),
    "identity": post("Transfer-Encoding: identity", "Content-Length: 5", body="12345"),
    "a coding with a parameter": post("Transfer-Encoding: chunked;q=1", body=NEXT),
    "a coding in quotes": post('Transfer-Encoding: "chunked"', body=NEXT),
    "a coding and a comma": post("Transfer-Encoding: ,chunked", body="0\r\n\r\n"),
    "a coding behind a form feed": post("Transfer-Encoding: \x0cchunked", body=NEXT),
    "a coding, NUL": post("Transfer-Encoding: chunked\0", body=NEXT),
    "two codings": post(CHUNKED, "Transfer-Encoding: identity", body=NEXT),
    "two codings alike": post(CHUNKED, CHUNKED, body="0\r\n\r\n"),
    "a coding of HTTP/1.0": post(CHUNKED, first="POST / HTTP/1.0", body="0\r\n\r\n"),
    # RFC 9112 2.2, 5: lines and names
    "folded": post("X: a\r\n b"),
    "a folded coding": post("Transfer-Encoding:\r\n chunked", body="0\r\n\r\n" + NEXT),
    "a fold before any field": "GET / HTTP/1.1\r\n Host: h\r\nHost: h\r\n\r\n",
    "bare LF": "GET / HTTP/1.1\nHost: h\n\n",
    "one bare LF": post("X: a\nContent-Length: 5", body="12345"),
    "LF CR": "GET / HTTP/1.1\r\nHost: h\r\nX: a\n\r\n\r\n",
    "bare CR in a value": post("X: a\rContent-Length: 5"),
    "bare CR in a name": post("X\r: a"),
    "CR CR LF": "GET / HTTP/1.1\r\r\nHost: h\r\n\r\n",
    "CR behind a value": post("X: a\r"),
    "space before the colon": post("Content-Length : 5", body="12345"),
    "tab before the colon": post("Content-Length\t: 5", body="12345"),
    "space before a name": post("X: a", " Content-Length: 5"),
    "a space in a name": post("Content Length: 5"),
    "NUL in a name": post("Content-Length\0: 5"),
    "NUL before a name": post("\0Content-Length: 5"),
    "NUL in a value": post("X: a\0b"),
    "DEL in a value": post("X: a\x7fb"),
    "0x80 in a name": post("Transfer\x80Encoding: chunked", body=NEXT),
    "0xff in a name": post("X\xff: 1"),
    "a soft hyphen in a name": post("Content\xadLength: 5"),
    "underscored length": post("Content_Length: 5", body="12345"),
    "underscored coding": post("Transfer_Encoding: chunked", body="0\r\n\r\n"),
    "half underscored": post("TRANSFER_ENCODING: chunked", body="0\r\n\r\n"),
    "brackets in a name": post("(X): 1"),
    "no name": post(": 5"),
    "no colon": post("Content-Length"),
    # RFC 9112 3: the request line, Host, targets
    "no host": post(host=""),
    "two hosts": post("Host: g"),
    "two hosts alike": post("HOST: h"),
    "a folded host": post(host="Host: h\r\n g"),
    "a host with a space": post(host="Host: h g"),
    "a host with a comma": post(host="Host: h,g"),
    "a host with a path": post(host="Host: h/g"),
    "a host with a user": post(host="Host: a@h"),
    "a host with 0x80": post(host="Host: h\x80"),
    "an empty authority": post(first="GET http:///x HTTP/1.1"),
    "an authority with a user": post(first="GET http://a@h/ HTTP/1.1"),
    "an authority with a backslash": post(first="GET http://h\\@g/ HTTP/1.1"),
    "an absolute target without a host": post(first="GET http://h/ HTTP/1.1", host=""),
    "an absolute target and two hosts": post("Host: h", first="GET http://h/ HTTP/1.1"),
    "an absolute target and a bad host": post(first="GET http://h/ HTTP/1.1",
                                              host="Host: a/b c"),
    "another scheme": post(first="GET ftp://h/ HTTP/1.1"),
    "a target of a scheme's own": post(first="GET h:80 HTTP/1.1"),
    "a relative target": post(first="GET admin HTTP/1.1"),
    "a fragment": post(first="GET /a#b HTTP/1.1"),
    "a star of GET": post(first="GET * HTTP/1.1"),
    "a space in the target": post(first="GET /a b HTTP/1.1"),
    "a tab in the target": post(first="GET /a\tb HTTP/1.1"),
    "a target with 0x80": post(first="GET /a\x80 HTTP/1.1"),
    "a target with NUL": post(first="GET /a\0 HTTP/1.1"),
    "two spaces": post(first="GET  / HTTP/1.1"),
    "a tab for a space": post(first="GET\t/ HTTP/1.1"),
    "a space behind the version": post(first="GET / HTTP/1.1 "),
    "a space before the method": post(first=" GET / HTTP/1.1"),
    "a method with a colon": post(first="GET: / HTTP/1.1"),
    "a version of three digits": post(first="GET / HTTP/1.10"),
    "a version with a zero": post(first="GET / HTTP/01.1"),
    "HTTP/0.9": "GET /\r\n\r\n",
    "HTTP/2 in a line": post(first="GET / HTTP/2.0"),
    "lower case": post(first="GET / http/1.1"),
    "another protocol": post(first="GET / ICY/1.1"),
    "CONNECT": post(first="CONNECT h:443 HTTP/1.1"),
    # Upgrades
    "a WebSocket with a body": post(
        "Connection: Upgrade", "Upgrade: websocket", f"Sec-WebSocket-Key: {KEY}",
        "Sec-WebSocket-Version: 13", f"Content-Length: {len(NEXT)}",
        first="GET / HTTP/1.1", body=NEXT),
    "a WebSocket with chunks": post(
        "Connection: Upgrade", "Upgrade: websocket", f"Sec-WebSocket-Key: {KEY}",
        "Sec-WebSocket-Version: 13", CHUNKED, first="GET / HTTP/1.1", body=NEXT),
    "a WebSocket with two keys": post(
        "Connection: Upgrade", "Upgrade: websocket", f"Sec-WebSocket-Key: {KEY}",
        f"Sec-WebSocket-Key: {KEY}", "Sec-WebSocket-Version: 13", first="GET / HTTP/1.1"),
    "a WebSocket without a key": post(
        "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
        first="GET / HTTP/1.1"),
    "a WebSocket with a bad key": post(
        "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: abc",
        "Sec-WebSocket-Version: 13", first="GET / HTTP/1.1"),
    "a WebSocket without a version": post(
        "Connection: Upgrade", "Upgrade: websocket", f"Sec-WebSocket-Key: {KEY}",
        first="GET / HTTP/1.1"),
    "a WebSocket with two versions": post(
        "Connection: Upgrade", "Upgrade: websocket", f"Sec-WebSocket-Key: {KEY}",
        "Sec-WebSocket-Version: 13", "Sec-WebSocket-Version: 8", first="GET / HTTP/1.1"),
}

CHUNKS = {
    "an extension": "5;a=b\r\n12345\r\n0\r\n\r\n",
    "an extension without a name": "5;\r\n12345\r\n0\r\n\r\n",
    "an extension with LF": "5;\n12345\r\n0\r\n\r\n",
    "a quoted extension": '5;a="\r\n12345\r\n0\r\n\r\n',
    "a space behind a size": "5 \r\n12345\r\n0\r\n\r\n",
    "a tab before a size": "\t5\r\n12345\r\n0\r\n\r\n",
    "a size below 0": "-5\r\n12345\r\n0\r\n\r\n",
    "a size with a sign": "+5\r\n12345\r\n0\r\n\r\n",
    "a size with 0x": "0x5\r\n12345\r\n0\r\n\r\n",
    "a size with an underscore": "0_5\r\n12345\r\n0\r\n\r\n",
    "a size over 64 bits": "10000000000000005\r\n12345\r\n0\r\n\r\n",
    "an empty size": "\r\n0\r\n\r\n",
    "bare LF behind a size": "5\n12345\r\n0\r\n\r\n",
    "bare LF behind a chunk": "5\r\n12345\n0\r\n\r\n",
    "bare CR behind a size": "5\r12345\r\n0\r\n\r\n",
    "CR CR LF behind a size": "5\r\r\n12345\r\n0\r\n\r\n",
    "a chunk too long": "5\r\n123456\r\n0\r\n\r\n",
    "bare LF behind the last": "0\n\r\n",
    "bare LF at the end": "0\r\n\n",
    "a trailer without a colon": "0\r\nX\r\n\r\n",
    "a folded trailer": "0\r\nX: a\r\n b\r\n\r\n",
    "a trailer with NUL": "0\r\nX: \0\r\n\r\n",
    "a trailer with a bare LF": "0\r\nX: a\nY: b\r\n\r\n",
    "a trailer's name with a space": "0\r\nX : a\r\n\r\n",
}


class Http1(Case):
    def test_heads_of_two_readings_are_refused_and_counted(self):
        self.start()
        for what, text in HTTP1.items():
            with self.subTest(what):
                before = self.bad()
                client = self.proxy.connect().send(text.encode("latin-1"))
                status, fields = client.head()
                self.assertIn(status, (400, 413, 501, 505))
                client.body(fields)
                self.assertTrue(client.is_closed())
                client.close()
                self.assertEqual(self.bad(), before + 1)
                self.assert_others_unharmed()

    def test_chunks_of_two_readings_end_their_session_and_are_counted(self):
        self.start()
        for what, text in CHUNKS.items():
            with self.subTest(what):
                before = self.bad()
                client = self.proxy.connect().send(post(CHUNKED, body=text + NEXT))
                self.assertNotIn(b" 200 ", client_rest(client))
                client.close()
                self.assertEqual(self.bad(), before + 1)
                self.assert_others_unharmed()

    def test_what_is_let_through_is_read_by_another_parser_alike(self):
        """(request, target, Host, body) as h11 behind the proxy must see them."""
        for what, text, line, host, body in (
                ("a body that is a request", post(f"Content-Length: {len(NEXT)}", body=NEXT),
                 "POST /", "h", NEXT),
                ("a body of GET", post("Content-Length: 5", body="12345",
                                       first="GET / HTTP/1.1"), "GET /", "h", "12345"),
                ("zeros before a length", post("Content-Length: 0005", body="12345"),
                 "POST /", "h", "12345"),
                ("spaces around a length", post("Content-Length: \t5 ", body="12345"),
                 "POST /", "h", "12345"),
                ("a coding's case", post("transfer-encoding: CHUNKED",
                                         body="5\r\n12345\r\n0\r\n\r\n"),
                 "POST /", "h", "12345"),
                ("zeros before a size", post(CHUNKED, body="00000005\r\n12345\r\n0000\r\n\r\n"),
                 "POST /", "h", "12345"),
                ("a trailer that frames", post(
                    CHUNKED, body="1\r\nx\r\n0\r\nContent-Length: 99\r\nHost: g\r\n\r\n"),
                 "POST /", "h", "x"),
                ("a target with an authority", post(first="GET http://g:8/x?y HTTP/1.1"),
                 "GET /x?y", "g:8", ""),
                ("an authority and a query", post(first="GET http://g?y HTTP/1.1"),
                 None, None, None),
                ("two slashes", post(first="GET //g/x HTTP/1.1"), "GET //g/x", "h", ""),
                ("Connection names the framing", post(
                    "Connection: close, content-length, transfer-encoding, host",
                    "Content-Length: 5", body="12345"), "POST /", "h", "12345"),
                ("h2c", post("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c",
                             "HTTP2-Settings: AAMAAABkAAQAAP__", first="GET / HTTP/1.1"),
                 "GET /", "h", ""),
                ("Upgrade without Connection", post(
                    "Upgrade: websocket", f"Sec-WebSocket-Key: {KEY}",
                    "Sec-WebSocket-Version: 13", first="GET / HTTP/1.1"), "GET /", "h", ""),
                ("Connection without Upgrade", post(
                    "Connection: Upgrade", f"Sec-WebSocket-Key: {KEY}",
                    "Sec-WebSocket-Version: 13", first="GET / HTTP/1.1"), "GET /", "h", ""),
                ("a WebSocket by POST", post(
                    "Connection: Upgrade", "Upgrade: websocket", "Content-Length: 5",
                    f"Sec-WebSocket-Key: {KEY}", "Sec-WebSocket-Version: 13",
                    body="12345"), "POST /", "h", "12345"),
                ("a value with 0x80", post("X: \x80\xff", first="GET / HTTP/1.1"),
                 "GET /", "h", ""),
                ("an empty line before", "\r\n" + post(first="GET / HTTP/1.1"),
                 "GET /", "h", "")):
            with self.subTest(what):
                self.start()
                client = self.proxy.connect().send(text.encode("latin-1"))
                status, fields = client.head()
                if line is None:
                    self.assertEqual((status, self.record.seen), (400, []))
                else:
                    self.assertEqual(status, 200)
                    got, headers, got_body = self.record.seen[0]
                    self.assertEqual((got, headers[b"host"].decode(), got_body.decode()),
                                     (line + " HTTP/1.1", host, body))
                    for gone in (b"connection", b"upgrade", b"http2-settings",
                                 b"sec-websocket-key"):
                        self.assertNotIn(gone, headers)
                    self.assertEqual(len(self.record.seen), 1)
                client.close()
                self.doCleanups()

    def test_a_preface_behind_an_upgrade_to_h2c_opens_nothing(self):
        self.start()
        client = self.proxy.connect().send(
            post("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c",
                 "HTTP2-Settings: AAMAAABkAAQAAP__", first="GET /one HTTP/1.1").encode() +
            PREFACE + SETTINGS + frame(1, 5, 1, b"\x82\x86\x84\x01\x01h"))
        self.assertEqual(client.head()[0], 200)
        self.assertIn(b" 505 ", client.rest())
        self.assertEqual([s[0] for s in self.record.seen], ["GET /one HTTP/1.1"])
        client.close()

    def test_bytes_behind_an_answer_reach_nobody(self):
        """A backend that answers twice has its connection dropped, not kept."""
        def serve(client, backend):
            while client.head():
                client.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood"
                            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
        backend = Backend(serve)
        self.addCleanup(backend.close)
        with Proxy([backend.port], logs_sessions=0) as proxy:
            for _ in range(20):
                client = proxy.connect()
                self.assertEqual(client.get()[2], b"good")
                self.assertEqual(client.get()[2], b"good")
                client.close()

    def test_a_body_that_nobody_read_is_no_request(self):
        """The backend answers before the body: what follows is not read as a head."""
        def serve(client, backend):
            head = client.head()
            if head:
                backend.note(head)
                answer(client, "no", status="417 Expectation Failed",
                       extra="Connection: close\r\n")
        backend = Backend(serve)
        self.addCleanup(backend.close)
        with Proxy([backend.port], logs_sessions=0) as proxy:
            client = proxy.connect().send(post("Expect: 100-continue",
                                               f"Content-Length: {len(NEXT)}"))
            self.assertEqual(client.head()[0], 417)
            try:
                client.send(NEXT)
                self.assertNotIn(b"HTTP/1.1", client.rest()[2:])
            except OSError:
                pass
            client.close()
            self.assertEqual([h[0] for h in backend.requests], ["POST / HTTP/1.1"])


def client_rest(client):
    try:
        return client.rest()
    except ConnectionError:
        return client.buffer


GOOD = [(":method", "GET"), (":scheme", "http"), (":authority", "h"), (":path", "/")]


def but(*changes, add=()):
    """GOOD with fields replaced by name (None: left out), and others behind."""
    change = dict(changes)
    return [(n, change.get(n, v)) for n, v in GOOD
            if change.get(n, v) is not None] + list(add)


HTTP2 = {
    "LF in a value": but(add=[("x", "a\nb: c")]),
    "CR LF in a value": but(add=[("x", f"a\r\n\r\n{NEXT}")]),
    "NUL in a value": but(add=[("x", "a\0b")]),
    "CR behind a value": but(add=[("x", "a\r")]),
    "LF in a name": but(add=[("x: a\ny", "b")]),
    "a colon in a name": but(add=[("x: a", "b")]),
    "a colon behind a name": but(add=[("content-length:", "5")]),
    "a space in a name": but(add=[("content-length ", "5")]),
    "an upper-case name": but(add=[("X-A", "b")]),
    "an empty name": but(add=[("", "b")]),
    "0x80 in a name": but(add=[("x\x80", "b")]),
    "NUL in a name": but(add=[("x\0", "b")]),
    "a path with a space": but((":path", "/a b")),
    "a path that is a request": but((":path", f"/ HTTP/1.1\r\nHost: h\r\n\r\n{NEXT}")),
    "a path with a tab": but((":path", "/a\tb")),
    "a path with 0x80": but((":path", "/\x80")),
    "a path with NUL": but((":path", "/a\0")),
    "a path with a fragment": but((":path", "/a#b")),
    "a path without a slash": but((":path", "a")),
    "a path that is a URL": but((":path", "http://g/")),
    "an empty path": but((":path", "")),
    "a star of GET": but((":path", "*")),
    "no path": but((":path", None)),
    "two paths": but(add=[(":path", "/b")]),
    "no method": but((":method", None)),
    "a method that is a line": but((":method", "GET /smuggled HTTP/1.1\r\nX:")),
    "a method with a space": but((":method", "GET /x")),
    "an empty method": but((":method", "")),
    "no scheme": but((":scheme", None)),
    "a scheme that is a URL": but((":scheme", "http://g/?")),
    "an authority with CR LF": but((":authority", "h\r\nX: y")),
    "an authority with a space": but((":authority", "h g")),
    "an authority with a user": but((":authority", "a@h")),
    "an authority with a path": but((":authority", "h/x")),
    "an authority with a comma": but((":authority", "h,g")),
    "no authority and no host": but((":authority", None)),
    "another host": but(add=[("host", "g")]),
    "two hosts": but((":authority", None), add=[("host", "h"), ("host", "g")]),
    "a host with a path": but((":authority", None), add=[("host", "h/x")]),
    "connection": but(add=[("connection", "close")]),
    "keep-alive": but(add=[("keep-alive", "1")]),
    "proxy-connection": but(add=[("proxy-connection", "x")]),
    "transfer-encoding": but((":method", "POST"), add=[("transfer-encoding", "chunked")]),
    "upgrade": but(add=[("upgrade", "websocket")]),
    "te that is not trailers": but(add=[("te", "gzip")]),
    "te, trailers and more": but(add=[("te", "trailers, gzip")]),
    "an underscored length": but(add=[("content_length", "5")]),
    "an underscored coding": but(add=[("transfer_encoding", "chunked")]),
    "a length without a body": but(add=[("content-length", "5")]),
    "two lengths": but(add=[("content-length", "0"), ("content-length", "5")]),
    "a list of lengths": but(add=[("content-length", "0, 0")]),
    "a length with a sign": but(add=[("content-length", "+0")]),
    "an empty length": but(add=[("content-length", "")]),
    "a pseudo field behind": but((":path", None), add=[("x", "y"), (":path", "/")]),
    "a pseudo field of answers": but(add=[(":status", "200")]),
    "an unknown pseudo field": but(add=[(":x", "y")]),
    "a protocol without CONNECT": but(add=[(":protocol", "websocket")]),
}

# The request's body or trailers.
HTTP2_BODY = {
    "more than its length": (("content-length", "3"), frame(0, 1, 1, b"12345")),
    "less than its length": (("content-length", "9"), frame(0, 1, 1, b"12345")),
    "a length of 0 and a body": (("content-length", "0"), frame(0, 1, 1, NEXT.encode())),
}
HTTP2_TRAILERS = {
    "a pseudo field": [(":path", "/smuggled")],
    "a coding": [("transfer-encoding", "chunked")],
    "a length": [("content-length", "99")],
    "connection": [("connection", "close")],
    "CR LF": [("x", f"a\r\n\r\n{NEXT}")],
    "an upper-case name": [("X", "y")],
}


def encode(fields):
    encoder = hpack.Encoder()
    return encoder.encode([(n.encode("latin-1"), v.encode("latin-1")) for n, v in fields],
                          huffman=False)


class Http2(Case):
    def refused(self, data):
        """True: the stream was refused, and the refusal counted; others go on."""
        before = self.bad()
        raw = Raw(self.proxy.port)
        raw.send(data)
        last = raw.frames(lambda f: f[2] == 1 and f[0] in (1, 3) or f[0] == 7)[-1]
        raw.sock.close()
        if last[0] == 1:
            status = hpack.Decoder().decode(last[3])[0][1]
            self.assertIn(status, ("400", "501"))
        else:
            self.assertNotEqual(int.from_bytes(last[3][-4:] if last[0] == 3 else
                                               last[3][4:8], "big"), 0)
        self.assertTrue(wait_for(lambda: self.bad() > before), "it was not counted")
        self.assert_others_unharmed()

    def test_heads_that_http_1_would_read_otherwise_are_refused_and_counted(self):
        self.start()
        for what, fields in HTTP2.items():
            with self.subTest(what):
                self.refused(frame(1, 5, 1, encode(fields)))

    def test_bodies_that_contradict_their_length_are_refused_and_counted(self):
        self.start()
        for what, (length, data) in HTTP2_BODY.items():
            with self.subTest(what):
                self.refused(frame(1, 4, 1, encode(but((":method", "POST"), add=[length])))
                             + data)

    def test_trailers_that_are_none_are_refused_and_counted(self):
        self.start()
        for what, fields in HTTP2_TRAILERS.items():
            with self.subTest(what):
                self.refused(frame(1, 4, 1, encode(but((":method", "POST")))) +
                             frame(0, 0, 1, b"body") + frame(1, 5, 1, encode(fields)))

    def test_what_is_let_through_is_read_by_another_parser_alike(self):
        for what, fields, data, line, host, body in (
                ("a body that is a request", but((":method", "POST")),
                 frame(0, 1, 1, NEXT.encode()), "POST /", "h", NEXT),
                ("a body with its length",
                 but((":method", "POST"), add=[("content-length", str(len(NEXT)))]),
                 frame(0, 1, 1, NEXT.encode()), "POST /", "h", NEXT),
                ("a body of GET", but(), frame(0, 1, 1, b"12345"), "GET /", "h", "12345"),
                ("the same host again", but(add=[("host", "h")]), b"", "GET /", "h", ""),
                ("host alone", but((":authority", None), add=[("host", "g")]), b"",
                 "GET /", "g", ""),
                ("a star of OPTIONS", but((":method", "OPTIONS"), (":path", "*")), b"",
                 "OPTIONS *", "h", ""),
                ("te: trailers", but(add=[("te", "trailers")]), b"", "GET /", "h", ""),
                ("cookies in pieces", but(add=[("cookie", "a=1"), ("cookie", "b=2")]), b"",
                 "GET /", "h", ""),
                ("trailers", but((":method", "POST")),
                 frame(0, 0, 1, b"x") + frame(1, 5, 1, encode(
                     [("x-t", "1")])),
                 "POST /", "h", "x")):
            with self.subTest(what):
                self.start()
                raw = Raw(self.proxy.port)
                raw.send(frame(1, 4 if data else 5, 1, encode(fields)) + data)
                last = raw.frames(lambda f: f[2] == 1 and f[0] in (1, 3) or f[0] == 7)[-1]
                self.assertEqual((last[0], last[3][:1]), (1, b"\x88"))
                got, headers, got_body = self.record.seen[0]
                self.assertEqual((got, headers[b"host"].decode(), got_body.decode()),
                                 (line + " HTTP/1.1", host, body))
                if what == "cookies in pieces":
                    self.assertEqual(headers[b"cookie"], b"a=1; b=2")
                raw.sock.close()
                self.assertEqual(len(self.record.seen), 1)
                self.doCleanups()

    def test_answers_of_http_2_that_http_1_would_read_otherwise_are_a_502(self):
        for what, fields in {
                "LF in a value": [(":status", "200"), ("x", "a\nb: c")],
                "CR LF in a value": [(":status", "200"), ("x", "a\r\n\r\nHTTP/1.1 200 OK")],
                "a colon in a name": [(":status", "200"), ("x: y", "z")],
                "an upper-case name": [(":status", "200"), ("X", "z")],
                "a coding": [(":status", "200"), ("transfer-encoding", "chunked")],
                "connection": [(":status", "200"), ("connection", "close")],
                "two lengths": [(":status", "200"), ("content-length", "0"),
                                ("content-length", "5")],
                "no status": [("x", "y")],
                "two statuses": [(":status", "200"), (":status", "204")],
                "a status of four digits": [(":status", "2000")],
                "a status that is a line": [(":status", "200 OK\r\nX: y")],
                "101": [(":status", "101")],
                "a pseudo field of requests": [(":status", "200"), (":path", "/")]}.items():
            with self.subTest(what):
                def serve(client, backend, block=encode(fields)):
                    if len(client.exactly(24)) < 24:
                        return
                    client.send(frame(4))
                    while len(head := client.exactly(9)) == 9:
                        client.exactly(int.from_bytes(head[:3], "big"))
                        if head[3] == 1:
                            client.send(frame(1, 5, int.from_bytes(head[5:9], "big"), block))
                backend = Backend(serve)
                self.addCleanup(backend.close)
                with Proxy([backend.port], "h2=1", logs_sessions=0) as proxy:
                    client = proxy.connect()
                    status, got, _ = client.get()
                    self.assertEqual(status, 502)
                    self.assertNotIn("x", got)
                    client.close()
                    self.assertTrue(wait_for(lambda: proxy.metric("placements") == 0))


if __name__ == "__main__":
    need_probe()
    unittest.main(warnings="ignore")
