#!/usr/bin/env python3
"""Reloads with many sessions open: how many are dropped, and the longest time that an echo
takes while `keel route` reads its configuration again (a backend comes or goes each time),
beside the longest without reloads.

usage: bench/route_reload.py [N] [--reloads R] [--json FILE]   (build/release: keel, voice)
"""
import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
os.environ.setdefault("EK_BIN", str(ROOT / "build" / "release"))
os.environ.setdefault("KEEL", os.environ["EK_BIN"] + "/bin/keel")
sys.path.insert(0, str(ROOT / "tests" / "route"))
from proxykit import Keel  # noqa: E402

FRAME = bytes([0x82, 0xfe, 0x02, 0x80]) + bytes(4 + 640)


def echo(client):
    client.send(FRAME)
    return len(client.exactly(4 + 640)) == 4 + 640


class Gaps(threading.Thread):
    """Echoes on one session, one after the other: the longest each phase."""

    def __init__(self, client):
        super().__init__(daemon=True)
        self.client, self.longest, self.n, self.is_over = client, 0.0, 0, False

    def run(self):
        while not self.is_over:
            begun = time.perf_counter()
            if not echo(self.client):
                sys.exit("the session that speaks was dropped")
            self.longest = max(self.longest, time.perf_counter() - begun)
            self.n += 1
            time.sleep(0.0005)

    def phase(self, work):
        self.longest, self.n = 0.0, 0
        work()
        return self.longest * 1e3


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("n", type=int, nargs="?", default=8000)
    parser.add_argument("--reloads", type=int, default=20)
    parser.add_argument("--json")
    args = parser.parse_args()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    voice = subprocess.Popen([pathlib.Path(os.environ["EK_BIN"]) / "bin" / "voice",
                              "--name", "v"], stdout=subprocess.PIPE, text=True)
    port = int(voice.stdout.readline().rsplit(":", 1)[1])

    def config(more):
        rows = "".join(f"  - {{name: {n}, address: '127.0.0.1:{p}'}}\n"
                       for n, p in [("v", port)] + more)
        return ("listen: [127.0.0.1:0]\nadmin: 127.0.0.1:0\nlog_sessions: false\n"
                f"log_level: warn\nbackends:\n{rows}")

    with Keel(config([]).replace("log_level: warn\n", "")) as keel:
        clients = [keel.connect() for _ in range(args.n)]
        if any(client.upgrade()[0] != 101 for client in clients):
            sys.exit("a handshake was refused")
        gaps = Gaps(keel.connect())
        gaps.client.upgrade()
        gaps.start()
        calm = gaps.phase(lambda: time.sleep(3))
        took = []

        def reloads():
            for k in range(args.reloads):
                keel.write(config([("w", 9)] if k % 2 == 0 else []))
                begun = time.perf_counter()
                keel.post("/reload")
                took.append((time.perf_counter() - begun) * 1e3)
                time.sleep(0.1)
        pause = gaps.phase(reloads)
        gaps.is_over = True
        gaps.join()
        dropped = sum(not echo(client) for client in clients)
        for client in [*clients, gaps.client]:
            client.close()
    voice.kill()
    voice.wait()
    took.sort()
    rows = [{"name": "sessions dropped", "ours": dropped, "unit": "", "must": 0, "aim": 0},
            {"name": "longest echo during reloads", "ours": round(pause, 2), "unit": "ms",
             "must": 50, "aim": 50},
            {"name": "longest echo without", "ours": round(calm, 2), "unit": "ms"},
            {"name": "a reload, median", "ours": round(took[len(took) // 2], 2),
             "unit": "ms"}]
    for row in rows:
        print(f"{row['name']:28} {row['ours']:8} {row['unit']}  ({args.n} sessions, "
              f"{args.reloads} reloads)")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(rows, indent=1) + "\n")
    return 1 if dropped else 0


if __name__ == "__main__":
    sys.exit(main())
