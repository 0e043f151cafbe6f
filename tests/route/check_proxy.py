"""keel route's data path over the wire: HTTP and WebSocket through it, clients and
backends that leave, are slow or lie, retries, queue, drain, and the ledger at the end."""
import json
import os
import pathlib
import select
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import warnings
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from proxykit import (ACCEPT, KEY, PATIENCE_S, Backend, Client, Proxy,  # noqa: E402
                      accept_websocket, answer, dead_port, echo_http, echo_tunnel, frame,
                      keelkit, need_probe, start_voice, wait_for)


class Case(unittest.TestCase):
    def proxy(self, serves, *words, **settings):
        """A proxy in front of backends, one a function; everything ends with the test."""
        self.backends = [Backend(serve) for serve in serves]
        for backend in self.backends:
            self.addCleanup(backend.close)
        proxy = Proxy([b.port for b in self.backends], *words, **settings)

        def end():
            with proxy:
                # Whatever happened, nothing is left: the ledger is zero.
                self.assertTrue(wait_for(lambda: proxy.metric("placements") == 0),
                                "placements were not given back:\n" + proxy.output())
                self.assertTrue(wait_for(lambda: proxy.metric("open_sessions") == 0))
        self.addCleanup(end)
        return proxy


    def last_end(self, proxy):
        self.assertTrue(wait_for(lambda: proxy.records("session_end")))
        return proxy.records("session_end")[-1]


