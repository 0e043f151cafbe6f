"""RFC 9113 rule by rule, and HPACK (RFC 7541): a table of what a client sends and what must
come of it, against keel route in front of a backend and against keel serve's HTTP/2. The
rules are those that h2spec looks at, written anew; each row names its section.

What must come:  OK          the request is answered
                 ALIVE       nothing happens: a PING is answered
                 STREAM(c)   RST_STREAM with code c (or the connection ends with c)
                 MALFORMED   STREAM(PROTOCOL_ERROR), or 400 (8.1.1 allows it)
                 CONN(c)     GOAWAY with code c and the end
A function is called with the row's connection and checks by itself.
"""
import pathlib
import struct
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "route"))
import keelkit  # noqa: E402

try:
    import hpack
except ImportError:
    keelkit.skip("the Python package hpack is not installed")
from check_h2 import PREFACE, Probe, Raw, frame  # noqa: E402
from proxykit import Proxy, need_probe  # noqa: E402

TINY = pathlib.Path(__file__).resolve().parents[1] / "lm/golden/llama.gguf"
NO, PROTOCOL, INTERNAL, FLOW, TIMEOUT, CLOSED, SIZE, REFUSED, CANCEL, COMPRESSION = range(10)
DATA, HEADERS, PRIORITY, RST, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END_STREAM, END_HEADERS, PADDED, PRIO, ACK = 1, 4, 8, 0x20, 1
OK, ALIVE, MALFORMED = "OK", "ALIVE", "MALFORMED"


def CONN(*codes):
    return "CONN", codes


def STREAM(*codes):
    return "STREAM", codes


def u32(n):
    return struct.pack(">I", n)


def setting(key, value):
    return struct.pack(">HI", key, value)


class Target:
    """Where it goes, and how a request of it begins."""

    def __init__(self, port, path, headers):
        self.port = port
        self.fields = [(":method", "POST"), (":scheme", "http"), (":path", path),
                       (":authority", "h"), *headers]

    def block(self, *changes, add=(), huffman=False):
        """Fields as they are, replaced by name (None: left out), others behind. Nothing is
        put into the dynamic table, so that blocks may be sent in any order."""
        change = dict(changes)
        return literal([(n, change.get(n, v)) for n, v in self.fields
                        if change.get(n, v) is not None] + list(add), huffman)


def string(text, huffman=False):
    data = text.encode("latin-1") if isinstance(text, str) else text
    if huffman:
        data = hpack.huffman.HuffmanEncoder(
            hpack.huffman_constants.REQUEST_CODES,
            hpack.huffman_constants.REQUEST_CODES_LENGTH).encode(data)
    head = bytearray(hpack.hpack.encode_integer(len(data), 7))
    head[0] |= 0x80 if huffman else 0
    return bytes(head) + data


def literal(fields, huffman=False, first=b"\x00"):
    return b"".join(first + string(n, huffman) + string(v, huffman) for n, v in fields)


class Talk(Raw):
    """A connection whose SETTINGS were exchanged; stream 1 is the row's."""

    def __init__(self, target, settings=b"", begin=None):
        super().__init__(target.port, PREFACE + frame(SETTINGS, 0, 0, settings)
                         if begin is None else begin)
        self.target, self.block = target, target.block
        self.decoder = hpack.Decoder()

    def head(self, stream=1, flags=END_HEADERS, block=None):
        return frame(HEADERS, flags, stream, block if block is not None else self.block())

    def request(self, stream=1, block=None):
        return self.head(stream, END_HEADERS | END_STREAM, block)

    def say(self, *frames):
        self.send(b"".join(frames))
        return self

    def is_alive(self):
        self.send(frame(PING, 0, 0, b"is alive"))
        last = self.frames(lambda f: (f[0] == PING and f[3] == b"is alive") or
                           f[0] == GOAWAY)
        return bool(last) and last[-1][0] == PING

    def outcome(self, stream):
        """What came of it: ("answer", status), ("reset", code), ("end", code or None)."""
        got = self.frames(lambda f: f[0] == GOAWAY or
                          (f[2] == stream and f[0] in (HEADERS, RST)))
        f = got[-1] if got else (None, 0, 0, b"")
        heads = [dict(self.decoder.decode(g[3])) for g in got if g[0] == HEADERS]
        if f[0] == HEADERS:
            return "answer", int(heads[-1][":status"])
        if f[0] == RST:
            return "reset", int.from_bytes(f[3], "big")
        return "end", int.from_bytes(f[3][4:8], "big") if f[0] == GOAWAY else None


