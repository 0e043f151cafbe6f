#!/usr/bin/env python3
"""train.py - prints the table of training against PyTorch, both in turn in one run;
bench/train.sh prepares what it needs."""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import main as common
import sides
import table

GROUPS = ("speed", "eval", "padded", "table")
SETS = {"Beauty": 50, "LastFM": 200}  # the longest sequence that counts
MUST, AIM = 4.0, 8.0
WARM_S = 0.5
CONFIG = """run:
  name: eval
  dir: {run}
  threads: {threads}
data:
  path: {data}
  format: s3rec
model:
  max_length: {length}
train:
  max_steps: 20
"""


def parse():
    p = argparse.ArgumentParser(prog="bench/train.sh", description=__doc__)
    p.add_argument("--keel", help="the binary")
    p.add_argument("--rec", help="the binary bench_rec")
    p.add_argument("--table", help="the binary bench_table")
    p.add_argument("--peer-python", help="a Python with torch; none: no peer")
    p.add_argument("--data", required=True, help="a folder with Beauty.txt, LastFM.txt")
    p.add_argument("--check", action="store_true", help="only look at the options")
    p.add_argument("--rows", default=",".join(GROUPS), help="some of " + ", ".join(GROUPS))
    p.add_argument("--threads", type=int, default=0, help="0: one a physical core")
    p.add_argument("--repeats", type=int, default=5)
    p.add_argument("--seconds", type=float, default=3, help="of a repetition")
    p.add_argument("--json", help="write the rows to this file, one JSON object a line")
    o = p.parse_args()
    o.rows = o.rows.split(",")
    unknown = set(o.rows) - set(GROUPS)
    if unknown:
        p.error(f"--rows {', '.join(unknown)}: expected some of {', '.join(GROUPS)}")
    for name in SETS:
        if not os.path.exists(file_of(o, name)):
            sys.exit(f"{file_of(o, name)} is not there; --data names the folder")
    if not o.check and not (o.keel and o.rec and o.table):
        p.error("--keel, --rec and --table: expected the binaries")
    return o


def file_of(o, name):
    return os.path.join(o.data, name + ".txt")


class Ours(sides.Jobs):
    def __init__(self, o, model, *options):
        super().__init__(o.rec, "--jobs", 1, "--model", model, "--threads", o.threads,
                         *options)

    def repeat(self, seconds):
        return self.ask(seconds)


class Peer(sides.Jobs):
    def __init__(self, o, model, name):
        script = os.path.join(os.path.dirname(__file__), "..", "peers", "torch_train.py")
        super().__init__(o.peer_python, script, "--model", model, "--threads", o.threads,
                         "--data", file_of(o, name), "--length", SETS[name])

    def repeat(self, seconds):
        return self.ask("train", seconds)


def in_turn(o, calls):
    """What each call answers, o.repeats times; who goes first changes. A call takes the
    seconds of a repetition."""
    got = [[] for _ in calls]
    for r in range(-1, o.repeats):
        order = list(enumerate(calls))
        for i, call in reversed(order) if r % 2 else order:
            answer = call(o.seconds if r >= 0 else WARM_S)
            if r >= 0:
                got[i].append(answer)
    return got


def rates(answers):
    return [a["median"] for a in answers]


def speed(o):
    """Ours in f32 and in bf16 (weights and sums f32), each beside the peer's f32."""
    for name, length in SETS.items():
        for model in ("sasrec", "hstu"):
            options = ("--data", file_of(o, name), "--length", length)
            programs = {"f32": Ours(o, model, *options),
                        "bf16": Ours(o, model, "--bf16", 1, *options)}
            if o.peer_python:
                programs["peer"] = Peer(o, model, name)
            got = dict(zip(programs, in_turn(o, [p.repeat for p in programs.values()])))
            for p in programs.values():
                p.close()
            last = got["bf16"][-1]
            memory = [(a["planned"], a["grown"]) for a in got["f32"] + got["bf16"]]
            peer = got.get("peer")
            note = f"{peer[-1]['mode']}, {100 * peer[-1]['waste']:.0f} % padding" if (
                peer) else ""
            for dtype in ("f32", "bf16"):
                yield table.row(f"{name}, {model}, {dtype}", "tokens/s", rates(got[dtype]),
                                rates(peer) if peer else None, MUST, AIM, note)
            yield table.single(f"{name}, {model}, peak memory", "MiB",
                               [grown / 2**20 for _, grown in memory],
                               [1.02 * plan / grown for plan, grown in memory], 1.0, None,
                               f"to 1.02 of the plan, {last['planned'] / 2**20:.0f} MiB")