class Http(Case):
    def test_requests_of_one_connection_are_answered_in_turn(self):
        proxy = self.proxy([echo_http("a")])
        client = proxy.connect()
        for i in range(5):
            status, _, body = client.get(f"/x?i={i}")
            self.assertEqual((status, body.decode()),
                             (200, f"a|GET /x?i={i} HTTP/1.1|"))
        self.assertEqual(proxy.metric("connects_total"), 1)
        client.close()

    def test_an_idle_proxy_sleeps(self):
        proxy = self.proxy([echo_http("a")])
        client = proxy.connect()
        self.assertEqual(client.get()[0], 200)

        def wakes():
            return sum(int(line.split()[1])
                       for task in pathlib.Path(f"/proc/{proxy.process.pid}/task").iterdir()
                       for line in (task / "status").read_text().splitlines()
                       if line.startswith("voluntary_ctxt_switches"))
        def each():
            """Wakes a second of all threads."""
            before, since = wakes(), time.monotonic()
            time.sleep(1)
            return (wakes() - before) / (time.monotonic() - since)
        # What the session left behind may take a slow machine longer than a second.
        self.assertTrue(wait_for(lambda: each() < 25, 20))
        client.close()

    def test_requests_sent_ahead_are_answered_in_order(self):
        proxy = self.proxy([echo_http("a")])
        client = proxy.connect()
        client.send("".join(f"GET /{i} HTTP/1.1\r\nHost: h\r\n\r\n" for i in range(20)))
        for i in range(20):
            status, fields = client.head()
            self.assertEqual(client.body(fields), f"a|GET /{i} HTTP/1.1|".encode())
        client.close()

    def test_bodies_pass_in_both_framings(self):
        proxy = self.proxy([echo_http("a")])
        client = proxy.connect()
        client.send("POST /s HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello")
        self.assertIn(b"|hello", client.body(client.head()[1]))
        client.send("POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
                    "3\r\nhel\r\n2\r\nlo\r\n0\r\nX-Trailer: 1\r\n\r\n")
        self.assertIn(b"|hello", client.body(client.head()[1]))
        client.close()

    def test_a_request_cut_at_every_byte_is_the_same(self):
        proxy = self.proxy([echo_http("a")])
        text = b"POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" \
               b"3\r\nhel\r\n0\r\n\r\n"
        for cut in range(1, len(text), 3):
            client = proxy.connect()
            client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            client.send(text[:cut])
            time.sleep(0.004)
            client.send(text[cut:])
            self.assertIn(b"|hel", client.body(client.head()[1]), cut)
            client.close()

    def test_a_streamed_answer_is_passed_on_piece_by_piece(self):
        gate = threading.Event()

        def serve(client, backend):
            client.head()
            client.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                        "Transfer-Encoding: chunked\r\n\r\n7\r\ndata: 1\r\n")
            gate.wait(PATIENCE_S)
            client.send("7\r\ndata: 2\r\n0\r\n\r\n")
            client.head()
        proxy = self.proxy([serve])
        client = proxy.connect()
        client.send("GET /events HTTP/1.1\r\nHost: h\r\n\r\n")
        status, fields = client.head()
        self.assertEqual(fields["transfer-encoding"], "chunked")
        self.assertEqual(client.until(b"data: 1\r\n"), b"7\r\ndata: 1\r\n")
        self.assertFalse(gate.is_set())
        gate.set()
        self.assertEqual(client.until(b"0\r\n\r\n"), b"7\r\ndata: 2\r\n0\r\n\r\n")
        client.close()

    def test_an_answer_without_length_ends_with_its_connection(self):
        def serve(client, backend):
            client.head()
            client.send("HTTP/1.1 200 OK\r\n\r\nall of it")
        proxy = self.proxy([serve])
        client = proxy.connect()
        self.assertEqual(client.get()[2], b"all of it")
        old = proxy.connect().send("GET / HTTP/1.0\r\n\r\n")
        status, fields = old.head()
        self.assertNotIn("transfer-encoding", fields)
        self.assertEqual(old.rest(), b"all of it")

    def test_head_and_no_content_have_no_body(self):
        def serve(client, backend):
            while True:
                head = client.head()
                if "HEAD" in head[0]:
                    client.send("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
                else:
                    client.send("HTTP/1.1 204 No Content\r\n\r\n")
        proxy = self.proxy([serve])
        client = proxy.connect()
        for _ in range(3):
            client.send("HEAD / HTTP/1.1\r\nHost: h\r\n\r\n")
            self.assertEqual(client.head()[1]["content-length"], "1000")
            client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
            self.assertEqual(client.head()[0], 204)
        client.close()

    def test_expect_continue_is_asked_of_the_backend(self):
        def serve(client, backend):
            head = client.head()
            client.send("HTTP/1.1 100 Continue\r\n\r\n")
            answer(client, client.body(head[1]).decode())
        proxy = self.proxy([serve])
        client = proxy.connect()
        client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n"
                    "Expect: 100-continue\r\n\r\n")
        self.assertEqual(client.head()[0], 100)
        client.send("hi")
        self.assertEqual(client.body(client.head()[1]), b"hi")
        client.close()

    def test_fields_of_one_connection_go_no_further(self):
        proxy = self.proxy([echo_http("a")])
        client = proxy.connect()
        client.get("/", "Connection: keep-alive, X-Mine\r\nX-Mine: 1\r\nKeep-Alive: 5\r\n"
                        "Proxy-Connection: x\r\nTE: gzip\r\nUpgrade: h2c\r\n"
                        "HTTP2-Settings: AAA\r\nX-Forwarded-For: 6.6.6.6\r\nX-Kept: 2\r\n")
        fields = self.backends[0].requests[-1][1]
        for name in ("x-mine", "keep-alive", "proxy-connection", "te", "upgrade",
                     "http2-settings"):
            self.assertNotIn(name, fields)
        self.assertEqual(fields["x-kept"], "2")
        self.assertEqual(fields["x-forwarded-for"], "127.0.0.1")
        self.assertEqual(fields["x-forwarded-proto"], "http")
        self.assertEqual(fields["via"], "1.1 evenkeel")
        client.close()

    def test_what_a_trusted_client_forwards_is_kept(self):
        proxy = self.proxy([echo_http("a")], trusts_forwarded=1)
        client = proxy.connect()
        client.get("/", "X-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Proto: https\r\n")
        fields = self.backends[0].requests[-1][1]
        self.assertEqual(fields["x-forwarded-for"], "6.6.6.6, 127.0.0.1")
        self.assertEqual(fields["x-forwarded-proto"], "https")
        client.close()

    def test_reports_in_answers_are_taken_and_not_passed_on(self):
        def serve(client, backend):
            while client.head():
                answer(client, "x", extra="Endpoint-Load-Metrics: TEXT "
                       "cpu_utilization=0.25, named_metrics.active_sessions=3, "
                       "named_metrics.effective_capacity=12\r\n")
        proxy = self.proxy([serve])
        client = proxy.connect()
        status, fields, _ = client.get()
        self.assertNotIn("endpoint-load-metrics", fields)
        backend = proxy.backends()["b0"]
        self.assertEqual(backend["reports_total"], 1)
        self.assertEqual(backend["effective_capacity"], 12)
        client.close()

    def test_a_client_that_leaves_ends_the_backends_work(self):
        left = threading.Event()

        def serve(client, backend):
            if client.head() and client.is_closed():
                left.set()
        proxy = self.proxy([serve])
        client = proxy.connect().send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        self.assertTrue(wait_for(lambda: proxy.metric("placements") == 1))
        client.close()
        self.assertTrue(left.wait(PATIENCE_S))
        self.assertTrue(wait_for(lambda: proxy.metric("client_aborts_total") == 1))

    def test_a_broken_answer_is_not_taken_for_a_whole_one(self):
        def serve(client, backend):
            client.head()
            client.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        proxy = self.proxy([serve])
        client = proxy.connect().send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        status, fields = client.head()
        with self.assertRaises(ConnectionError):
            self.assertEqual(client.rest(), b"half")
            raise ConnectionError  # an end before the length is told, too

    def test_an_answer_that_is_no_http_is_a_502(self):
        for text in ("SSH-2.0-x\r\n\r\n", "HTTP/1.1 200 OK\nContent-Length: 0\n\n",
                     "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx",
                     "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked"
                     "\r\n\r\nx", "HTTP/1.1 101 Switching\r\nUpgrade: x\r\n"
                     "Connection: upgrade\r\n\r\n", "HTTP/1.1 abc\r\n\r\n"):
            with self.subTest(text):
                def serve(client, backend, text=text):
                    if client.head():
                        client.send(text)
                        client.rest()
                proxy = self.proxy([serve], logs_sessions=0)
                client = proxy.connect().send("POST / HTTP/1.1\r\nHost: h\r\n"
                                              "Content-Length: 0\r\n\r\n")
                self.assertEqual(client.head()[0], 502)
                client.close()
                self.doCleanups()


