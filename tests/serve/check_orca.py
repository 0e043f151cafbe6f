"""keel serve's load out of band: OpenRcaService by grpcio, on the port of the API."""
import os
import socket
import struct
import subprocess
import tempfile
import time
import unittest

import keelkit


try:
    import grpc
except ImportError:
    keelkit.skip("the Python package grpcio is not installed")

METHOD = "/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics"


def varint(v):
    out = b""
    while v > 0x7f:
        out += bytes([v & 0x7f | 0x80])
        v >>= 7
    return out + bytes([v])


def request(seconds=0, nanos=0):
    """OrcaLoadReportRequest{report_interval}, by hand."""
    d = (b"\x08" + varint(seconds) if seconds else b"") + \
        (b"\x10" + varint(nanos) if nanos else b"")
    return b"\x0a" + varint(len(d)) + d


def report(data):
    """The doubles of an OrcaLoadReport by field number, and the named metrics."""
    doubles, named, at = {}, {}, 0

    def number():
        nonlocal at
        v = shift = 0
        while True:
            b = data[at]
            at += 1
            v |= (b & 0x7f) << shift
            shift += 7
            if not b & 0x80:
                return v
    while at < len(data):
        key = number()
        if key & 7 == 1:
            doubles[key >> 3] = struct.unpack("<d", data[at:at + 8])[0]
            at += 8
        elif key & 7 == 0:
            doubles[key >> 3] = number()
        else:
            n = number()
            entry = data[at:at + n]
            at += n
            if key >> 3 == 8:
                name = entry[2:2 + entry[1]].decode()
                rest = entry[2 + entry[1]:]
                named[name] = struct.unpack("<d", rest[1:9])[0] if rest else 0.0
    return doubles, named


def stream(channel, body, timeout=240):
    return channel.unary_stream(METHOD)(body, timeout=timeout)


class Plain(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = keelkit.Server(keelkit.need_model(), "--ctx", "256")
        cls.channel = grpc.insecure_channel(f"127.0.0.1:{cls.server.port}")

    def test_the_preface_may_come_in_pieces(self):
        preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        for cut in (1, 3, 15, len(preface) - 1):
            with socket.create_connection(("127.0.0.1", self.server.port), 240) as sock:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                sock.sendall(preface[:cut])
                time.sleep(0.05)
                sock.sendall(preface[cut:] + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
                self.assertEqual(sock.recv(9)[3:4], b"\x04", cut)  # SETTINGS

    def test_a_request_that_begins_like_the_preface_is_one(self):
        with socket.create_connection(("127.0.0.1", self.server.port), 240) as sock:
            sock.sendall(b"P")
            time.sleep(0.05)
            sock.sendall(b"OST /nowhere HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n")
            self.assertEqual(sock.recv(12), b"HTTP/1.1 404")

    @classmethod
    def tearDownClass(cls):
        cls.channel.close()
        cls.server.stop()

    def test_reports_come_at_once_and_then_every_interval(self):
        call = stream(self.channel, request(nanos=600000000))
        begun, reports = time.monotonic(), []
        for data in call:
            reports.append(report(data))
            if len(reports) == 3:
                break
        call.cancel()
        self.assertGreater(time.monotonic() - begun, 1.0)
        for _, named in reports:
            self.assertGreater(named["effective_capacity"], 0)
            self.assertIn("remaining_sessions", named)

    def test_other_calls_are_unimplemented(self):
        with self.assertRaises(grpc.RpcError) as e:
            self.channel.unary_unary("/x.Y/Z")(b"", timeout=240)
        self.assertEqual(e.exception.code(), grpc.StatusCode.UNIMPLEMENTED)

    def test_a_request_that_is_too_large_is_refused(self):
        with self.assertRaises(grpc.RpcError) as e:
            next(stream(self.channel, b"\x12\xff\xff\x03" + b"x" * 65535))
        self.assertEqual(e.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)

    def test_the_api_goes_on_beside_it_over_http_1(self):
        call = stream(self.channel, request(seconds=1))
        next(call)
        self.assertIn("effective_capacity", self.server.get("/load"))
        curl = keelkit.need_program("curl")
        # HTTP_1_1_REQUIRED: curl does as it is told.
        got = subprocess.run([curl, "-s", "--http2-prior-knowledge", "-o", "/dev/null",
                              "-w", "%{http_version} %{http_code}",
                              self.server.url + "/load"],
                             capture_output=True, text=True, timeout=240)
        self.assertEqual(got.stdout, "1.1 200")
        call.cancel()


class Guarded(unittest.TestCase):
    def setUp(self):
        self.server = keelkit.Server(keelkit.need_model(), "--ctx", "256",
                                     env={**os.environ, "EVENKEEL_API_KEY": "secret"})
        self.addCleanup(self.server.stop)

    def test_the_load_wants_the_api_key(self):
        with grpc.insecure_channel(f"127.0.0.1:{self.server.port}") as channel:
            call = channel.unary_stream(METHOD)
            for metadata in ((), (("authorization", "Bearer wrong"),),
                             (("authorization", "Bearer " + "x" * 5000),)):
                with self.assertRaises(grpc.RpcError) as e:
                    next(call(request(seconds=1), metadata=metadata, timeout=240))
                self.assertEqual(e.exception.code(), grpc.StatusCode.UNAUTHENTICATED)
            got = next(call(request(seconds=1), timeout=240,
                            metadata=(("authorization", "Bearer secret"),)))
            self.assertGreater(report(got)[1]["effective_capacity"], 0)

    def test_connections_have_a_limit(self):
        hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)
        open_ones = []
        for _ in range(129):
            s = socket.create_connection(("127.0.0.1", self.server.port), timeout=240)
            self.addCleanup(s.close)
            s.sendall(hello)
            open_ones.append(s)
            try:
                is_open = bool(s.recv(9))  # its SETTINGS
            except ConnectionResetError:
                is_open = False
            self.assertEqual(is_open, len(open_ones) <= 128, len(open_ones))


class Tls(unittest.TestCase):
    def test_grpc_gets_h2_and_others_http_1(self):
        with tempfile.TemporaryDirectory() as d:
            cert, key = os.path.join(d, "c.pem"), os.path.join(d, "k.pem")
            subprocess.run([keelkit.need_program("openssl"), "req", "-x509", "-newkey", "ec",
                            "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days",
                            "2", "-subj", "/CN=localhost", "-addext",
                            "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert],
                           check=True, capture_output=True)
            server = keelkit.Server(keelkit.need_model(), "--ctx", "256", "--tls-cert", cert,
                                    "--tls-key", key, tls=True)
            self.addCleanup(server.stop)
            with open(cert, "rb") as f:
                credentials = grpc.ssl_channel_credentials(f.read())
            with grpc.secure_channel(f"localhost:{server.port}", credentials) as channel:
                _, named = report(next(stream(channel, request(seconds=1))))
                self.assertGreater(named["effective_capacity"], 0)
            got = subprocess.run(
                [keelkit.need_program("curl"), "-s", "--cacert", cert, "-w",
                 "%{http_version}", "-o", "/dev/null",
                 f"https://localhost:{server.port}/load"],
                capture_output=True, text=True, timeout=240)
            self.assertEqual(got.stdout, "1.1")


if __name__ == "__main__":
    unittest.main(verbosity=2)