def tables():
    """(section, what, frames(talk), expected, settings)"""
    yield from framing()
    yield from states()
    yield from frame_types()
    yield from settings_and_windows()
    yield from messages()
    yield from compression()


def framing():
    yield "3.4", "SETTINGS first, then a request", lambda t: t.request(), OK
    yield "4.1", "a frame of an unknown type", lambda t: frame(0x16, 0, 0, b"x" * 8), ALIVE
    yield ("4.1", "an unknown type on a stream",
           lambda t: t.head() + frame(0x16, 0, 1, b"x" * 8), ALIVE)
    yield ("4.1", "flags that are not defined",
           lambda t: frame(PING, 0xfe, 0, b"12345678"), ALIVE)
    yield ("4.1", "the reserved bit",
           lambda t: frame(PING, 0, 0x80000000, b"12345678"), ALIVE)
    yield ("4.2", "DATA of 2^14 bytes", lambda t: t.head() +
           frame(DATA, END_STREAM, 1, b"x" * 16384), OK)
    yield ("4.2", "DATA of more", lambda t: t.head() +
           frame(DATA, END_STREAM, 1, b"x" * 16385), STREAM(SIZE))
    yield ("4.2", "HEADERS of more", lambda t: t.head(block=t.block() + b"\x00\x01x\x00" * 4200),
           CONN(SIZE))
    yield "4.2", "SETTINGS of more", lambda t: frame(SETTINGS, 0, 0, bytes(16386)), CONN(SIZE)
    yield "4.3", "a block that is cut", lambda t: t.head(block=t.block()[:-1]), CONN(COMPRESSION)
    yield ("4.3", "PRIORITY inside a block", lambda t: t.head(flags=0) +
           frame(PRIORITY, 0, 1, b"\0\0\0\0\x10"), CONN(PROTOCOL))
    yield ("4.3", "HEADERS of another stream inside a block",
           lambda t: t.head(flags=0) + t.request(3), CONN(PROTOCOL))
    yield ("4.3", "an unknown type inside a block",
           lambda t: t.head(flags=0) + frame(0x16, 0, 1, b"x"), CONN(PROTOCOL))
    yield ("4.3", "CONTINUATION of another stream",
           lambda t: t.head(flags=0) + frame(CONTINUATION, END_HEADERS, 3), CONN(PROTOCOL))
    yield ("5.5", "an extension frame", lambda t: frame(0xff, 0xff, 0, b"x"), ALIVE)
    yield ("5.5", "an extension setting", lambda t: frame(SETTINGS, 0, 0, setting(0xff, 1)),
           ALIVE)


def states():
    def closed(t):
        return t.request() + frame(RST, 0, 1, u32(CANCEL))
    yield "5.1", "idle: DATA", lambda t: frame(DATA, 1, 1, b"x"), CONN(PROTOCOL, CLOSED)
    yield "5.1", "idle: RST_STREAM", lambda t: frame(RST, 0, 1, u32(8)), CONN(PROTOCOL)
    yield "5.1", "idle: WINDOW_UPDATE", lambda t: frame(WINDOW, 0, 1, u32(1)), CONN(PROTOCOL)
    yield ("5.1", "idle: CONTINUATION", lambda t: frame(CONTINUATION, 4, 1, t.block()),
           CONN(PROTOCOL))
    yield "5.1", "idle: PRIORITY", lambda t: frame(PRIORITY, 0, 1, b"\0\0\0\0\x10"), ALIVE
    yield ("5.1", "half-closed: DATA", lambda t: t.request() + frame(DATA, 1, 1, b"x"),
           STREAM(CLOSED))
    yield ("5.1", "half-closed: HEADERS", lambda t: t.request() + t.request(),
           STREAM(CLOSED))
    yield ("5.1", "half-closed: CONTINUATION", lambda t: t.request() +
           frame(CONTINUATION, 4, 1, t.block()), CONN(CLOSED, PROTOCOL))
    yield ("5.1", "half-closed: WINDOW_UPDATE, PRIORITY, RST_STREAM", lambda t: t.request() +
           frame(WINDOW, 0, 1, u32(1)) + frame(PRIORITY, 0, 1, b"\0\0\0\0\x10") +
           frame(RST, 0, 1, u32(CANCEL)), ALIVE)
    # Skipped and counted, as RFC 9113 allows for every closed stream (design/h2.md).
    yield "5.1", "reset: DATA", lambda t: closed(t) + frame(DATA, 1, 1, b"x"), ALIVE
    yield "5.1", "reset: HEADERS", lambda t: closed(t) + t.request(), STREAM(CLOSED)
    yield ("5.1", "reset: CONTINUATION", lambda t: closed(t) +
           frame(CONTINUATION, 4, 1, t.block()), CONN(CLOSED, PROTOCOL))
    yield ("5.1", "reset: WINDOW_UPDATE, RST_STREAM", lambda t: closed(t) +
           frame(WINDOW, 0, 1, u32(1)) + frame(RST, 0, 1, u32(8)), ALIVE)
    yield "5.1", "reserved by nobody: PUSH_PROMISE", lambda t: t.head() + frame(
        PUSH, 4, 1, u32(2) + t.block()), CONN(PROTOCOL)
    yield "5.1.1", "an even id", lambda t: t.request(2), CONN(PROTOCOL)
    yield ("5.1.1", "an id below another", lambda t: t.head(5) + t.request(3),
           CONN(PROTOCOL, CLOSED))
    yield "5.1.1", "ids that are passed over", lambda t: t.request(77), lambda t: t.expect(
        OK, 77)
    yield ("5.4.1", "an error of the connection ends it behind GOAWAY",
           lambda t: frame(PING, 0, 0, b"1234567"), CONN(SIZE))
    yield ("5.4.2", "no RST_STREAM for RST_STREAM", lambda t: t.head() +
           frame(RST, 0, 1, u32(PROTOCOL)), quiet)


