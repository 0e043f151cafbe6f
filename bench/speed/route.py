#!/usr/bin/env python3
"""route.py - prints the table of keel route against other proxies, one thread each, by the
same generator, in turn in one run; bench/route.sh prepares what it needs."""
import argparse
import contextlib
import json
import os
import pathlib
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time

import table

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "peers"))
import proxies  # noqa: E402

GROUPS = ("idle", "tls", "grpc-idle", "handshake", "frames100", "frames200", "frames400",
          "grpc", "http2", "decision")
NEEDS = "haproxy nginx nghttpx envoy".split()


def parse():
    p = argparse.ArgumentParser(prog="bench/route.sh", description=__doc__)
    p.add_argument("--keel", required=True, help="the binary")
    p.add_argument("--pool", help="the binary bench_pool, for the cost of a decision")
    p.add_argument("--envoy", help="the binary; none: not compared")
    p.add_argument("--rows", default=",".join(GROUPS), help="some of " + ", ".join(GROUPS))
    p.add_argument("--repeats", type=int, default=9)
    p.add_argument("--seconds", type=float, default=1, help="of a repetition")
    p.add_argument("--speech", type=float, default=60,
                   help="seconds of speech before memory is looked at again")
    p.add_argument("--pairs", type=int, default=2000, help="idle WebSockets")
    p.add_argument("--proxies", default=",".join(proxies.NAMES),
                   help="some of " + ", ".join(proxies.NAMES))
    p.add_argument("--cores", default="0,1", help="of the proxy; of generator and backends")
    p.add_argument("--realtime", action="store_true",
                   help="everything in the class SCHED_RR, before what else runs; as root")
    p.add_argument("--json", help="write the rows to this file, one JSON object a line")
    o = p.parse_args()
    for name, known in (("rows", GROUPS), ("proxies", proxies.NAMES)):
        chosen = getattr(o, name).split(",")
        unknown = set(chosen) - set(known)
        if unknown:
            p.error(f"--{name} {', '.join(unknown)}: expected some of {', '.join(known)}")
        setattr(o, name, chosen)
    o.keel = os.path.abspath(o.keel)
    o.cores = o.cores.split(",")
    if len(o.cores) != 2:
        p.error("--cores: expected two, such as 0,1")
    return o


class Bench:
    """What all groups share: programs, backends, the generator."""

    def __init__(self, o, folder):
        self.o, self.folder = o, folder
        self.programs = proxies.find(o.keel, o.envoy)
        self.names = [n for n in o.proxies if n in self.programs]
        self.limit = min(resource.getrlimit(resource.RLIMIT_NOFILE)[1], 20000)
        self.backends = [self.backend() for _ in range(2)]
        for name in o.proxies:
            if name not in self.programs:
                print(f"{name} is not installed: not compared", file=sys.stderr)
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
             "-nodes", "-days", "30", "-subj", "/CN=localhost", "-keyout", f"{folder}/key.pem",
             "-out", f"{folder}/cert.pem"], check=True, capture_output=True)
        with open(f"{folder}/both.pem", "w") as f:
            f.write(open(f"{folder}/cert.pem").read() + open(f"{folder}/key.pem").read())

    def on_core(self, core):
        return [*(["chrt", "-r", "1"] if self.o.realtime else []), "taskset", "-c", core]

    def on_generator_core(self, *words):
        return [*self.on_core(self.o.cores[1]), self.o.keel, "bench", "route",
                *map(str, words)]

    def backend(self):
        process = subprocess.Popen(self.on_generator_core("--backend", "127.0.0.1:0"),
                                   stdout=subprocess.PIPE, text=True)
        port = int(re.search(r":(\d+)", process.stdout.readline()).group(1))
        return process, port

    def close(self):
        for process, _ in self.backends:
            process.terminate()
            process.wait()

    def load(self, port, *words):
        got = subprocess.run(self.on_generator_core(f"127.0.0.1:{port}", "--json", *words),
                             capture_output=True, text=True, timeout=300)
        if got.returncode:
            raise RuntimeError(f"{' '.join(map(str, words))}: {got.stderr or got.stdout}")
        return json.loads(got.stdout)

    @contextlib.contextmanager
    def proxy(self, name, kind):
        proxy = proxies.Proxy(name, kind, self.programs, [p for _, p in self.backends],
                              self.folder, self.limit, self.on_core(self.o.cores[0]))
        try:
            yield proxy
        finally:
            proxy.close()

    def each(self, kind, words, repeats, also_direct=False):
        """name -> reports of the repetitions; the order goes round. All proxies stay until
        the end: between its turns one waits and takes nothing. One that fails is left out,
        with a line."""
        got = {n: [] for n in [*self.names, *(["direct"] if also_direct else [])]}
        with contextlib.ExitStack() as stack:
            running = {"direct": None}
            for name in self.names:
                try:
                    running[name] = stack.enter_context(self.proxy(name, kind))
                except (RuntimeError, OSError) as e:
                    self.left_out(got, name, kind, e)
            for r in range(repeats):
                order = list(got)
                k = r % len(order)
                for name in order[k:] + order[:k]:
                    if got[name] is None:
                        continue
                    try:
                        got[name].append(self.one(name, kind, running[name], words))
                    except (RuntimeError, OSError) as e:
                        self.left_out(got, name, kind, e)
        return {n: v for n, v in got.items() if v}

    @staticmethod
    def left_out(got, name, kind, why):
        print(f"{name}, {kind}: {str(why).strip()[:300]}", file=sys.stderr)
        got[name] = None

    def one(self, name, kind, proxy, words):
        if not proxy:
            return self.load(self.backends[0][1], *words)
        report = self.load(proxy.port, *words, "--pid", proxy.pids())
        lost = report["failed"] + report["dropped"] + report["wrong"]
        if lost:
            print(f"{name}, {kind}: {lost} sessions failed: {report['errors']}",
                  file=sys.stderr)
        return report