class Heads(Case):
    def test_heads_and_lines_have_their_limits(self):
        proxy = self.proxy([echo_http("a")])
        for text, status in ((f"GET /{'x' * 9000} HTTP/1.1\r\nHost: h\r\n\r\n", 414),
                             (f"GET / HTTP/1.1\r\nHost: h\r\nX: {'y' * 40000}\r\n\r\n", 431),
                             ("GET / HTTP/1.1\r\nHost: h\r\n" + "A: b\r\n" * 101 + "\r\n", 431)):
            client = proxy.connect().send(text)
            self.assertEqual(client.head()[0], status)
            client.close()

    def test_a_head_that_trickles_is_ended(self):
        proxy = self.proxy([echo_http("a")], head_timeout_us=2000000)
        client = proxy.connect()
        client.send("GET / HTTP/1.1\r\nHost")
        self.assertEqual(client.head()[0], 408)
        client.close()

    def test_an_upgrade_to_something_else_is_an_ordinary_request(self):
        proxy = self.proxy([echo_http("a")])
        client = proxy.connect()
        self.assertEqual(client.get("/", "Connection: Upgrade\r\nUpgrade: h2c\r\n")[0], 200)
        self.assertEqual(client.get("/", "Upgrade: websocket\r\n")[0], 200)
        client.close()


