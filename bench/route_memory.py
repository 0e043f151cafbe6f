#!/usr/bin/env python3
"""User memory of the proxy for an idle WebSocket pair: RssAnon before and with N of them,
right after their handshakes and again after each has spoken.

usage: bench/route_memory.py [N] [--json FILE]   (build/release with tests: probe_proxy, voice)
"""
import argparse
import json
import os
import pathlib
import resource
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
os.environ.setdefault("EK_BIN", str(ROOT / "build" / "release"))
sys.path.insert(0, str(ROOT / "tests" / "route"))
from proxykit import Proxy  # noqa: E402


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("n", type=int, nargs="?", default=2000)
    parser.add_argument("--json")
    args = parser.parse_args()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    voice = subprocess.Popen([pathlib.Path(os.environ["EK_BIN"]) / "bin" / "voice", "--name", "v"],
                             stdout=subprocess.PIPE, text=True)
    port = int(voice.stdout.readline().rsplit(":", 1)[1])
    with Proxy([port], logs_sessions=0) as proxy:
        warm = proxy.connect()
        warm.upgrade()
        before = proxy.anon_kb()
        clients = []
        for _ in range(args.n):
            clients.append(proxy.connect())
            if clients[-1].upgrade()[0] != 101:
                sys.exit("a handshake was refused")
        idle = (proxy.anon_kb() - before) / args.n
        frame = bytes([0x82, 0xfe, 0x02, 0x80]) + bytes(4 + 640)
        for _ in range(5):
            for client in clients:
                client.send(frame)
            for client in clients:
                client.exactly(4 + 640)
        time.sleep(0.5)
        spoken = (proxy.anon_kb() - before) / args.n
        for client in [*clients, warm]:
            client.close()
    voice.kill()
    voice.wait()
    rows = [{"name": "idle WebSocket pair", "ours": round(idle, 3), "unit": "kB",
             "must": 4.6, "aim": 2.5},
            {"name": "the same after speech", "ours": round(spoken, 3), "unit": "kB",
             "must": 4.6, "aim": 2.5}]
    for row in rows:
        print(f"{row['name']:24} {row['ours']:7.3f} {row['unit']}  (must {row['must']}, "
              f"aim {row['aim']}; {args.n} pairs)")
    if args.json:
        pathlib.Path(args.json).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
