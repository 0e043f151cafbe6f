"""The proxy between rude clients and rude backends: resets at any moment, refusals, garbage,
half requests, slow readers; afterwards nothing is left.

usage: check_chaos.py [SECONDS]     6 in the test run; longer by hand
"""
import os
import pathlib
import random
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from proxykit import Backend, Proxy, accept_websocket, answer, need_probe, wait_for  # noqa: E402

SECONDS = 6


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
            until = time.monotonic() + SECONDS

            def run():
                while time.monotonic() < until:
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
            for thread in threads:
                thread.join()
            for name in ("placements", "open_sessions", "open_connections",
                         "waiting_sessions"):
                self.assertTrue(wait_for(lambda name=name: proxy.metric(name) == 0), name)
            self.assertTrue(all(b["open_sessions"] == 0
                                for b in proxy.backends().values()))
            # It was chaos indeed.
            for name in ("websockets", "retries", "client_aborts", "backend_aborts",
                         "bad_requests"):
                self.assertGreater(proxy.metric(name + "_total"), 0, name)


if __name__ == "__main__":
    need_probe()
    if len(sys.argv) > 1:
        SECONDS = float(sys.argv.pop(1))
    unittest.main(warnings="ignore")