class WebSocket(Case):
    def test_bytes_pass_both_ways_after_the_handshake(self):
        proxy = self.proxy([echo_tunnel])
        client = proxy.connect()
        status, fields = client.upgrade(extra="Sec-WebSocket-Protocol: chat\r\n")
        self.assertEqual((status, fields["sec-websocket-accept"]), (101, ACCEPT))
        self.assertEqual(self.backends[0].requests[-1][1]["sec-websocket-protocol"], "chat")
        for n in (1, 640, 100000):
            client.send(b"z" * n)
            self.assertEqual(client.exactly(n), b"z" * n)
        client.close()

    def test_bytes_sent_before_the_101_are_not_lost(self):
        proxy = self.proxy([echo_tunnel])
        client = proxy.connect()
        client.send("GET /ws HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\n"
                    f"Upgrade: websocket\r\nSec-WebSocket-Key: {KEY}\r\n"
                    "Sec-WebSocket-Version: 13\r\n\r\nearly bytes")
        self.assertEqual(client.head()[0], 101)
        self.assertEqual(client.exactly(11), b"early bytes")
        client.close()

    def test_names_lists_and_case_of_the_handshake_do_not_matter(self):
        proxy = self.proxy([echo_tunnel])
        for upgrade, connection in (("websocket", "keep-alive, Upgrade"),
                                    ("WebSocket", "upgrade"), ("WEBSOCKET", "UPGRADE"),
                                    ("foo, websocket", "Upgrade , close")):
            client = proxy.connect()
            client.send(f"GET / HTTP/1.1\r\nhost: t\r\nCONNECTION: {connection}\r\n"
                        f"upgrade: {upgrade}\r\nsec-websocket-key: {KEY}\r\n"
                        "SEC-WEBSOCKET-VERSION: 13\r\n\r\n")
            status, fields = client.head()
            self.assertEqual(status, 101, (upgrade, connection))
            self.assertEqual(fields["connection"], "Upgrade")
            client.close()

    def test_a_wrong_accept_is_a_502(self):
        def serve(client, backend):
            if client.head():
                client.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                            "Connection: Upgrade\r\nSec-WebSocket-Accept: xxxx\r\n\r\n")
                client.rest()
        proxy = self.proxy([serve])
        self.assertEqual(proxy.connect().upgrade()[0], 502)

    def test_a_refused_handshake_is_passed_on(self):
        def serve(client, backend):
            while client.head():
                answer(client, "no", status="403 Forbidden")
        proxy = self.proxy([serve])
        client = proxy.connect()
        status, fields = client.upgrade()
        self.assertEqual((status, client.body(fields)), (403, b"no"))
        self.assertEqual(client.upgrade()[0], 403)  # the connection goes on
        client.close()

    def test_each_side_may_end_first_and_read_on(self):
        def serve(client, backend):
            accept_websocket(client, backend)
            client.send(b"answer to " + client.rest())  # after the client's FIN
        proxy = self.proxy([serve])
        client = proxy.connect()
        client.upgrade()
        client.send("all")
        client.sock.shutdown(socket.SHUT_WR)
        self.assertEqual(client.rest(), b"answer to all")

        done = threading.Event()

        def serve_first(client, backend):
            accept_websocket(client, backend)
            client.send("bye")
            client.sock.shutdown(socket.SHUT_WR)
            backend.got = client.rest()
            done.set()
        proxy = self.proxy([serve_first])
        client = proxy.connect()
        client.upgrade()
        self.assertEqual(client.rest(), b"bye")
        client.send("later")
        client.close()
        self.assertTrue(done.wait(PATIENCE_S))
        self.assertEqual(self.backends[0].got, b"later")

    def test_bytes_behind_an_urgent_one_and_an_end_in_one_packet_are_not_held_up(self):
        got, done = [], threading.Event()

        def serve(client, backend):
            accept_websocket(client, backend)
            got.append(client.rest())
            done.set()
        proxy = self.proxy([serve])
        client = proxy.connect()
        client.upgrade()
        for _ in range(20):  # a read stops before the urgent byte, whatever is behind it
            client.sock.send(b"abcd")
            client.sock.send(b"!", socket.MSG_OOB)
            client.sock.send(b"efgh")
        client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)
        client.sock.send(b"last")
        client.sock.shutdown(socket.SHUT_WR)
        self.assertTrue(done.wait(PATIENCE_S))
        self.assertEqual(got[0].replace(b"!", b""), b"abcdefgh" * 20 + b"last")
        client.close()

    def test_a_burst_both_ways_arrives_whole_and_its_end_behind_it(self):
        n = 3 * 1000 * 1000

        def serve(client, backend):
            accept_websocket(client, backend)
            writer = threading.Thread(target=client.send, args=(b"d" * n,))
            writer.start()
            backend.got = len(client.exactly(n))
            writer.join()
            client.sock.shutdown(socket.SHUT_WR)
            client.rest()
        proxy = self.proxy([serve])
        client = proxy.connect()
        client.upgrade()
        writer = threading.Thread(target=client.send, args=(b"u" * n,))
        writer.start()
        self.assertEqual(len(client.rest()), n)
        writer.join()
        self.assertEqual(self.backends[0].got, n)
        client.close()

    def test_a_reset_of_either_side_reaches_the_other(self):
        ended = threading.Event()

        def serve(client, backend):
            accept_websocket(client, backend)
            if client.is_closed():
                ended.set()
        proxy = self.proxy([serve])
        client = proxy.connect()
        client.upgrade()
        client.close(reset=True)
        self.assertTrue(ended.wait(PATIENCE_S))

        def serve_reset(client, backend):
            accept_websocket(client, backend)
            client.exactly(1)
            client.close(reset=True)
        proxy = self.proxy([serve_reset])
        client = proxy.connect()
        client.upgrade()
        client.send("x")
        self.assertTrue(client.is_closed())
        self.assertEqual(self.last_end(proxy)["by"], "backend")

    def test_a_slow_reader_stops_its_writer_and_memory_stays_flat(self):
        sent, enough = [], threading.Event()

        def serve(client, backend):
            accept_websocket(client, backend)
            client.sock.settimeout(0.1)
            while not enough.is_set():
                try:
                    sent.append(client.sock.send(b"q" * 65536))
                except TimeoutError:
                    pass
            client.sock.settimeout(PATIENCE_S)
            client.sock.shutdown(socket.SHUT_WR)
            client.rest()
        proxy = self.proxy([serve])
        clients = []
        before = proxy.anon_kb()
        for _ in range(8):
            client = proxy.connect()
            client.upgrade()
            clients.append(client)
        self.assertTrue(wait_for(lambda: proxy.metric("waits_total") >= 8))
        time.sleep(1)
        # One read of 64 KiB each, whatever waits in the sockets; a sanitizer holds more.
        self.assertLess(proxy.anon_kb() - before, 12288)
        enough.set()
        got = 0
        for client in clients:
            got += len(client.rest())
            client.close()
        self.assertEqual(got, sum(sent))

    def test_both_sides_slow_at_once_do_not_lock_up(self):
        def serve(client, backend):
            accept_websocket(client, backend)
            total = 0
            down = threading.Thread(target=lambda: client.sock.sendall(b"d" * 8000000),
                                    daemon=True)
            down.start()
            time.sleep(0.3)
            while total < 8000000:
                data = client.sock.recv(65536)
                if not data:
                    raise ConnectionError
                total += len(data)
            down.join()  # the socket is closed behind this
            backend.total = total
        proxy = self.proxy([serve])
        client = proxy.connect()
        self.assertEqual(client.upgrade()[0], 101)
        threading.Thread(target=lambda: client.sock.sendall(b"u" * 8000000),
                         daemon=True).start()
        time.sleep(0.3)
        self.assertEqual(len(client.exactly(8000000)), 8000000)
        self.assertTrue(wait_for(lambda: getattr(self.backends[0], "total", 0) == 8000000))
        client.close()

    def test_records_tell_of_start_and_end(self):
        proxy = self.proxy([echo_tunnel], log_interval_us=200000)
        client = proxy.connect()
        client.upgrade()
        client.send("12345")
        client.exactly(5)
        self.assertTrue(wait_for(lambda: len(proxy.records("session_open")) >= 2))
        client.close()
        self.assertTrue(wait_for(lambda: proxy.records("session_end")))
        start, end = proxy.records("session_start")[0], proxy.records("session_end")[0]
        self.assertEqual(start["session"], end["session"])
        self.assertEqual((start["backend"], start["kind"]), ("b0", "websocket"))
        self.assertEqual((end["bytes_up"], end["bytes_down"]), (5, 5))
        self.assertEqual((end["by"], end["why"], end["status"]), ("client", "done", 101))

    def test_a_silent_session_stays_and_a_limit_ends_it_if_asked_for(self):
        proxy = self.proxy([echo_tunnel], idle_timeout_us=2000000, head_timeout_us=2000000)
        client = proxy.connect()
        self.assertEqual(client.upgrade()[0], 101)
        time.sleep(4)
        client.send("still here")
        self.assertEqual(client.exactly(10), b"still here")
        client.close()
        proxy = self.proxy([echo_tunnel], tunnel_timeout_us=300000)
        client = proxy.connect()
        client.upgrade()
        self.assertTrue(client.is_closed())
        self.assertEqual(self.last_end(proxy)["why"], "silent")

    def test_a_session_ends_at_its_greatest_age(self):
        proxy = self.proxy([echo_tunnel], max_age_us=3000000)
        client = proxy.connect()
        self.assertEqual(client.upgrade()[0], 101)
        self.assertEqual(client.rest()[:4], b"\x88\x02\x03\xe9")  # Close, going away
        self.assertEqual(self.last_end(proxy)["why"], "max_age")

    def test_the_websockets_library_speaks_through_it(self):
        try:
            from websockets.sync.client import connect
            from websockets.sync.server import serve
        except ImportError:
            self.skipTest("websockets is not installed")

        def handler(ws):
            for message in ws:
                ws.send(message)
        server = serve(handler, "127.0.0.1", 0, open_timeout=PATIENCE_S, ping_interval=None)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.shutdown)
        with Proxy([server.socket.getsockname()[1]]) as proxy:
            with connect(f"ws://127.0.0.1:{proxy.port}/x", compression="deflate",
                         open_timeout=PATIENCE_S, ping_interval=None) as ws:
                for message in ("hello", b"\0\1\2" * 50000, "ü" * 1000, ""):
                    ws.send(message)
                    self.assertEqual(ws.recv(), message)
                self.assertTrue(ws.ping().wait(PATIENCE_S))
            self.assertTrue(wait_for(lambda: proxy.metric("placements") == 0))
            self.assertEqual(self.last_end(proxy)["why"], "done")