def row(name, unit, values, against, must, aim=None, more_is_better=False, note=""):
    """values: name -> repetitions. against: a peer's name, or "best" of them. must and
    aim: of the ratio, which is turned so that more is better."""
    values = {n: v for n, v in values.items() if v and all(x > 0 for x in v)}
    ours, peers = values.get("keel"), {n: v for n, v in values.items() if n != "keel"}
    if ours is None:
        return None
    middle = {n: statistics.median(v) for n, v in values.items()}
    if against == "best" and peers:
        against = (max if more_is_better else min)(peers, key=lambda n: middle[n])
    got = table.row(name, unit, ours, peers.get(against), must, aim, note,
                    not more_is_better)
    spread = {n: [min(v), max(v)] for n, v in values.items()}
    return {**got, "peer_name": against if against in peers else None, "proxies": middle,
            "spread": spread}


def memory(b, kind, title, words, key_after, aim):
    reports = b.each(kind, words, 1)
    for name, key, is_wanted in ((f"{title}, opened", "opened_bytes_each", True),
                                 (f"{title}, after speech", "after_bytes_each", key_after)):
        if is_wanted:
            values = {n: [r["processes"][key] / 1e3 for r in v] for n, v in reports.items()}
            peer = values.get("haproxy")
            yield row(name, "kB", values, "haproxy", 1.0, aim(peer[0]) if peer else None)


def idle(b):
    # Each pair speaks five times a second: what a core carries for so many.
    words = ("-m", "speaking", "-n", b.o.pairs, "--warm-up", 64, "-i", "200ms", "--settle",
             "0ms", "-d", f"{b.o.speech:g}s")
    yield from memory(b, "ws", "idle WebSocket pair", words, True, lambda peer: peer / 2.5)


def tls(b):
    words = ("-m", "speaking", "-n", b.o.pairs, "--warm-up", 64, "-i", "200ms", "--settle",
             "0ms", "-d", f"{b.o.speech:g}s", "--tls")
    yield from memory(b, "tls", "the same, TLS to the client", words, True, lambda _: 1 / 0.6)


def grpc_idle(b):
    words = ("-p", "grpc", "-m", "idle", "-n", 500, "-c", 10, "--warm-up", 30, "-d", "1s")
    yield from memory(b, "h2", "idle gRPC bidi stream", words, False, lambda _: None)


def handshake(b):
    reports = b.each("ws", ("-m", "churn", "-n", 64, "--settle", "300ms", "-d",
                            f"{b.o.seconds:g}s"), b.o.repeats)
    yield row("CPU a handshake", "us", cpu(reports), "nginx", 1.0, 1 / 0.8)
    yield row("handshakes, from first packet to last, p50", "us", middle(reports, "opening_us", "p50"),
              "nginx", None)


def cpu(reports):
    return {n: [r["processes"]["cpu_us_each"] for r in v] for n, v in reports.items()
            if n != "direct"}


def middle(reports, key, quantile):
    return {n: [r[key][quantile] for r in v] for n, v in reports.items() if n != "direct"}


