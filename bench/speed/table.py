"""table.py - rows, their medians and spread, and how they are printed."""
import json
import os
import random
import statistics
import time

KEYS = ("name", "ours", "peer", "unit", "ratio", "low", "high", "must", "aim")


def spread(values):
    """(median, low, high): all but the lowest and the highest tenth lie between."""
    v = sorted(values)
    cut = len(v) // 10
    return statistics.median(v), v[cut], v[-1 - cut]


def row(name, unit, ours, peer, must=None, aim=None, note="", less_is_better=False):
    """ours and peer: repetitions in pairs. The ratio is that of each pair, turned so that
    more is better; its median and spread are told. peer None: there is none, no ratio."""
    if peer is None:
        return {"name": name, "ours": statistics.median(ours), "peer": None, "unit": unit,
                "ratio": None, "low": None, "high": None, "must": must, "aim": aim,
                "repeats": len(ours), "note": note or "no peer"}
    pairs = zip(peer, ours) if less_is_better else zip(ours, peer)
    ratio, low, high = spread([a / b for a, b in pairs])
    return {"name": name, "ours": statistics.median(ours), "peer": statistics.median(peer),
            "unit": unit, "ratio": ratio, "low": low, "high": high, "must": must,
            "aim": aim, "repeats": len(ours), "note": note}


def single(name, unit, ours, ratio, must=None, aim=None, note=""):
    """A row without a peer: its ratio is to a limit, or to our own other figure."""
    mid, low, high = spread(ratio)
    return {"name": name, "ours": statistics.median(ours), "peer": None, "unit": unit,
            "ratio": mid, "low": low, "high": high, "must": must, "aim": aim,
            "repeats": len(ours), "note": note}


def bootstrap(pairs, n=4000, seed=1):
    """The 95 % interval of the mean of log ratios of pairs, by resampling pairs, as
    (ratio, low, high)."""
    from math import exp, log
    rng = random.Random(seed)
    logs = [log(a / b) for a, b in pairs]
    means = sorted(statistics.fmean(rng.choices(logs, k=len(logs))) for _ in range(n))
    return exp(statistics.fmean(logs)), exp(means[int(0.025 * n)]), exp(means[int(0.975 * n)])


def number(x):
    if x is None:
        return "-"
    return f"{x:.0f}" if abs(x) >= 1000 else f"{x:.4g}"


def verdict(r):
    if r["ratio"] is None:
        return "not compared"
    if r["must"] is None:
        return "" if r["aim"] is None else "aim" if r["ratio"] >= r["aim"] else "below aim"
    if r["ratio"] < r["must"]:
        return "SHORT"
    return "aim" if r["aim"] is not None and r["ratio"] >= r["aim"] else "yes"


HEAD = ("| work | ours | peer | unit | ratio | spread | must | aim | reached | |\n"
        "|---|---|---|---|---|---|---|---|---|---|")


def line(r):
    fine = ".4f" if r["must"] is not None and 0.99 < r["must"] < 1 else ".2f"
    ratio = " | " if r["ratio"] is None else (
        f"{r['ratio']:{fine}} | {r['low']:{fine}} to {r['high']:{fine}}")
    return (f"| {r['name']} | {number(r['ours'])} | {number(r['peer'])} | {r['unit']} | "
            f"{ratio} | "
            f"{'' if r['must'] is None else r['must']} | "
            f"{'' if r['aim'] is None else r['aim']} | {verdict(r)} | {r['note']} |")


class Others:
    """How much of the processors others took since it was made. What is still running of
    our own counts as others', so ask when all of it has ended."""

    def __init__(self):
        self.at = self.now()

    @staticmethod
    def now():
        """(clock, busy seconds of all processors, our own)"""
        with open("/proc/stat") as f:
            v = [int(x) for x in f.readline().split()[1:9]]
        busy = (sum(v) - v[3] - v[4]) / os.sysconf("SC_CLK_TCK")  # not idle, not waiting
        t = os.times()
        return (time.monotonic(), busy,
                t.user + t.system + t.children_user + t.children_system)

    def share(self):
        clock, busy, own = (b - a for a, b in zip(self.at, self.now()))
        return max(0.0, busy - own) / (clock * os.cpu_count())


class Table:
    """Prints rows as they come, and keeps the JSON file whole after each."""

    def __init__(self, facts, json_path):
        self.facts, self.json_path, self.rows = facts, json_path, []

    def add(self, *rows):
        for r in rows:
            if not self.rows:
                print(HEAD, flush=True)
            self.rows.append({**r, **self.facts, "load": round(os.getloadavg()[0], 2)})
            print(line(r), flush=True)
        if self.json_path:
            with open(self.json_path + ".new", "w") as f:
                f.writelines(json.dumps(r, allow_nan=False) + "\n" for r in self.rows)
            os.replace(self.json_path + ".new", self.json_path)