class Elsewhere(Case):
    def test_a_backend_that_is_not_there_costs_nobody_a_session(self):
        backend = Backend(echo_tunnel)
        self.addCleanup(backend.close)
        with Proxy([dead_port(self), backend.port], health_interval_us=60000000) as proxy:
            # Which of two equals is asked first is drawn.
            for n in range(200):
                client = proxy.connect()
                self.assertEqual(client.upgrade()[0], 101)
                client.close()
                if n >= 10 and proxy.metric("connect_failures_total") > 0:
                    break
            self.assertGreater(proxy.metric("connect_failures_total"), 0)
            self.assertTrue(wait_for(lambda: proxy.metric("placements") == 0))

    def test_a_backend_that_closes_before_it_answers_is_tried_no_more(self):
        def drop(client, backend):
            backend.note(client.head())
        proxy = self.proxy([drop, echo_http("b")])
        for _ in range(200):  # which of two equals is asked first is drawn
            client = proxy.connect()
            self.assertEqual(client.get()[2][:1], b"b")
            client.close()
            if any(self.backends[0].requests):
                return
        self.fail("the first backend was never asked")

    def test_a_request_with_side_effects_is_not_sent_twice(self):
        def drop(client, backend):
            head = client.head()
            if head:
                backend.note(head)
        proxy = self.proxy([drop, drop])
        client = proxy.connect().send("POST / HTTP/1.1\r\nHost: h\r\n"
                                      "Content-Length: 3\r\n\r\nabc")
        self.assertEqual(client.head()[0], 502)
        self.assertEqual(sum(len(b.requests) for b in self.backends), 1)

    def test_a_backend_that_says_503_is_believed_if_another_has_room(self):
        def full(client, backend):
            while client.head():
                answer(client, "full", status="503 Service Unavailable")
        proxy = self.proxy([full, echo_tunnel])
        for _ in range(6):
            client = proxy.connect()
            self.assertEqual(client.upgrade()[0], 101)
            client.close()
        proxy = self.proxy([full])
        client = proxy.connect()
        self.assertEqual(client.get()[0], 503)  # its own words, when there is no other
        client.close()

    def test_a_kept_connection_that_was_closed_is_replaced(self):
        def once(client, backend):
            head = client.head()
            if head:
                answer(client, "x")
        proxy = self.proxy([once])
        client = proxy.connect()
        for _ in range(10):
            self.assertEqual(client.get()[0], 200)
        client.close()

    def test_a_backend_killed_in_a_session_ends_that_session_alone(self):
        proxy = self.proxy([echo_tunnel, echo_tunnel])
        clients = []
        for _ in range(8):
            client = proxy.connect()
            client.upgrade()
            clients.append(client)
        self.backends[0].close()
        alive = 0
        for client in clients:
            try:
                client.send("ping")
                alive += client.exactly(4) == b"ping"
            except ConnectionError:
                pass
        self.assertEqual(alive, 4)
        for client in clients:
            client.close()

    def test_no_backend_at_all_is_a_503_that_says_when_to_come_back(self):
        with Proxy([dead_port(self)], health_interval_us=50000) as proxy:
            self.assertTrue(wait_for(lambda: proxy.metric("backends_up") == 0))
            client = proxy.connect()
            status, fields = client.upgrade()
            self.assertEqual(status, 503)
            self.assertIn(int(fields["retry-after"]), (1, 2))
            client.close()

    def test_a_backend_that_does_not_answer_is_a_504_where_a_limit_is_set(self):
        def silent(client, backend):
            if client.head():
                client.rest()
        proxy = self.proxy([silent], answer_timeout_us=200000)
        client = proxy.connect().send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        self.assertEqual(client.head()[0], 504)
        client.close()