def quiet(t):
    t.send(frame(PING, 0, 0, b"is alive"))
    got = t.frames(lambda f: f[0] == PING or f[0] == GOAWAY)
    if got[-1][0] != PING or any(f[0] == RST for f in got):
        raise AssertionError(got)


def pings(t):
    t.send(frame(PING, ACK, 0, b"no-reply") + frame(PING, 0, 0, b"is alive"))
    got = t.frames(lambda f: f[0] == PING or f[0] == GOAWAY)
    if got[-1] != (PING, ACK, 0, b"is alive"):
        raise AssertionError(got)


def frame_types():
    yield "6.1", "DATA on stream 0", lambda t: frame(DATA, 1, 0, b"x"), CONN(PROTOCOL)
    yield ("6.1", "DATA with padding", lambda t: t.head() +
           frame(DATA, END_STREAM | PADDED, 1, b"\x05hello" + bytes(5)), OK)
    yield ("6.1", "DATA with padding alone", lambda t: t.head() +
           frame(DATA, END_STREAM | PADDED, 1, b"\x05" + bytes(5)), OK)
    yield ("6.1", "padding as long as its frame", lambda t: t.head() +
           frame(DATA, END_STREAM | PADDED, 1, b"\x06hello"), CONN(PROTOCOL))
    yield ("6.1", "padding without its length", lambda t: t.head() +
           frame(DATA, END_STREAM | PADDED, 1), CONN(PROTOCOL, SIZE))
    yield "6.1", "several DATA", lambda t: t.head() + frame(DATA, 0, 1, b"x") * 5 + frame(
        DATA, END_STREAM, 1), OK
    yield "6.2", "HEADERS on stream 0", lambda t: t.request(0), CONN(PROTOCOL)
    yield ("6.2", "HEADERS with padding", lambda t: frame(
        HEADERS, 5 | PADDED, 1, b"\x03" + t.block() + bytes(3)), OK)
    yield ("6.2", "HEADERS with a priority", lambda t: frame(
        HEADERS, 5 | PRIO, 1, b"\0\0\0\0\x10" + t.block()), OK)
    yield ("6.2", "HEADERS with both", lambda t: frame(
        HEADERS, 5 | PRIO | PADDED, 1, b"\x02\0\0\0\0\x10" + t.block() + bytes(2)), OK)
    yield ("6.2", "padding over the frame", lambda t: frame(
        HEADERS, 5 | PADDED, 1, b"\xff" + t.block()), CONN(PROTOCOL))
    yield ("6.2", "a priority that is cut", lambda t: frame(
        HEADERS, 5 | PRIO, 1, b"\0\0\0"), CONN(SIZE, PROTOCOL))
    yield ("6.3", "PRIORITY on stream 0", lambda t: frame(PRIORITY, 0, 0, b"\0\0\0\1\x10"),
           CONN(PROTOCOL))
    yield ("6.3", "PRIORITY of 4 bytes", lambda t: t.head() + frame(PRIORITY, 0, 1, bytes(4)),
           STREAM(SIZE))
    yield "6.4", "RST_STREAM on stream 0", lambda t: frame(RST, 0, 0, u32(8)), CONN(PROTOCOL)
    yield ("6.4", "RST_STREAM of 3 bytes", lambda t: t.head() + frame(RST, 0, 1, bytes(3)),
           CONN(SIZE))
    yield ("6.4", "RST_STREAM of 5 bytes", lambda t: t.head() + frame(RST, 0, 1, bytes(5)),
           CONN(SIZE))
    yield "6.5", "ACK with a payload", lambda t: frame(SETTINGS, ACK, 0, bytes(6)), CONN(SIZE)
    yield "6.5", "SETTINGS on a stream", lambda t: frame(SETTINGS, 0, 1), CONN(PROTOCOL)
    yield "6.5", "SETTINGS of 3 bytes", lambda t: frame(SETTINGS, 0, 0, bytes(3)), CONN(SIZE)
    yield "6.6", "PUSH_PROMISE of a client", lambda t: frame(
        PUSH, 4, 1, u32(2) + t.block()), CONN(PROTOCOL)
    yield "6.7", "PING", lambda t: frame(PING, 0, 0, b"12345678"), lambda t: t.is_answered()
    yield "6.7", "PING with ACK is not answered", lambda t: b"", pings
    yield "6.7", "PING on a stream", lambda t: frame(PING, 0, 1, bytes(8)), CONN(PROTOCOL)
    yield "6.7", "PING of 6 bytes", lambda t: frame(PING, 0, 0, bytes(6)), CONN(SIZE)
    yield "6.7", "PING of 9 bytes", lambda t: frame(PING, 0, 0, bytes(9)), CONN(SIZE)
    yield ("6.8", "GOAWAY on a stream", lambda t: frame(GOAWAY, 0, 1, bytes(8)),
           CONN(PROTOCOL))
    yield "6.8", "GOAWAY of 7 bytes", lambda t: frame(GOAWAY, 0, 0, bytes(7)), CONN(SIZE)
    yield ("6.8", "GOAWAY behind a request", lambda t: t.request() +
           frame(GOAWAY, 0, 0, bytes(8)), OK)
    yield ("6.10", "CONTINUATION, several", lambda t: t.head(flags=1, block=t.block()[:5]) +
           frame(CONTINUATION, 0, 1, t.block()[5:9]) + frame(CONTINUATION, 0, 1) +
           frame(CONTINUATION, 4, 1, t.block()[9:]), OK)
    yield ("6.10", "CONTINUATION behind END_HEADERS", lambda t: t.head() +
           frame(CONTINUATION, 4, 1, t.block()), CONN(PROTOCOL))
    yield ("6.10", "CONTINUATION behind CONTINUATION that ended", lambda t: t.head(flags=0) +
           frame(CONTINUATION, 4, 1) * 2, CONN(PROTOCOL))
    yield ("6.10", "CONTINUATION behind DATA", lambda t: t.head() + frame(DATA, 0, 1, b"x") +
           frame(CONTINUATION, 4, 1, t.block()), CONN(PROTOCOL))
    yield ("6.10", "CONTINUATION on stream 0", lambda t: t.head(flags=0) +
           frame(CONTINUATION, 4, 0), CONN(PROTOCOL))
    yield ("7", "GOAWAY of an unknown code", lambda t: t.head() +
           frame(GOAWAY, 0, 0, u32(0) + u32(0xff)), ALIVE)
    yield "7", "RST_STREAM of an unknown code", lambda t: t.head() + frame(
        RST, 0, 1, u32(0xff)), ALIVE