def evaluation(o):
    """Every user's last item among all; reading the log is not on the peer's clock, and on
    ours only where one thread's processor time counts."""
    with tempfile.TemporaryDirectory() as folder:
        config = os.path.join(folder, "eval.yaml")
        with open(config, "w") as f:
            f.write(CONFIG.format(run=folder + "/run", data=file_of(o, "Beauty"),
                                  length=SETS["Beauty"], threads=o.threads))
        subprocess.run([o.keel, "train", config, "--json"], check=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def ours(_):
            before = os.times()
            got = subprocess.run([o.keel, "eval", folder + "/run", "--json", "--threads",
                                  str(o.threads)], check=True, capture_output=True)
            t = os.times()
            if o.threads == 1:  # reading the log is in it, then
                return {"median": t.children_user + t.children_system
                        - before.children_user - before.children_system}
            return {"median": json.loads(got.stdout)["seconds"]}

        peer = Peer(o, "sasrec", "Beauty") if o.peer_python else None
        got = in_turn(o, [ours] + ([lambda _: peer.ask("eval")] if peer else []))
        if peer:
            peer.close()
        yield table.row("Beauty, full ranking", "s", rates(got[0]),
                        rates(got[1]) if peer else None, 5.0, 10.0,
                        got[1][-1]["mode"] if peer else "", less_is_better=True)


def padded(o):
    """Our own engine on the same made log, batches jagged and made rectangular."""
    made = ("--length", 200, "--median", 85, "--longest", 203)
    programs = [Ours(o, "sasrec", *made), Ours(o, "sasrec", "--pad", 1, *made)]
    got = in_turn(o, [p.repeat for p in programs])
    for p in programs:
        p.close()
    waste = 100 * got[1][-1]["waste"]
    yield table.row("made log, sasrec: jagged, padded", "tokens/s", rates(got[0]),
                    rates(got[1]), 1.9, None,
                    f"peer: ours, padded to the batch's longest, {waste:.0f} % of it waste")


def large_table(o):
    """Look-up, gradient and row-wise adagrad of bags of 20, and of single rows."""
    script = os.path.join(os.path.dirname(__file__), "..", "peers", "torch_table.py")
    for bag in (20, 1):
        options = ("--threads", o.threads, "--bag", bag)
        programs = [sides.Jobs(o.table, "--jobs", 1, *options)]
        if o.peer_python:
            programs.append(sides.Jobs(o.peer_python, script, *options))
        got = in_turn(o, [p.ask for p in programs])
        for p in programs:
            p.close()
        what = f"bags of {bag}" if bag > 1 else "single rows"
        peer = got[1] if o.peer_python else None
        yield table.row(f"1M x 64, 81,920 Zipf rows, {what}, adagrad", "rows/s",
                        rates(got[0]), rates(peer) if peer else None,
                        2.5 if bag > 1 else None, None,
                        peer[-1]["mode"] if peer else "")


def main():
    o = parse()
    if o.check:
        return
    facts = common.facts(o)
    others = table.Others()
    time.sleep(1)
    common.tell_machine(facts, "start", others)
    others = table.Others()
    out = table.Table(facts, o.json)
    for name, rows in zip(GROUPS, (speed, evaluation, padded, large_table)):
        if name in o.rows:
            for row in rows(o):
                out.add(row)
    print()
    common.tell_machine(facts, "end", others)
    short = [r["name"] for r in out.rows if table.verdict(r) == "SHORT"]
    if short:
        print("below what must be reached: " + "; ".join(short))


if __name__ == "__main__":
    main()
