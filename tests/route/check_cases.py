"""Cases from other proxies' users (docs/cases.md, Route) that no other test holds: restarts,
crowds, silence, peers that vanish, pings, heads, handshakes and messages of any size."""
import os
import pathlib
import select
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "net"))
from proxykit import (PATIENCE_S, Backend, Proxy, accept_websocket,  # noqa: E402
                      echo_tunnel, end_balanced, need_probe, wait_for)
from check_h2 import Client as H2Client  # noqa: E402
from check_h2 import frame  # noqa: E402


class Case(unittest.TestCase):
    def backend(self, serve):
        backend = Backend(serve)
        self.addCleanup(backend.close)
        return backend

    def proxy(self, backends, *words, **settings):
        ports = [b if isinstance(b, str) else b.port for b in backends]
        return end_balanced(self, Proxy(ports, *words, **settings))

    def h2(self, proxy, **options):
        c = H2Client(proxy.port, **options)
        self.addCleanup(c.close)
        return c


def h2_backend(on_head, settings=b"", seen=None):
    """A backend of frames: on_head(client, stream) answers; seen gets every (kind, flags)."""
    def serve(client, backend):
        if len(client.exactly(24)) < 24:
            return  # a health check
        client.send(frame(4, 0, 0, settings))
        while len(head := client.exactly(9)) == 9:
            client.exactly(int.from_bytes(head[:3], "big"))
            if seen is not None:
                seen.append((head[3], head[4]))
            if head[3] == 4 and not head[4] & 1:
                client.send(frame(4, 1))
            if head[3] == 1:
                on_head(client, int.from_bytes(head[5:9], "big"))
    return serve


def ok(client, stream):
    client.send(frame(1, 5, stream, b"\x88"))


class Restarts(Case):
    def test_after_a_rolling_restart_sessions_are_even(self):
        """Each backend goes and comes back in turn; whose session broke starts another."""
        backends = [Backend(echo_tunnel) for _ in range(3)]
        proxy = self.proxy(backends, health_interval_us=50000)
        self.addCleanup(lambda: [b.close() for b in backends])

        def start():
            client = proxy.connect()
            self.assertEqual(client.upgrade()[0], 101)
            self.addCleanup(client.close)
            return client

        def up():
            return sum(b["up"] for b in proxy.backends().values())
        clients = [start() for _ in range(30)]
        for i, old in enumerate(backends):
            lost = proxy.backends()[f"b{i}"]["open_sessions"]
            old.close()
            self.assertTrue(wait_for(lambda: up() == 2))
            gone = []

            def are_told():
                ready, _, _ = select.select([c.sock for c in clients], [], [], 0)
                gone[:] = [c for c in clients if c.sock in ready]
                return len(gone) == lost
            self.assertTrue(wait_for(are_told))
            for client in gone:
                client.close()
            clients = [c for c in clients if c not in gone] + [start() for _ in gone]
            backends[i] = Backend(echo_tunnel, port=old.port)
            self.assertTrue(wait_for(lambda: up() == 3))
        # Those that end and come again find the newcomer: as many as it lacked.
        for client in clients[::3]:
            client.close()
        self.assertTrue(wait_for(lambda: proxy.metric("placements") == 20))
        for _ in range(10):
            start()
        counts = sorted(b["open_sessions"] for b in proxy.backends().values())
        self.assertEqual(sum(counts), 30)
        self.assertLessEqual(counts[-1] - counts[0], 2, counts)

    def test_a_refused_crowd_is_told_to_come_back_at_different_times(self):
        proxy = self.proxy([self.backend(h2_backend(lambda c, s: None))], "h2=1", "max=1",
                           queue_timeout_us=0, retry_after_us=8000000)
        holder = self.h2(proxy)
        holder.request("/", method="POST", end=False)
        self.assertTrue(wait_for(lambda: proxy.metric("placements") == 1))
        c, said = self.h2(proxy), []
        for _ in range(50):
            s = c.wait(c.request("/t.T/X", headers=[("content-type", "application/grpc")]))
            said.append(int(s["head"]["grpc-retry-pushback-ms"]))
            s = c.wait(c.request("/x"))
            self.assertEqual(s["head"][":status"], "503")
            self.assertIn(int(s["head"]["retry-after"]), range(8, 17))
        self.assertTrue(all(8000 <= ms <= 16000 for ms in said), said)
        self.assertGreater(len(set(said)), 40)
        self.assertGreater(max(said) - min(said), 4000)


