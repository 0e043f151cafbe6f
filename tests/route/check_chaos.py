"""The proxy between rude clients and rude backends: resets at any moment, refusals, garbage,
half requests, slow readers; backends that are killed, stopped, slow, lie in their reports and
move between addresses; a link that delays and loses packets and is cut. Afterwards nothing
is left, and no session was ever answered by another one's backend.

usage: EK_CHAOS_SECONDS=N check_chaos.py     6 of each part in the test run; longer by hand
"""
import ctypes
import fcntl
import heapq
import json
import os
import pathlib
import random
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from proxykit import (PATIENCE_S, Backend, Client, Proxy, accept_websocket,  # noqa: E402
                      answer, hold_port, need_probe, wait_for)

SECONDS = float(os.environ.get("EK_CHAOS_SECONDS", "6"))


def rude_backend(client, backend):
    mood = random.random()
    if mood < 0.1:
        client.close(reset=True)
        return
    if mood < 0.2:
        client.head()
        client.close(reset=True)
        return
    if mood < 0.3:
        if client.head():
            answer(client, "no", status="503 Service Unavailable")
        return
    if mood < 0.5:
        if client.head():
            answer(client, "x" * random.choice([0, 10, 100000]))
        return
    accept_websocket(client, backend)
    while client.more():
        client.send(client.buffer)
        client.buffer = b""
        if random.random() < 0.05:
            client.close(reset=random.random() < 0.5)
            return


def rude_request(client):
    mood = random.random()
    if mood < 0.5:
        if client.upgrade()[0] != 101:
            return
        for _ in range(random.randint(0, 20)):
            data = os.urandom(random.choice([10, 1000, 60000]))
            client.send(data)
            if random.random() < 0.7:
                client.exactly(len(data))
    elif mood < 0.7:
        client.get()
    elif mood < 0.8:
        client.send("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 100000\r\n\r\n"
                    + "y" * random.choice([100, 100000]))
    elif mood < 0.9:
        client.send("GET / HTTP/1.1\r\nHo")
    else:
        client.send(os.urandom(200))


class Chaos(unittest.TestCase):
    def test_nothing_is_left_after_it(self):
        backends = [Backend(rude_backend) for _ in range(3)]
        for backend in backends:
            self.addCleanup(backend.close)
        with Proxy([b.port for b in backends], "max=40", threads=2, logs_sessions=0,
                   queue_timeout_us=300000, health_interval_us=200000) as proxy:
            is_over = threading.Event()

            def run():
                while not is_over.is_set():
                    try:
                        client = proxy.connect()
                        client.sock.settimeout(3)
                        rude_request(client)
                        client.close(reset=random.random() < 0.4)
                    except (OSError, TypeError, ValueError):
                        pass
            threads = [threading.Thread(target=run) for _ in range(40)]
            for thread in threads:
                thread.start()
            time.sleep(SECONDS)

            def calm():
                """What a slow machine has not come to yet; in the end it was chaos indeed."""
                return [name for name in ("websockets", "retries", "client_aborts",
                                          "backend_aborts", "bad_requests")
                        if not proxy.metric(name + "_total")]
            wait_for(lambda: not calm())
            is_over.set()
            for thread in threads:
                thread.join()
            self.assertEqual(calm(), [])
            for name in ("placements", "open_sessions", "open_connections",
                         "waiting_sessions"):
                self.assertTrue(wait_for(lambda name=name: proxy.metric(name) == 0), name)
            self.assertTrue(all(b["open_sessions"] == 0
                                for b in proxy.backends().values()))


# Hosts ----------------------------------------------------------------------------------

LIES = ['{"effective_capacity":NaN}', '{"effective_capacity":"nan","active_sessions":1}',
        '{"effective_capacity":-5,"active_sessions":-1}', '{"effective_capacity":1e308}',
        '{"active_sessions":1e308}', '{"cpu_utilization":-1e308}', "{", "[]", "x" * 40000, ""]