def settings_and_windows():
    for key, value, code, name in (
            (2, 2, PROTOCOL, "ENABLE_PUSH of 2"), (4, 1 << 31, FLOW, "a window of 2^31"),
            (5, 16383, PROTOCOL, "MAX_FRAME_SIZE of 2^14-1"),
            (5, 1 << 24, PROTOCOL, "MAX_FRAME_SIZE of 2^24"),
            (8, 2, PROTOCOL, "ENABLE_CONNECT_PROTOCOL of 2")):
        yield ("6.5.2", name, lambda t, k=key, v=value: frame(SETTINGS, 0, 0, setting(k, v)),
               CONN(code))
    for key, value, name in ((1, 0, "no dynamic table"), (1, 1 << 20, "a large table"),
                             (2, 0, "no push"), (3, 0, "no streams"), (4, 0, "no window"),
                             (4, (1 << 31) - 1, "the largest window"),
                             (5, (1 << 24) - 1, "the largest frame"), (6, 100, "small heads")):
        yield ("6.5.2", name, lambda t, k=key, v=value: frame(SETTINGS, 0, 0, setting(k, v)),
               ALIVE)
    yield "6.5.3", "SETTINGS are acknowledged", lambda t: frame(
        SETTINGS, 0, 0, setting(4, 100)), lambda t: t.is_acknowledged(2)
    yield ("6.5.3", "values are taken in turn", lambda t: frame(
        SETTINGS, 0, 0, setting(4, 100) + setting(4, 1 << 16)) + t.request(), OK)
    yield ("6.9", "WINDOW_UPDATE by 0", lambda t: frame(WINDOW, 0, 0, u32(0)), CONN(PROTOCOL))
    yield ("6.9", "WINDOW_UPDATE by 0 on a stream", lambda t: t.head() +
           frame(WINDOW, 0, 1, u32(0)), STREAM(PROTOCOL))
    yield ("6.9", "WINDOW_UPDATE of 3 bytes", lambda t: frame(WINDOW, 0, 0, bytes(3)),
           CONN(SIZE))
    yield ("6.9", "WINDOW_UPDATE of 5 bytes", lambda t: t.head() +
           frame(WINDOW, 0, 1, bytes(5)), CONN(SIZE))
    yield ("6.9.1", "a window over 2^31-1", lambda t: frame(
        WINDOW, 0, 0, u32(0x7fffffff)) * 2, CONN(FLOW))
    yield ("6.9.1", "a stream's window over 2^31-1", lambda t: t.head() +
           frame(WINDOW, 0, 1, u32(0x7fffffff)) * 2, STREAM(FLOW))
    yield ("6.9.2", "a stream's window over 2^31-1 by SETTINGS", lambda t: t.head() +
           frame(WINDOW, 0, 1, u32(0x7fff0000)) + frame(SETTINGS, 0, 0, setting(4, 1 << 17)),
           STREAM(FLOW))