class Silence(Case):
    def test_a_silent_stream_of_grpc_stays_however_short_the_idle_timeout(self):
        streams = []
        backend = self.backend(h2_backend(lambda c, s: streams.append((c, s))))
        proxy = self.proxy([backend], "h2=1", idle_timeout_us=2000000,
                           head_timeout_us=2000000)
        c = self.h2(proxy)
        stream = c.request("/t.T/Chat", method="POST", end=False,
                           headers=[("content-type", "application/grpc")])
        self.assertTrue(wait_for(lambda: streams))
        time.sleep(4)
        client, at = streams[0]
        client.send(frame(1, 4, at, b"\x88") + frame(0, 1, at, b"at last"))
        self.assertEqual(c.wait(stream)["data"], b"at last")

    def test_a_silent_websocket_of_http_2_stays(self):
        proxy = self.proxy([self.backend(echo_tunnel)], idle_timeout_us=2000000,
                           head_timeout_us=2000000)
        c = self.h2(proxy)
        stream = websocket(c)
        c.until(lambda: c.streams[stream]["head"])
        time.sleep(4)
        c.send(stream, b"still here", end=False)
        c.until(lambda: c.streams[stream]["data"] == b"still here")

    def test_backends_are_sent_no_pings(self):
        seen = []
        backend = self.backend(h2_backend(lambda c, s: None, seen=seen))
        proxy = self.proxy([backend], "h2=1", idle_timeout_us=2000000)
        c = self.h2(proxy)
        for _ in range(20):
            c.request("/t.T/Chat", method="POST", end=False,
                      headers=[("content-type", "application/grpc")])
        self.assertTrue(wait_for(lambda: sum(k == 1 for k, _ in seen) == 20))
        for _ in range(10):  # the client's pings are for the proxy
            c.conn.ping(b"12345678")
            c.flush()
        c.until(lambda: c.acks == 10)
        time.sleep(4)
        self.assertNotIn(6, {kind for kind, _ in seen})


def websocket(c):
    c.until(lambda: c.conn.remote_settings.enable_connect_protocol == 1)
    return c.request("/chat", method="CONNECT", end=False, headers=[
        (":protocol", "websocket"), ("sec-websocket-version", "13")])