def host(name, port):
    """A backend in a process of its own: each line of a session comes back behind the
    host's name and the session's number; its reports lie."""
    begun, count = time.monotonic(), [0]

    def serve(client, backend):
        head = client.head()
        if head is None:
            return
        if "upgrade" not in head[1]:
            mood = random.random()
            if mood < 0.1:
                time.sleep(1)
            elif mood < 0.5:
                answer(client, random.choice(LIES))
                return
            # Frozen for ten seconds at a time.
            answer(client, json.dumps({"active_sessions": (time.monotonic() - begun) // 10,
                                       "effective_capacity": 50}))
            return
        count[0] += 1
        client.buffer = b"\r\n".join([head[0].encode()] + [
            f"{k}: {v}".encode() for k, v in head[1].items()]) + b"\r\n\r\n" + client.buffer
        accept_websocket(client, backend)
        mark = f"{name} {port} {os.getpid()} {count[0]} ".encode()
        while (line := client.until(b"\n")) is not None:
            if random.random() < 0.02:
                time.sleep(random.random())
            client.send(mark + line)
    backend = Backend(serve, port=port, host="0.0.0.0")
    print(backend.port, flush=True)
    sys.stdin.read()


class Host:
    def __init__(self, name):
        self.name, self.process = name, None
        self.held = hold_port("0.0.0.0")  # while the host is down nobody else gets its port
        self.port = self.held.getsockname()[1]
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [sys.executable, __file__, "host", self.name, str(self.port)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


def is_over(until, counts):
    """At its time, or as soon afterwards as a slow machine came to something."""
    now = time.monotonic()
    return now > until + PATIENCE_S or (now > until and len(counts) > 10)


def talk(port, until, faults, counts):
    """Sessions one after another; who answers must stay the same in each."""
    while not is_over(until, counts):
        client = None
        try:
            client = Client(port)
            client.sock.settimeout(5)
            if client.upgrade()[0] == 101:
                who = None
                for i in range(random.randint(1, 40)):
                    said = f"{random.random()} {i}\n".encode()
                    client.send(said)
                    mark, _, line = (client.until(b"\n") or b"").rpartition(b" 0.")
                    if not mark:
                        break
                    if who not in (None, mark) or b"0." + line != said:
                        faults.append((who, mark, line, said))
                    who = mark
                    time.sleep(random.random() * 0.03)
                counts.append(1)
        except (OSError, TypeError, ValueError):
            pass
        finally:
            if client:
                client.close(reset=random.random() < 0.3)


class Hosts(unittest.TestCase):
    def flap(self, hosts):
        ways = [("127.0.0.1",), ("127.0.0.2",), ("127.0.0.2", "127.0.0.1"), ()]
        other = self.names.with_suffix(".new")
        other.write_text("".join(f"{h.name} {a}\n" for h in hosts
                                 for a in random.choice(ways)))
        other.rename(self.names)

    def test_no_session_meets_another_backend_and_nothing_is_left(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.names = pathlib.Path(folder.name) / "names"
        hosts = [Host(f"h{i}") for i in range(3)]
        self.addCleanup(lambda: [h.kill() for h in hosts])
        self.names.write_text("".join(f"{h.name} 127.0.0.1\n" for h in hosts))
        faults, counts = [], []
        with Proxy([f"{h.name}={h.name}:{h.port}" for h in hosts], f"names={self.names}",
                   "report=/load", threads=2, logs_sessions=0, health_interval_us=200000,
                   report_interval_us=100000, resolve_interval_us=100000,
                   connect_timeout_us=1000000, answer_timeout_us=1500000,
                   queue_timeout_us=300000, dead_peer_us=3000000) as proxy:
            until = time.monotonic() + SECONDS
            n_files = len(os.listdir(f"/proc/{proxy.process.pid}/fd"))
            threads = [threading.Thread(target=talk, args=(proxy.port, until, faults, counts))
                       for _ in range(24)]
            for thread in threads:
                thread.start()
            while not is_over(until, counts):
                victim = random.choice(hosts)
                if random.random() < 0.4:
                    victim.kill()
                    victim.start()
                else:
                    victim.process.send_signal(signal.SIGSTOP)
                    time.sleep(random.random())
                    victim.process.send_signal(signal.SIGCONT)
                self.flap(hosts)
                time.sleep(0.2)
            for thread in threads:
                thread.join()
            self.assertEqual(faults, [])
            self.assertGreater(len(counts), 10)
            for name in ("placements", "open_sessions", "open_connections",
                         "waiting_sessions"):
                self.assertTrue(wait_for(lambda name=name: proxy.metric(name) == 0), name)
            # What is left are connections kept to backends, and checks on their way.
            self.assertTrue(wait_for(lambda: len(os.listdir(
                f"/proc/{proxy.process.pid}/fd")) <= n_files + 12))


# A bad link -----------------------------------------------------------------------------

def open_tun(name, address):
    """A network interface whose packets are read and written here."""
    fd = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(fd, 0x400454ca, struct.pack("16sH22x", name.encode(), 0x1001))
    for words in (("addr", "add", f"{address}/24", "dev", name), ("link", "set", name, "up")):
        subprocess.run(["ip", *words], check=True, capture_output=True)
    return fd


def behind(address, server, port, seconds):
    """In a namespace of its own: hands its end of the link over, then holds sessions."""
    if ctypes.CDLL(None, use_errno=True).unshare(0x40000000):
        sys.exit(1)
    fd = open_tun("ek0", address)
    sock = socket.socket(fileno=0)
    socket.send_fds(sock, [b"x"], [fd])
    faults, counts = [], []

    class Far(Client):
        def __init__(self, _):
            super().__init__(sock=socket.create_connection((server, int(port)),
                                                           timeout=PATIENCE_S))
    globals()["Client"] = Far
    until = time.monotonic() + float(seconds)
    threads = [threading.Thread(target=talk, args=(0, until, faults, counts))
               for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    held = []
    for _ in range(5):  # these are open when the link is cut
        try:
            held.append(Far(0))
            held[-1].upgrade()
        except (OSError, TypeError):
            pass
    sock.sendall(json.dumps([len(faults), len(counts), len(held)]).encode() + b"\n")
    time.sleep(600)


class Relay(threading.Thread):
    """Packets between two interfaces: late by 5 to 40 ms, so out of turn, and 3 % lost."""

    def __init__(self, a, b):
        super().__init__(daemon=True)
        self.ends, self.is_cut, self.lost, self.passed = (a, b), False, 0, 0

    def run(self):
        late, n = [], 0
        while True:
            wait = max(0, late[0][0] - time.monotonic()) if late else 0.1
            ready, _, _ = select.select(self.ends, [], [], wait)
            for fd in ready:
                packet = os.read(fd, 65536)
                if self.is_cut or random.random() < 0.03:
                    self.lost += 1
                    continue
                n += 1
                heapq.heappush(late, (time.monotonic() + random.uniform(0.005, 0.04), n,
                                      self.ends[fd == self.ends[0]], packet))
            while late and late[0][0] <= time.monotonic():
                _, _, fd, packet = heapq.heappop(late)
                try:
                    os.write(fd, packet)
                    self.passed += 1
                except OSError:
                    pass


class Link(unittest.TestCase):
    def test_sessions_over_a_link_that_delays_loses_and_is_cut(self):
        net, name = f"198.19.{os.getpid() % 256}", f"ekt{os.getpid() % 100000}"
        try:
            near = open_tun(name, f"{net}.1")
        except (OSError, subprocess.CalledProcessError):
            self.skipTest("no tun devices here (needs root and iproute2)")
        self.addCleanup(lambda: os.close(near))
        host = Host("h")
        self.addCleanup(host.kill)
        with Proxy([host.port], f"listen={net}.1:0", "report=/load", logs_sessions=0,
                   dead_peer_us=3000000, report_interval_us=200000) as proxy:
            ours, theirs = socket.socketpair()
            ours.settimeout(SECONDS + 3 * PATIENCE_S)
            far = subprocess.Popen([sys.executable, __file__, "behind", f"{net}.2",
                                    f"{net}.1", str(proxy.port), str(SECONDS)], stdin=theirs)
            theirs.close()

            def end():
                far.kill()
                far.wait()
                ours.close()
            self.addCleanup(end)
            try:
                _, fds, _, _ = socket.recv_fds(ours, 1, 1)
                relay = Relay(near, fds[0])
            except (OSError, IndexError):
                self.skipTest("no network namespaces here (needs root)")
            relay.start()
            said = b""
            while not said.endswith(b"\n"):
                part = ours.recv(100)
                self.assertTrue(part, "the far side ended")
                said += part
            faults, sessions, held = json.loads(said)
            self.assertEqual(faults, 0)
            self.assertGreater(sessions, 10)
            self.assertGreater(relay.lost, 0)
            relay.is_cut = True
            self.assertTrue(wait_for(lambda: proxy.metric("placements") == 0), held)
            self.assertTrue(wait_for(lambda: proxy.metric("open_sessions") == 0))


if __name__ == "__main__":
    if sys.argv[1:2] == ["host"]:
        host(sys.argv[2], int(sys.argv[3]))
        sys.exit()
    if sys.argv[1:2] == ["behind"]:
        behind(*sys.argv[2:])
        sys.exit()
    need_probe()
    unittest.main(warnings="ignore")