class Room(Case):
    def test_who_finds_no_room_waits_for_it(self):
        proxy = self.proxy([echo_tunnel], "max=1", queue_timeout_us=600000000)
        first, second = proxy.connect(), proxy.connect()
        self.assertEqual(first.upgrade()[0], 101)
        answers = []
        thread = threading.Thread(target=lambda: answers.append(second.upgrade()[0]))
        thread.start()
        self.assertTrue(wait_for(lambda: proxy.metric("waiting_sessions") == 1))
        self.assertEqual(answers, [])
        first.close()
        thread.join(PATIENCE_S)
        self.assertEqual(answers, [101])
        second.close()

    def test_a_full_queue_or_a_long_wait_is_a_503_before_the_upgrade(self):
        proxy = self.proxy([echo_tunnel], "max=1", queue_timeout_us=5000000, max_queue=1)
        first, second, third = proxy.connect(), proxy.connect(), proxy.connect()
        first.upgrade()
        second.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        self.assertTrue(wait_for(lambda: proxy.metric("waiting_sessions") == 1))
        status, fields = third.upgrade()
        self.assertEqual(status, 503)
        self.assertIn("retry-after", fields)
        self.assertEqual(second.head()[0], 503)
        self.assertEqual(proxy.metric("refused_total"), 2)
        for client in (first, second, third):
            client.close()

    def test_who_leaves_the_queue_frees_its_place(self):
        proxy = self.proxy([echo_tunnel], "max=1", queue_timeout_us=600000000)
        first, second = proxy.connect(), proxy.connect()
        first.upgrade()
        second.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        self.assertTrue(wait_for(lambda: proxy.metric("waiting_sessions") == 1))
        second.close()
        self.assertTrue(wait_for(lambda: proxy.metric("waiting_sessions") == 0))
        first.close()

    def test_a_drained_backend_keeps_its_sessions_and_gets_no_more(self):
        proxy = self.proxy([echo_tunnel, echo_tunnel])
        clients = []
        for _ in range(4):
            clients.append(proxy.connect())
            clients[-1].upgrade()
        proxy.post("/drain?backend=b0")
        for _ in range(4):
            clients.append(proxy.connect())
            clients[-1].upgrade()
        counts = {n: b["open_sessions"] for n, b in proxy.backends().items()}
        self.assertEqual(counts, {"b0": 2, "b1": 6})
        for client in clients:
            client.send("ok")
            self.assertEqual(client.exactly(2), b"ok")
            client.close()

    def test_a_web_page_drains_nothing(self):
        proxy = self.proxy([echo_http("a")])
        for path in ("/drain", "/drain?backend=b0"):
            asked = urllib.request.Request(
                f"http://127.0.0.1:{proxy.admin}{path}", data=b"", method="POST",
                headers={"Origin": "https://page.example"})
            with self.assertRaises(urllib.error.HTTPError) as e:
                urllib.request.urlopen(asked, timeout=PATIENCE_S)
            self.assertEqual(e.exception.code, 403)
            e.exception.close()
        self.assertFalse(proxy.backends()["b0"]["draining"])
        client = proxy.connect()
        self.assertEqual(client.get()[0], 200)
        client.close()

    def test_the_proxy_drains_before_it_ends(self):
        proxy = self.proxy([echo_tunnel])
        client, idle = proxy.connect(), proxy.connect()
        client.upgrade()
        proxy.process.terminate()
        self.assertTrue(idle.is_closed())
        self.assertTrue(wait_for(lambda: self.refuses(proxy.port)))
        client.send("on and on")
        self.assertEqual(client.exactly(9), b"on and on")
        client.close()
        self.assertEqual(proxy.process.wait(PATIENCE_S), 0)
        self.assertEqual(self.last_end(proxy)["why"], "done")
        self._cleanups.pop()  # there is nobody left to ask

    def test_an_early_answer_to_a_client_that_stays_does_not_hold_up_the_drain(self):
        """The answer comes before the body: the connection ends, its client does not."""
        def serve(client, backend):
            while head := client.head():
                n = int(head[1]["content-length"])
                client.exactly(n if n < 200000 else 0)
                answer(client, "early")
        proxy = self.proxy([serve])
        client = proxy.connect()
        for n in (0, 5, 200000):
            client.send(f"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: {n}\r\n\r\n"
                        + "y" * min(n, 100000))
            status, fields = client.head()
            self.assertEqual((status, client.body(fields)), (200, b"early"))
        try:
            client.send("y" * 100000)
        except ConnectionError:
            pass  # it was waited for long enough
        self.assertEqual(fields["connection"], "close")
        proxy.process.terminate()
        self.assertEqual(proxy.process.wait(PATIENCE_S), 0)
        self._cleanups.pop()
        client.close()

    def test_a_drain_has_its_deadline(self):
        proxy = self.proxy([echo_tunnel], drain_us=300000)
        client = proxy.connect()
        self.assertEqual(client.upgrade()[0], 101)
        proxy.process.terminate()
        self.assertEqual(client.rest()[:4], b"\x88\x02\x03\xe9")  # Close, going away
        self.assertEqual(proxy.process.wait(PATIENCE_S), 0)
        self.assertEqual(self.last_end(proxy)["why"], "drain")
        self._cleanups.pop()

    @staticmethod
    def refuses(port):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            return True
        return False

    def test_explain_says_why(self):
        proxy = self.proxy([echo_http("a"), echo_http("b")])
        client = proxy.connect()
        client.get()
        decision = json.loads(proxy.get("/explain"))["decisions"][0]
        self.assertEqual(decision["candidates"], 2)
        self.assertIn(decision["backend"], ("b0", "b1"))
        self.assertIn("reason", decision)
        client.close()

    def test_threads_share_the_connections_evenly(self):
        proxy = self.proxy([echo_tunnel], threads=3)
        clients = []
        for _ in range(30):
            clients.append(proxy.connect())
            self.assertEqual(clients[-1].upgrade()[0], 101)
        for client in clients:
            client.send("x" * 1000)
        for client in clients:
            self.assertEqual(client.exactly(1000), b"x" * 1000)
            client.close()


