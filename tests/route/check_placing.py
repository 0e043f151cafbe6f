"""Where whole proxies place sessions: keys of policy hash, reports in answers and trailers in
every form, several proxies before the same backends."""
import base64
import json
import os
import pathlib
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from concurrent import futures

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from proxykit import (PATIENCE_S, Backend, Client, Keel, answer, echo_http,  # noqa: E402
                      end_balanced, start_voice, wait_for)
import keelkit  # noqa: E402

try:
    import grpc
except ImportError:
    grpc = None


def config(ports, more="", extra="", admin="127.0.0.1:0"):
    rows = "\n".join(f"  - {{name: b{i}, address: '127.0.0.1:{p}'{extra}}}"
                     for i, p in enumerate(ports))
    return f"admin: {admin}\nlisten: [127.0.0.1:0]\n{more}\nbackends:\n{rows}\n"


class Case(unittest.TestCase):
    def keel(self, text):
        return end_balanced(self, Keel(text))

    def backend(self, serve):
        b = Backend(serve)
        self.addCleanup(b.close)
        return b


class Keys(Case):
    def places(self, key, ask):
        """Which backend each of 40 keys was sent to, twice over two connections."""
        backends = [self.backend(echo_http(f"b{i}")) for i in range(4)]
        k = self.keel(config([b.port for b in backends], f"policy: hash\nkey: {key}"))
        rounds = []
        for _ in range(2):
            client = k.connect()
            rounds.append([ask(client, f"room-{i}") for i in range(40)])
            client.close()
        self.assertEqual(rounds[0], rounds[1])
        return rounds[0]

    def name_of(self, answered):
        self.assertEqual(answered[0], 200)
        return answered[2].split(b"|")[0]

    def test_a_header_a_cookie_or_a_query_key_keeps_its_backend(self):
        for key, ask in (
                ("header:X-Room", lambda c, r: c.get(extra=f"x-room: {r}\r\n")),
                ("cookie:room", lambda c, r: c.get(extra=f"Cookie: a=b; room={r}; c=d\r\n")),
                ("query:room", lambda c, r: c.get(f"/call?a=b&room={r}&c=d"))):
            with self.subTest(key):
                found = self.places(key, lambda c, r: self.name_of(ask(c, r)))
                self.assertEqual(len(set(found)), 4)

    def test_without_a_key_a_client_keeps_its_backend(self):
        found = self.places("header:X-Room", lambda c, r: self.name_of(c.get()))
        self.assertEqual(len(set(found)), 1)


class Answers(Case):
    PROTO = (b"\x09" + struct.pack("<d", 0.25) + b"".join(
        b"\x42" + bytes([len(n) + 11]) + b"\x0a" + bytes([len(n)]) + n + b"\x11" +
        struct.pack("<d", v) for n, v in ((b"effective_capacity", 12),
                                          (b"active_sessions", 3))))
    TEXT = ("cpu_utilization=0.25, named_metrics.active_sessions=3, "
            "named_metrics.effective_capacity=12")
    JSON = json.dumps({"cpu_utilization": 0.25, "named_metrics": {
        "active_sessions": 3, "effective_capacity": 12}})

    def assert_taken(self, k):
        backend = k.backends()["b0"]
        self.assertEqual((backend["reports_total"], backend["effective_capacity"],
                          backend["reported_sessions"]), (1, 12, 3))

    def test_each_form_of_a_header_is_taken_and_not_passed_on(self):
        binary = base64.b64encode(self.PROTO).decode()
        for name, value in (("Endpoint-Load-Metrics", f"TEXT {self.TEXT}"),
                            ("endpoint-load-metrics", f"JSON {self.JSON}"),
                            ("endpoint-load-metrics", f"BIN {binary}"),
                            ("endpoint-load-metrics-bin", binary)):
            with self.subTest(value.split()[0]):
                def serve(client, backend, field=f"{name}: {value}\r\n"):
                    while client.head():
                        answer(client, "x", extra=field)
                k = self.keel(config([self.backend(serve).port]))
                c = k.connect()
                _, fields, _ = c.get()
                c.close()
                self.assertFalse([f for f in fields if f.startswith("endpoint-load")])
                self.assert_taken(k)

    def test_one_in_the_trailers_of_a_body_in_chunks_is_taken(self):
        def serve(client, backend):
            while client.head():
                client.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"
                            f"0\r\nendpoint-load-metrics: TEXT {self.TEXT}\r\nx-a: b\r\n\r\n")
        k = self.keel(config([self.backend(serve).port]))
        c = k.connect().send("GET / HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n")
        said = c.rest().lower()
        c.close()
        self.assertNotIn(b"endpoint-load", said)
        self.assert_taken(k)

    @unittest.skipIf(grpc is None, "grpcio is not installed")
    def test_one_in_the_trailers_of_grpc_is_taken(self):
        def serve(request, ctx):
            ctx.set_trailing_metadata((("endpoint-load-metrics-bin", self.PROTO),
                                       ("x-said", "yes")))
            return request
        server = grpc.server(futures.ThreadPoolExecutor(2))
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.T", {
            "Unary": grpc.unary_unary_rpc_method_handler(serve)}),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        self.addCleanup(lambda: server.stop(0).wait())
        k = self.keel(config([port], extra=", protocol: http2"))
        with grpc.insecure_channel(f"127.0.0.1:{k.port}") as channel:
            reply, call = channel.unary_unary("/t.T/Unary").with_call(b"x", timeout=PATIENCE_S)
        self.assertEqual(reply, b"x")
        self.assertEqual(dict(call.trailing_metadata()), {"x-said": "yes"})
        self.assert_taken(k)