def messages():
    yield ("8.1", "trailers", lambda t: t.head() + frame(DATA, 0, 1, b"x") + frame(
        HEADERS, 5, 1, literal([("x-t", "1")])), OK)
    yield ("8.1", "a second head without an end", lambda t: t.head() +
           frame(HEADERS, 4, 1, literal([("x-t", "1")])), STREAM(PROTOCOL))
    yield ("8.1.1", "more than Content-Length", lambda t: t.head(
        block=t.block(add=[("content-length", "1")])) + frame(DATA, 1, 1, b"test"), MALFORMED)
    yield ("8.1.1", "less than Content-Length", lambda t: t.head(
        block=t.block(add=[("content-length", "9")])) + frame(DATA, 1, 1, b"test"), MALFORMED)
    yield ("8.1.1", "more, in several DATA", lambda t: t.head(
        block=t.block(add=[("content-length", "5")])) + frame(DATA, 0, 1, b"test") +
           frame(DATA, 1, 1, b"test"), MALFORMED)
    yield ("8.1.1", "no body where one was said", lambda t: t.request(
        block=t.block(add=[("content-length", "1")])), MALFORMED)
    for section, what, extra in (
            ("8.2.1", "an upper-case name", ("X-A", "1")),
            ("8.2.1", "a space in a name", ("x a", "1")),
            ("8.2.1", "a colon in a name", ("x:a", "1")),
            ("8.2.1", "an empty name", ("", "1")),
            ("8.2.1", "DEL in a name", ("x\x7f", "1")),
            ("8.2.1", "0x80 in a name", ("x\x80", "1")),
            ("8.2.1", "CR in a value", ("x", "a\rb")),
            ("8.2.1", "LF in a value", ("x", "a\nb")),
            ("8.2.1", "NUL in a value", ("x", "a\0b")),
            ("8.2.1", "a space before a value", ("x", " a")),
            ("8.2.1", "a tab behind a value", ("x", "a\t")),
            ("8.2.2", "connection", ("connection", "keep-alive")),
            ("8.2.2", "proxy-connection", ("proxy-connection", "x")),
            ("8.2.2", "keep-alive", ("keep-alive", "1")),
            ("8.2.2", "transfer-encoding", ("transfer-encoding", "chunked")),
            ("8.2.2", "upgrade", ("upgrade", "h2c")),
            ("8.2.2", "te of more than trailers", ("te", "trailers, deflate")),
            ("8.3", "an unknown pseudo field", (":test", "x")),
            ("8.3", "an answer's pseudo field", (":status", "200")),
            ("8.3.1", "two methods", (":method", "POST")),
            ("8.3.1", "two schemes", (":scheme", "http")),
            ("8.3.1", "two paths", (":path", "/")),
            ("8.3.1", "two authorities", (":authority", "h")),
            ("8.3.1", "Host that is not :authority", ("host", "g")),
            ("8441 4", ":protocol without CONNECT", (":protocol", "websocket"))):
        yield section, what, lambda t, e=extra: t.request(block=t.block(add=[e])), MALFORMED
    yield "8.2.2", "te: trailers", lambda t: t.request(
        block=t.block(("te", None), add=[("te", "trailers")])), OK
    yield "8.2.3", "cookies in pieces", lambda t: t.request(
        block=t.block(add=[("cookie", "a=1"), ("cookie", "b=2")])), OK
    yield ("8.3", "a pseudo field behind others", lambda t: t.request(
        block=t.block((":path", None), add=[("x", "1"), (":path", "/")])), MALFORMED)
    yield ("8.3", "a pseudo field in trailers", lambda t: t.head() + frame(
        DATA, 0, 1, b"x") + frame(HEADERS, 5, 1, literal([(":method", "GET")])), MALFORMED)
    for name in (":method", ":scheme", ":path", ":authority"):
        yield ("8.3.1", f"no {name}", lambda t, n=name: t.request(block=t.block((n, None))),
               MALFORMED)
    yield "8.3.1", "an empty path", lambda t: t.request(block=t.block((":path", ""))), MALFORMED
    yield ("8.3.1", "a path without a slash", lambda t: t.request(
        block=t.block((":path", "x"))), MALFORMED)
    yield ("8.3.1", "a user in :authority", lambda t: t.request(
        block=t.block((":authority", "u@h"))), MALFORMED)
    yield "8.4", "PUSH_PROMISE on a request", lambda t: t.head() + frame(
        PUSH, 4, 1, u32(2) + t.block()), CONN(PROTOCOL)
    yield ("8.5", "CONNECT with a path", lambda t: t.request(
        block=t.block((":method", "CONNECT"))), MALFORMED)
    yield ("8.5", "CONNECT without an authority", lambda t: t.request(block=t.block(
        (":method", "CONNECT"), (":path", None), (":scheme", None), (":authority", None))),
        MALFORMED)