class Tls(Case):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.cert, cls.key = cls.folder.name + "/c.pem", cls.folder.name + "/k.pem"
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                        "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
                        "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
                        "-keyout", cls.key, "-out", cls.cert], check=True,
                       capture_output=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def client(self, proxy):
        context = ssl.create_default_context(cafile=self.cert)
        sock = socket.create_connection(("127.0.0.1", proxy.port), timeout=PATIENCE_S)
        return Client(sock=context.wrap_socket(sock, server_hostname="localhost"))

    def echo(self, sock, data):
        """Sends and receives in turn, as much as goes: an SSL object is one thread's."""
        got, sent, end = b"", 0, time.monotonic() + PATIENCE_S
        sock.setblocking(False)
        while len(got) < len(data) and time.monotonic() < end:
            moved = 0
            try:
                part = data[sent:sent + 16384]
                moved += sock.send(part) if part else 0
                sent += moved
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                pass
            try:
                part = sock.recv(65536)
                if not part:
                    break
                got += part
                moved += len(part)
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                pass
            if not moved:
                select.select([sock], [sock] if sent < len(data) else [], [], 1)
        sock.setblocking(True)
        return got

    def test_a_tls_client_is_served_and_told_apart(self):
        proxy = self.proxy([echo_http("a")], f"cert={self.cert}", f"key={self.key}")
        client = self.client(proxy)
        for _ in range(3):
            self.assertEqual(client.get()[0], 200)
        fields = self.backends[0].requests[-1][1]
        self.assertEqual(fields["x-forwarded-proto"], "https")
        client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 200000\r\n\r\n")
        client.send("x" * 200000)
        self.assertEqual(len(client.body(client.head()[1])), 200000 + 18)
        client.close()

    def test_versions_of_tls_before_1_2_are_refused(self):
        proxy = self.proxy([echo_http("a")], f"cert={self.cert}", f"key={self.key}")
        for version, is_served in ((ssl.TLSVersion.TLSv1_1, False),
                                   (ssl.TLSVersion.TLSv1_2, True),
                                   (ssl.TLSVersion.TLSv1_3, True)):
            context = ssl.create_default_context(cafile=self.cert)
            context.set_ciphers("ALL:@SECLEVEL=0")  # else this side refuses it
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)
                context.minimum_version = context.maximum_version = version
            with socket.create_connection(("127.0.0.1", proxy.port), timeout=PATIENCE_S) as raw:
                if is_served:
                    s = context.wrap_socket(raw, server_hostname="localhost")
                    self.assertEqual(Client(sock=s).get()[0], 200)
                    s.close()
                    continue
                with self.assertRaisesRegex(ssl.SSLError, "ALERT_PROTOCOL_VERSION"):
                    context.wrap_socket(raw, server_hostname="localhost")

    def test_a_websocket_over_tls_passes_large_messages_both_ways(self):
        proxy = self.proxy([echo_tunnel], f"cert={self.cert}", f"key={self.key}")
        client = self.client(proxy)
        self.assertEqual(client.upgrade()[0], 101)
        for n in (1, 20000, 300000):
            self.assertEqual(self.echo(client.sock, b"t" * n), b"t" * n)
        client.close()

    def serve_tls(self, serve):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.cert, self.key)

        def wrapped(client, backend):
            inner = Client(sock=context.wrap_socket(client.sock, server_side=True))
            serve(inner, backend)
        return wrapped

    def test_a_backend_is_spoken_to_over_tls_and_verified(self):
        backend = Backend(self.serve_tls(echo_tunnel))
        self.addCleanup(backend.close)
        address = f"a=localhost:{backend.port}"
        with Proxy([address], f"ca={self.cert}", "tls=1") as proxy:
            client = proxy.connect()
            self.assertEqual(client.upgrade()[0], 101)
            client.send("over tls")
            self.assertEqual(client.exactly(8), b"over tls")
            client.close()
            self.assertTrue(wait_for(lambda: proxy.metric("placements") == 0))
        with Proxy([address], "tls=1") as proxy:  # signed by nobody the system knows
            client = proxy.connect()
            self.assertIn(client.upgrade()[0], (502, 503))
            client.close()

    def test_a_handshake_that_never_ends_is_ended(self):
        proxy = self.proxy([echo_http("a")], f"cert={self.cert}", f"key={self.key}",
                           head_timeout_us=200000)
        client = proxy.connect().send(b"\x16\x03\x01")
        self.assertTrue(client.is_closed())