class Proxies(Case):
    def come(self, proxy):
        """A session, as a client opens one. The last seats may be taken by who came through
        another proxy a moment ago: then the backend itself refuses, and one comes again."""
        for _ in range(200):
            c = proxy.connect()
            status = c.upgrade()[0]
            if status == 101:
                return c
            self.assertEqual(status, 503)
            c.close()
            time.sleep(0.1)
        self.fail("no seat was found")

    def together(self, n):
        """n proxies, three backends with 6, 12 and 24 seats, and a session for each seat."""
        sizes = (6, 12, 24)
        ports = [start_voice(self, "--max-sessions", s, "--cores", 4 * s) for s in sizes]
        proxies = [self.keel(config(ports, "report_path: /load\nreport_interval: 100ms\n"
                                           "queue_timeout: 20s"))
                   for _ in range(n)]
        for k in proxies:
            self.assertTrue(wait_for(lambda k=k: k.metric("backends_reporting") == 3))
        clients, placed = [], []

        def counts():
            return [sum(k.backends()[f"b{i}"]["open_sessions"] for k in proxies)
                    for i in range(3)]
        for i in range(sum(sizes)):
            clients.append(self.come(proxies[i % n]))
            if i == sum(sizes) // 2 - 1:
                placed = counts()
            time.sleep(0.02)
        self.assertEqual(counts(), list(sizes))  # every seat is found, none is given twice
        for c in clients:
            c.close()
        return placed

    def test_two_fill_the_backends_together(self):
        half = self.together(2)
        self.assertGreater(half[2], half[0], half)

    def test_four_fill_the_backends_together(self):
        half = self.together(4)
        self.assertGreater(half[2], half[0], half)


class Admin(Case):
    def test_it_answers_at_a_socket_file(self):
        a = self.backend(echo_http("a"))
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/admin"
            text = config([a.port], admin=f"unix:{path}")
            file = pathlib.Path(folder, "c.yaml")
            file.write_text(text)
            log = pathlib.Path(folder, "log")
            with open(log, "wb") as out:
                process = subprocess.Popen([os.environ["KEEL"], "route", file], stderr=out)
            try:
                self.assertTrue(wait_for(lambda: '"ready"' in log.read_text()))

                def ask(line):
                    s = socket.socket(socket.AF_UNIX)
                    s.settimeout(PATIENCE_S)
                    s.connect(path)
                    c = Client(sock=s)
                    c.send(f"{line} HTTP/1.1\r\nHost: t\r\nContent-Length: 0\r\n\r\n")
                    status, fields = c.head()
                    body = c.body(fields)
                    c.close()
                    return status, body
                self.assertEqual(ask("GET /health")[0], 200)
                self.assertIn(b"evenkeel_route_", ask("GET /metrics")[1])
                self.assertEqual(ask("POST /drain?backend=b0")[0], 200)
                self.assertEqual(json.loads(ask("GET /backends")[1])["backends"][0]["name"],
                                 "b0")
            finally:
                process.terminate()
                self.assertEqual(process.wait(timeout=PATIENCE_S), 0)
            self.assertFalse(os.path.exists(path))


if __name__ == "__main__":
    unittest.main(verbosity=2)