def compression():
    """RFC 7541."""
    def more(t, extra):
        return t.request(block=t.block() + extra)

    def first(t, extra):
        return t.request(block=extra + t.block())
    yield "HPACK 2.3.3", "an index past both tables", lambda t: more(t, b"\xc6"), CONN(
        COMPRESSION)
    yield "HPACK 2.3.3", "a name's index past both tables", lambda t: more(
        t, b"\x7f\x07\x01x"), CONN(COMPRESSION)
    yield "HPACK 4.2", "a size update behind a field", lambda t: more(t, b"\x20"), CONN(
        COMPRESSION)
    yield "HPACK 4.2", "a size update before fields", lambda t: first(t, b"\x20"), OK
    yield "HPACK 4.2", "two size updates", lambda t: first(t, b"\x20\x3f\xe1\x1f"), OK
    yield "HPACK 5.1", "an integer without an end", lambda t: more(
        t, b"\xff" + b"\xff" * 11 + b"\x7f"), CONN(COMPRESSION)
    yield "HPACK 5.1", "an integer that is cut", lambda t: more(t, b"\xff\x80"), CONN(COMPRESSION)
    yield "HPACK 5.2", "a string past the block", lambda t: more(t, b"\x00\x01x\x7fab"), CONN(
        COMPRESSION)
    yield "HPACK 5.2", "Huffman padding of more than 7 bits", lambda t: more(
        t, b"\x00\x01x\x84\x1f\xff\xff\xff"[:7]), CONN(COMPRESSION)
    yield "HPACK 5.2", "Huffman padding of zeros", lambda t: more(t, b"\x00\x01x\x81\x18"), CONN(
        COMPRESSION)
    yield "HPACK 5.2", "EOS in a string", lambda t: more(
        t, b"\x00\x01x\x84\xff\xff\xff\xff"), CONN(COMPRESSION)
    yield "HPACK 5.2", "Huffman strings", lambda t: t.request(block=t.block(huffman=True)), OK
    yield "HPACK 6.1", "index 0", lambda t: more(t, b"\x80"), CONN(COMPRESSION)
    yield "HPACK 6.1", "a field by its index", lambda t: more(t, b"\x90"), OK
    yield "HPACK 6.2.1", "literals that are kept, and used again", lambda t: t.head(
        1, 5, t.block() + b"\x40\x03x-a\x01b") + t.head(
        3, 5, t.block() + b"\xbe"), lambda t: t.expect(OK, 3)
    yield "HPACK 6.2.2", "literals that are not kept", lambda t: more(t, b"\x00\x03x-a\x01b"), OK
    yield "HPACK 6.2.3", "literals never to be kept", lambda t: more(t, b"\x10\x03x-a\x01b"), OK
    yield "HPACK 6.2.2", "what was not kept has no index", lambda t: t.head(
        1, 5, t.block() + b"\x00\x03x-a\x01b") + t.head(
        3, 5, t.block() + b"\xbe"), CONN(COMPRESSION)
    yield "HPACK 6.3", "a table over its limit", lambda t: first(t, b"\x3f\xe2\x1f"), CONN(
        COMPRESSION)
    yield "HPACK 4.4", "what was evicted has no index", lambda t: t.head(
        1, 5, t.block() + b"\x40\x03x-a\x01b") + t.head(
        3, 5, b"\x20" + t.block() + b"\xbe"), CONN(COMPRESSION)