class Reports(Case):
    """The example backend, which counts its sessions with libevenkeel."""

    def test_polled_reports_tell_capacity_and_sessions(self):
        ports = [start_voice(self, "--name", "v0", "--cores", 4), start_voice(self, "--cores", 1)]
        proxy = Proxy(ports, "report=/load", report_interval_us=100000)
        self.addCleanup(proxy.__exit__, None)
        self.assertTrue(wait_for(lambda: proxy.metric("backends_reporting") == 2))
        clients = []
        for _ in range(10):
            clients.append(proxy.connect())
            self.assertEqual(clients[-1].upgrade()[0], 101)
        self.assertTrue(wait_for(lambda: sum(
            b["reported_sessions"] for b in proxy.backends().values()) == 10))
        states = proxy.backends()
        # Four times the cores, four times the room: the larger one got most of them.
        self.assertGreater(states["b0"]["effective_capacity"],
                           2 * states["b1"]["effective_capacity"])
        self.assertGreaterEqual(states["b0"]["open_sessions"], 8)
        clients[0].send(frame(b"hello"))
        self.assertEqual(clients[0].exactly(7), b"\x82\x05hello")
        for client in clients:
            client.close()
        self.assertTrue(wait_for(lambda: proxy.metric("placements") == 0))

    def test_a_backend_at_its_limit_gets_none_while_another_has_room(self):
        ports = [start_voice(self, "--max-sessions", 2), start_voice(self, "--max-sessions", 50)]
        proxy = Proxy(ports, "report=/load", report_interval_us=100000)
        self.addCleanup(proxy.__exit__, None)
        self.assertTrue(wait_for(lambda: proxy.metric("backends_reporting") == 2))
        clients = []
        for _ in range(20):
            clients.append(proxy.connect())
            self.assertEqual(clients[-1].upgrade()[0], 101)
        states = proxy.backends()
        self.assertLessEqual(states["b0"]["open_sessions"], 2)
        self.assertEqual(sum(b["open_sessions"] for b in states.values()), 20)
        for client in clients:
            client.close()

    def test_an_agent_line_drains_its_backend(self):
        line = [b"up 100%\n"]

        def agent(client, backend):
            client.send(line[0])
        agents = Backend(agent)
        self.addCleanup(agents.close)
        proxy = self.proxy([echo_http("a"), echo_http("b")],
                           f"agent=127.0.0.1:{agents.port}", report_interval_us=50000)
        self.assertTrue(wait_for(lambda: proxy.backends()["b0"]["reports_total"] > 0))
        line[0] = b"drain\n"
        self.assertTrue(wait_for(
            lambda: all(b["draining"] for b in proxy.backends().values())))
        line[0] = b"ready up 100%\n"
        self.assertTrue(wait_for(
            lambda: not any(b["draining"] for b in proxy.backends().values())))

    def test_a_lying_report_harms_nobody(self):
        texts = ['{"effective_capacity":-5}', "{", "[]", '{"effective_capacity":1e999}',
                 "x" * 40000, '{"active_sessions":"nan"}']

        def serve(client, backend):
            head = client.head()
            if head and "/load" in head[0]:
                answer(client, texts[len(backend.requests) % len(texts)])
                backend.note(head)
            elif head:
                answer(client, "fine")
        proxy = self.proxy([serve], "report=/load", report_interval_us=20000)
        self.assertTrue(wait_for(lambda: len(self.backends[0].requests) > 12))
        client = proxy.connect()
        self.assertEqual(client.get()[0], 200)
        client.close()

    def test_a_health_check_takes_a_backend_out_and_back(self):
        status = ["200 OK"]

        def serve(client, backend):
            head = client.head()
            if head:
                answer(client, "x", status=status[0] if "/health" in head[0] else "200 OK")
        proxy = self.proxy([serve], "health=/health", health_interval_us=50000)
        status[0] = "500 Oops"
        self.assertTrue(wait_for(lambda: proxy.metric("backends_up") == 0))
        status[0] = "200 OK"
        self.assertTrue(wait_for(lambda: proxy.metric("backends_up") == 1))


class Command(unittest.TestCase):
    def test_keel_route_serves_from_flags_and_ends_on_sigterm(self):
        keel = keelkit.need_keel()
        backend = Backend(echo_tunnel)
        self.addCleanup(backend.close)
        process = subprocess.Popen(
            [keel, "route", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0",
             "--backend", f"one=127.0.0.1:{backend.port},weight=2,max_sessions=5"],
            stderr=subprocess.PIPE, text=True)
        ready = json.loads(process.stderr.readline())
        self.assertEqual((ready["event"], ready["policy"]), ("ready", "effective_capacity"))
        client = Client(int(ready["listen"].rsplit(":", 1)[1]))
        self.assertEqual(client.upgrade()[0], 101)
        client.close()
        process.terminate()
        self.assertEqual(process.wait(PATIENCE_S), 0)
        process.stderr.close()

    def test_bad_options_are_named(self):
        keelkit.need_keel()
        for words, said in (((), "no backend"),
                            (("--backend", "a=h:1,wait=3"), "wait"),
                            (("--backend", "a=h"), "'h' is no address"),
                            (("--backend", "h:1,agent=h"), "agent 'h' is no address"),
                            (("--backend", "a=h:1", "--backend", "a=h:2"), "twice"),
                            (("--backend", "h:1", "--key", "x"), "header:NAME"),
                            (("--backend", "h:1", "--tls-cert", "c.pem"), "tls_key: is missing"),
                            (("--backend", "h:1", "--policy", "best"), "round_robin")):
            done = keelkit.keel("route", "--check", *words)
            self.assertEqual(done.returncode, 2, words)
            self.assertIn(said, done.stderr)
        self.assertEqual(keelkit.keel("route", "--check", "--backend", "h:1").returncode, 0)


if __name__ == "__main__":
    need_probe()
    unittest.main(warnings="ignore")
