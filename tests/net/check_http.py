"""The HTTP server against Python's clients, and against clients that misbehave."""
import concurrent.futures
import http.client
import os
import random
import socket
import ssl
import subprocess
import tempfile
import time
import unittest

import keelkit

PATIENCE_S = keelkit.PATIENCE_S
PROBE = os.path.join(os.environ.get("EK_BIN", ""), "tests", "probe_http")


class Probe:
    def __init__(self, *args):
        self.process = subprocess.Popen([PROBE, *args], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline().rsplit(":", 1)[1])

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        if self.process.wait(PATIENCE_S):
            raise AssertionError(f"the server ended with {self.process.returncode}")

    def raw(self, data, timeout=PATIENCE_S):
        """What the server says to `data`, until it closes or nothing comes."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as s:
            s.sendall(data)
            got = b""
            try:
                while piece := s.recv(65536):
                    got += piece
            except (ConnectionResetError, socket.timeout):
                pass
            return got


class Plain(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.probe = Probe()

    @classmethod
    def tearDownClass(cls):
        cls.probe.close()

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.probe.port, timeout=PATIENCE_S)

    def test_one_connection_serves_many_requests(self):
        c = self.connect()
        for n in (0, 1, 1000, 99999):
            body = random.Random(n).randbytes(n)
            c.request("POST", "/x?a=%20b", body=body)
            r = c.getresponse()
            self.assertEqual((r.status, r.read()), (200, body))
            self.assertEqual(r.getheader("X-Query"), "a=%20b")
        c.close()

    def test_a_chunked_request_arrives_whole(self):
        c = self.connect()
        c.request("POST", "/x", body=(b"x" * n for n in (1, 20, 300)),
                  encode_chunked=True, headers={"Transfer-Encoding": "chunked"})
        self.assertEqual(c.getresponse().read(), b"x" * 321)
        c.close()

    def test_a_stream_is_read_by_python_whole(self):
        c = self.connect()
        c.request("GET", "/stream")
        self.assertEqual(c.getresponse().read(), b"piece\n" * 5)
        c.request("HEAD", "/stream")
        self.assertEqual(c.getresponse().read(), b"")
        c.request("GET", "/stream")
        self.assertEqual(c.getresponse().read(), b"piece\n" * 5)
        c.close()

    def test_the_answer_to_a_body_too_large_is_not_lost(self):
        """http.client sends all of the body before it reads anything."""
        c = self.connect()
        c.request("POST", "/x", body=b"x" * 30_000_000)
        r = c.getresponse()
        self.assertEqual(r.status, 413)
        self.assertIn(b"too large", r.read())
        c.close()

    def test_many_clients_at_once(self):
        def work(seed):
            c = self.connect()
            for n in range(20):
                body = random.Random(seed * 100 + n).randbytes(1 + 37 * n)
                c.request("POST", f"/{seed}/{n}", body=body)
                if c.getresponse().read() != body:
                    return False
            c.close()
            return True

        with concurrent.futures.ThreadPoolExecutor(32) as pool:
            self.assertTrue(all(pool.map(work, range(64))))

    def test_clients_that_leave_are_noticed(self):
        def aborted():
            c = self.connect()
            c.request("GET", "/aborted")
            return int(c.getresponse().read())

        before = aborted()
        held = []
        for _ in range(20):
            c = self.connect()
            c.request("GET", "/hold")
            held.append(c)
        for c in held:
            c.close()
        deadline = time.monotonic() + PATIENCE_S
        while aborted() < before + 20 and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertEqual(aborted(), before + 20)

    def test_smuggled_requests_are_never_answered(self):
        smuggled = b"GET /stream HTTP/1.1\r\nHost: h\r\n\r\n"
        post = b"POST / HTTP/1.1\r\nHost: h\r\n"
        for bad in (b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                    b"Content-Length: 0\r\nContent-Length: 5\r\n\r\n",
                    b"Transfer-Encoding: xchunked\r\nContent-Length: 5\r\n\r\n",
                    b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
                    b"Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
                    b"X: y\r\n Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                    b"X: y\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                    b"Transfer-Encoding: chunked\r\n\r\n0\n\n",
                    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\n"):
            got = self.probe.raw(post + bad + smuggled)
            self.assertTrue(got.startswith(b"HTTP/1.1 400 "), (bad, got))
            self.assertEqual(got.count(b"HTTP/1.1"), 1, (bad, got))

    def test_random_damage_does_no_harm(self):
        rng = random.Random(1)
        good = (b"POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
                b"3\r\nabc\r\n0\r\n\r\nGET / HTTP/1.0\r\n\r\n")
        for _ in range(300):
            data = bytearray(good)
            for _ in range(rng.randint(1, 4)):
                data[rng.randrange(len(data))] = rng.randrange(256)
            with socket.create_connection(("127.0.0.1", self.probe.port)) as s:
                s.sendall(data)
        c = self.connect()
        c.request("GET", "/alive")
        self.assertEqual(c.getresponse().status, 200)
        c.close()


class Tls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        openssl = keelkit.need_program("openssl")
        cls.folder = tempfile.TemporaryDirectory()
        cls.cert = os.path.join(cls.folder.name, "cert.pem")
        key = os.path.join(cls.folder.name, "key.pem")
        subprocess.run([openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt",
                        "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
                        "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
                        "-keyout", key, "-out", cls.cert],
                       check=True, capture_output=True)
        cls.probe = Probe(cls.cert, key)

    @classmethod
    def tearDownClass(cls):
        cls.probe.close()
        cls.folder.cleanup()

    def connect(self, context=None):
        context = context or ssl.create_default_context(cafile=self.cert)
        return http.client.HTTPSConnection("localhost", self.probe.port, timeout=PATIENCE_S,
                                           context=context)

    def test_python_verifies_the_certificate_and_is_answered(self):
        c = self.connect()
        for n in (0, 1, 99999):
            body = random.Random(n).randbytes(n)
            c.request("POST", "/x", body=body)
            self.assertEqual(c.getresponse().read(), body)
        self.assertIn(c.sock.version(), ("TLSv1.2", "TLSv1.3"))
        c.close()

    def test_tls_1_2_serves_too(self):
        context = ssl.create_default_context(cafile=self.cert)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        c = self.connect(context)
        c.request("GET", "/stream")
        self.assertEqual(c.getresponse().read(), b"piece\n" * 5)
        c.close()

    def test_the_answer_to_a_body_too_large_is_not_lost(self):
        c = self.connect()
        c.request("POST", "/x", body=b"x" * 10_000_000)
        self.assertEqual(c.getresponse().status, 413)
        c.close()

    def test_plain_http_is_told_to_use_https(self):
        got = self.probe.raw(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        self.assertTrue(got.startswith(b"HTTP/1.1 400 "), got)
        self.assertIn(b"https", got)


if __name__ == "__main__":
    if not os.path.exists(PROBE):
        keelkit.skip("probe_http is not built")
    unittest.main()