class Row(Talk):
    def __init__(self, case, target):
        super().__init__(target)
        self.case = case

    def is_answered(self):
        self.case.assertIn((PING, ACK, 0, b"12345678"),
                           self.frames(lambda f: f[0] in (PING, GOAWAY)))

    def is_acknowledged(self, n):
        got = self.frames(lambda f, left=[n]: f[0] == GOAWAY or (
            f[0] == SETTINGS and f[1] & ACK and not left.append(left.pop() - 1) and
            left[0] == 0))
        self.case.assertNotEqual(got[-1][0], GOAWAY)

    def expect(self, expected, stream=1):
        case = self.case
        if callable(expected):
            expected(self)
        elif expected == OK:
            kind, value = self.outcome(stream)
            case.assertIn((kind, value), case.answers)
        elif expected == ALIVE:
            case.assertTrue(self.is_alive())
        elif expected == MALFORMED:
            kind, value = self.outcome(stream)
            case.assertIn((kind, value), (("answer", 400), ("reset", PROTOCOL),
                                          ("end", PROTOCOL)))
        elif expected[0] == "STREAM":
            self.until_code(expected[1], stream)
        else:
            self.until_code(expected[1], None)

    def until_code(self, codes, stream):
        """GOAWAY with one of the codes, or RST_STREAM of it on that stream; an answer that
        was on its way before is no fault."""
        got = self.frames(lambda f: f[0] == GOAWAY or (f[0] == RST and f[2] == stream))
        last = got[-1] if got else (None, 0, 0, b"")
        self.case.assertIn(last[0], (GOAWAY, RST), "neither GOAWAY nor RST_STREAM came")
        code = int.from_bytes(last[3][4:8] if last[0] == GOAWAY else last[3], "big")
        self.case.assertIn(code, codes)
        if last[0] == GOAWAY:
            self.case.assertEqual([f for f in self.frames() if f[0] != GOAWAY], [])  # ends


class Rules:
    """Of both targets; self.target and self.answers are theirs."""

    def test_every_rule_of_the_table(self):
        rows = list(tables())
        self.assertGreater(len(rows), 140)
        self.assertEqual(len({(r[0], r[1]) for r in rows}), len(rows))
        for section, what, frames, expected in rows:
            with self.subTest(f"{section}: {what}"):
                row = Row(self, self.target)
                row.say(frame(SETTINGS, ACK), frames(row))
                row.expect(expected)
                row.sock.close()
        Row(self, self.target).expect(ALIVE)

    def test_3_4_the_server_begins_with_its_settings(self):
        row = Row(self, self.target)
        kind, flags, stream, _ = row.frames(lambda f: True)[0]
        self.assertEqual((kind, flags & ACK, stream), (SETTINGS, 0, 0))
        row.sock.close()

    def test_3_4_a_preface_that_is_none_ends_the_connection(self):
        for begin in (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\rX" + frame(SETTINGS),
                      PREFACE + frame(PING, 0, 0, bytes(8)), PREFACE + b"GET / HTTP/1.1\r\n\r\n"):
            row = Talk(self.target, begin=begin)
            row.sock.settimeout(keelkit.PATIENCE_S)
            self.assertNotIn(PING, [f[0] for f in row.frames()])
            row.sock.close()

    def test_5_1_2_no_more_streams_than_were_said(self):
        row = Row(self, self.target)
        limit = next(struct.unpack(">I", f[3][i + 2:i + 6])[0]
                     for f in row.frames(lambda f: f[0] == SETTINGS)
                     for i in range(0, len(f[3]), 6) if f[3][i:i + 2] == b"\0\3")
        last = 2 * limit + 1
        row.say(frame(SETTINGS, ACK), *(row.head(i) for i in range(1, last + 1, 2)))
        row.until_code((PROTOCOL, REFUSED), last)
        row.sock.close()

    def test_6_8_streams_that_a_goaway_does_not_count_were_not_looked_at(self):
        row = Row(self, self.target)
        row.say(row.head(1), frame(PING, 0, 0, bytes(7)), row.head(3))
        got = [f for f in row.frames() if f[0] == GOAWAY]
        self.assertLessEqual(int.from_bytes(got[-1][3][:4], "big"), 1)
        row.sock.close()