class Vanished(Case):
    """A namespace of its own, whose link is taken away: no FIN, no RST, no packet."""
    NET = f"198.18.{os.getpid() % 256}"

    def ip(self, *words, netns=None):
        inside = ["nsenter", "-t", str(netns), "-n"] if netns else []
        subprocess.run([*inside, "ip", *words], check=True, capture_output=True)

    def namespace(self):
        """(pid in it, address of our end, name of our link), or a skip."""
        name = f"ekv{os.getpid() % 100000}"
        try:
            holder = subprocess.Popen(["unshare", "-n", "sleep", "600"])
            self.addCleanup(lambda: (holder.kill(), holder.wait()))

            def is_apart():
                return holder.poll() is not None or os.readlink(
                    f"/proc/{holder.pid}/ns/net") != os.readlink("/proc/self/ns/net")
            wait_for(is_apart)
            self.ip("link", "add", name, "type", "veth", "peer", "name", "in0", "netns",
                    str(holder.pid))
            self.addCleanup(lambda: subprocess.run(["ip", "link", "del", name],
                                                   capture_output=True))
            self.ip("addr", "add", f"{self.NET}.1/30", "dev", name)
            self.ip("link", "set", name, "up")
            self.ip("addr", "add", f"{self.NET}.2/30", "dev", "in0", netns=holder.pid)
            self.ip("link", "set", "in0", "up", netns=holder.pid)
        except (OSError, subprocess.CalledProcessError):
            self.skipTest("no network namespaces here (needs root and iproute2)")
        return holder.pid, name

    CLIENT = """
import socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
s.sendall(b"GET /ws HTTP/1.1\\r\\nHost: t\\r\\nConnection: Upgrade\\r\\nUpgrade: websocket\\r\\n"
          b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\\r\\nSec-WebSocket-Version: 13\\r\\n\\r\\n")
print(s.recv(4096).split()[1].decode(), flush=True)
sys.stdin.read()
"""

    def test_a_peer_that_vanished_is_found_in_time(self):
        pid, link = self.namespace()
        left = threading.Event()

        def serve(client, backend):
            accept_websocket(client, backend)
            client.sock.settimeout(PATIENCE_S)
            try:
                client.rest()
            finally:
                left.set()
        proxy = self.proxy([self.backend(serve)], f"listen={self.NET}.1:0",
                           dead_peer_us=2000000)
        client = subprocess.Popen(
            ["nsenter", "-t", str(pid), "-n", sys.executable, "-c", self.CLIENT,
             self.NET + ".1", str(proxy.port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

        def end():
            client.kill()
            client.wait()
            client.stdin.close()
            client.stdout.close()
        self.addCleanup(end)
        self.assertEqual(client.stdout.readline().strip(), "101")
        self.assertEqual(proxy.metric("placements"), 1)
        time.sleep(1.2)  # the probes are switched on after a second of life
        self.ip("link", "set", link, "down")
        self.assertTrue(wait_for(lambda: proxy.metric("placements") == 0))
        self.assertTrue(left.wait(PATIENCE_S))


class Heads(Case):
    def test_large_metadata_passes_and_absurd_is_refused(self):
        proxy = self.proxy([self.backend(h2_backend(ok))], "h2=1")
        c = self.h2(proxy)

        def ask(n):
            pieces = [(f"x-{i}", "m" * 1000) for i in range(n // 1000)]
            stream = c.request("/t.T/Unary", method="POST",
                               headers=[("content-type", "application/grpc"), *pieces])
            return c.wait(stream)
        for n in (1000, 8000, 16000, 30000):
            self.assertEqual(ask(n)["head"][":status"], "200", n)
        for n in (40000, 64000):
            self.assertEqual(ask(n)["head"][":status"], "431", n)
        self.assertEqual(ask(8000)["head"][":status"], "200")
        self.assertIsNone(c.goaway)


class WebSockets(Case):
    def test_a_websocket_is_not_asked_of_an_http_2_backend_that_did_not_offer_it(self):
        seen = []
        proxy = self.proxy([self.backend(h2_backend(ok, seen=seen))], "h2=1")
        client = proxy.connect()
        self.addCleanup(client.close)
        self.assertIn(client.upgrade()[0], (502, 503))
        c = self.h2(proxy)
        s = c.wait(websocket(c))
        self.assertIn(s["head"][":status"], ("502", "503"))
        self.assertNotIn(1, {kind for kind, _ in seen})
        self.assertEqual(c.wait(c.request("/"))["head"][":status"], "200")

    def test_large_and_fragmented_messages_pass(self):
        proxy = self.proxy([self.backend(echo_tunnel)])
        client = proxy.connect()
        self.addCleanup(client.close)
        self.assertEqual(client.upgrade()[0], 101)
        mask = b"\x01\x02\x03\x04"
        for frames in (
                # 16 MiB in one frame; fragments of every length form with a ping between
                b"\x82\xff" + struct.pack(">Q", 1 << 24) + mask + bytes(1 << 24),
                b"".join(bytes([fin | (op if i == 0 else 0)]) + size + mask + bytes(n)
                         for i, (fin, op, n, size) in enumerate((
                             (0, 2, 5, b"\x85"), (0, 0, 0, b"\x80"),
                             (0, 0, 200, b"\xfe" + struct.pack(">H", 200)),
                             (0, 0, 70000, b"\xff" + struct.pack(">Q", 70000)),
                             (0x80, 0, 1, b"\x81")))) + b"\x89\x80" + mask):
            sender = threading.Thread(target=client.send, args=(frames,))
            sender.start()
            self.assertEqual(client.exactly(len(frames)), frames)
            sender.join()


if __name__ == "__main__":
    need_probe()
    unittest.main(warnings="ignore")