def frames(b, n):
    words = ("-m", "speaking", "-n", n, "--settle", "300ms", "-d", f"{b.o.seconds:g}s")
    reports = b.each("ws", words, b.o.repeats, True)
    yield row(f"CPU an echoed frame, {n} sessions", "us", cpu(reports), "best", 1.0, 1 / 0.8)
    direct = reports.pop("direct", None)
    for q in ("p50", "p90"):
        base = statistics.median(r["trip_us"][q] for r in direct) if direct else 0
        values = {name: [max(r["trip_us"][q] - base, 0.1) for r in v]
                  for name, v in reports.items()}
        yield row(f"added round trip {q}, {n} sessions", "us", values, "best", 1.0, None,
                  note=f"direct {base:.0f} us")


def grpc(b):
    words = ("-p", "grpc", "-m", "speaking", "-n", 50, "-c", 10, "--settle", "300ms", "-d",
             f"{b.o.seconds:g}s")
    reports = b.each("h2", (*words, "-i", "0ms"), b.o.repeats)
    yield row("CPU a gRPC bidi message, each behind the last", "us", cpu(reports), "haproxy",
              1.0)
    reports = b.each("h2", words, b.o.repeats)
    yield row("CPU a gRPC bidi message, every 20 ms", "us", cpu(reports), "haproxy", 1.0)


def http2(b):
    words = ("-p", "http2", "-m", "churn", "-n", 160, "-c", 16, "--settle", "300ms", "-d",
             f"{b.o.seconds:g}s")
    reports = b.each("h2", words, b.o.repeats)
    values = {n: [1e6 / v for v in us] for n, us in cpu(reports).items()}
    yield row("HTTP/2 requests a second of the proxy's CPU", "1/s", values, "haproxy", 1.0,
              None, True)


def decision(b):
    if not b.o.pool:
        return
    got = subprocess.run([*b.on_core(b.o.cores[0]), b.o.pool], capture_output=True,
                         text=True, check=True)
    found = re.search(r"effective_capacity\s+1000\s+\S+\s+(\S+)", got.stdout)
    if not found:
        raise RuntimeError(f"bench_pool said:\n{got.stdout}")
    ours = float(found.group(1)) / 1e3
    yield {**table.single("a decision among 1,000 backends", "us", [ours], [2 / ours], 1.0,
                          None, "ratio: 2 us over ours"),
           "peer_name": None, "proxies": {"keel": ours}, "spread": {}}


def shown(r, name):
    value = r["proxies"].get(name)
    text = "" if value is None else f"{value:.0f}" if value >= 200 else f"{value:.2f}" \
        if value < 20 else f"{value:.1f}"
    return f"**{text}**" if name == "keel" and table.verdict(r) == "SHORT" else text


def line(r):
    spread = "" if r["ratio"] is None else f"{r['ratio']:.2f} ({r['low']:.2f} to {r['high']:.2f})"
    verdict = {"SHORT": "**short**"}.get(table.verdict(r), table.verdict(r))
    cells = [r["name"], r["unit"], *(shown(r, n) for n in proxies.NAMES),
             r["peer_name"] or "", spread, verdict, r["note"]]
    return "| " + " | ".join(cells) + " |"


def machine():
    with open("/proc/cpuinfo") as f:
        found = re.search(r"model name\s*:\s*(.*)", f.read())
    return {"cpu": found.group(1) if found else "unknown", "cores": os.cpu_count(),
            "threads": 1, "date": time.strftime("%Y-%m-%d", time.gmtime())}


def main():
    o = parse()
    others = table.Others()
    groups = {"idle": idle, "tls": tls, "grpc-idle": grpc_idle, "handshake": handshake,
              "frames100": lambda b: frames(b, 100), "frames200": lambda b: frames(b, 200),
              "frames400": lambda b: frames(b, 400), "grpc": grpc, "http2": http2,
              "decision": decision}
    rows, facts = [], machine()
    print(f"| measure | unit | {' | '.join(proxies.NAMES)} | against | ratio | | |\n"
          f"|---|---|{'---|' * len(proxies.NAMES)}---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        b = Bench(o, folder)
        try:
            for name in o.rows:
                for r in groups[name](b):
                    if r is None:
                        continue
                    rows.append({**r, **facts, "load": round(os.getloadavg()[0], 2)})
                    print(line(r), flush=True)
        finally:
            b.close()
    if o.json:
        pathlib.Path(o.json).write_text("".join(json.dumps(r) + "\n" for r in rows))
    print(f"others took {100 * others.share():.0f} % of the processors", file=sys.stderr)


if __name__ == "__main__":
    main()