class Route(Rules, unittest.TestCase):
    answers = (("answer", 200),)

    @classmethod
    def setUpClass(cls):
        need_probe()
        cls.backend = Probe()
        cls.proxy = Proxy([cls.backend.port], "h2=1", logs_sessions=0)
        cls.target = Target(cls.proxy.port, "/", [])

    @classmethod
    def tearDownClass(cls):
        with cls.proxy:
            pass
        cls.backend.close()

    def windowed(self, settings=b""):
        """A talk with those SETTINGS, and the body of an answer of 8 MiB as it comes."""
        talk = Talk(Target(self.target.port, "/big", []), settings)
        return talk.say(frame(SETTINGS, ACK), talk.request())

    def body(self, talk, n):
        """n bytes come on stream 1, and no more before the next PING."""
        size = 0
        while size < n:
            got = talk.frames(lambda f: f[0] == DATA)
            self.assertNotIn(GOAWAY, [f[0] for f in got])
            size += len(got[-1][3])
        time.sleep(0.1)
        talk.send(frame(PING, 0, 0, b"any more"))
        size += sum(len(f[3]) for f in talk.frames(lambda f: f[0] == PING) if f[0] == DATA)
        self.assertEqual(size, n)

    def test_6_9_1_no_more_is_sent_than_the_window(self):
        talk = self.windowed(setting(4, 1))
        self.body(talk, 1)
        talk.send(frame(WINDOW, 0, 1, u32(5)))
        self.body(talk, 5)
        talk.sock.close()

    def test_6_9_2_a_window_may_change_and_be_negative(self):
        talk = self.windowed(setting(4, 3))
        self.body(talk, 3)
        talk.send(frame(SETTINGS, 0, 0, setting(4, 1)) + frame(WINDOW, 0, 1, u32(2)))
        self.body(talk, 0)  # 3 are out, 1 + 2 may be
        talk.send(frame(SETTINGS, 0, 0, setting(4, 6)))
        self.body(talk, 5)
        talk.sock.close()

    def test_6_9_1_the_connections_window_holds_for_all_streams(self):
        talk = self.windowed(setting(4, 1 << 20))
        talk.send(talk.request(3))
        size = 0
        while size < 65535:
            size += len(talk.frames(lambda f: f[0] == DATA)[-1][3])
        time.sleep(0.1)
        talk.send(frame(PING, 0, 0, b"any more"))
        size += sum(len(f[3]) for f in talk.frames(lambda f: f[0] == PING) if f[0] == DATA)
        self.assertEqual(size, 65535)
        talk.sock.close()

    def test_6_5_2_frames_are_no_larger_than_the_peer_takes(self):
        talk = self.windowed(setting(4, 1 << 20) + setting(5, 1 << 20))
        talk = self.windowed(setting(4, 1 << 20))
        self.assertLessEqual(len(talk.frames(lambda f: f[0] == DATA)[-1][3]), 16384)
        talk.sock.close()

    def test_9_2_a_head_of_get_and_of_head(self):
        for method in ("GET", "HEAD", "POST", "OPTIONS", "DELETE", "BREW"):
            row = Row(self, self.target)
            row.say(row.request(block=row.block((":method", method)))).expect(OK)
            row.sock.close()


class Serve(Rules, unittest.TestCase):
    """The API stays HTTP/1.1; the service of reports is the one that is answered."""
    answers = (("answer", 200), ("reset", 0xd))

    @classmethod
    def setUpClass(cls):
        keelkit.need_keel()
        cls.server = keelkit.Server(TINY, "--ctx", "64")
        cls.target = Target(
            cls.server.port, "/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics",
            [("content-type", "application/grpc"), ("te", "trailers")])

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0


if __name__ == "__main__":
    unittest.main(warnings="ignore")
