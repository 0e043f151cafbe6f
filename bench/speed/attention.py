#!/usr/bin/env python3
"""attention.py - prints the table of jagged attention against PyTorch's best forms, both in
turn in one run; bench/attention.sh prepares what it needs."""
import argparse
import os
import random
import sys
import tempfile
import time

import main as common
import sides
import table

KINDS = {"jfa": 3.0, "hstu": 3.0, "gdpa": 2.0, "block": 2.0}  # what must be reached
AIM_SHARE = 0.6  # of the bf16 peak, for long sequences
CAP = 400


def parse():
    p = argparse.ArgumentParser(prog="bench/attention.sh", description=__doc__)
    p.add_argument("--keel", required=True, help="the binary")
    p.add_argument("--peer-python", help="a Python with torch; none: no peer")
    p.add_argument("--data", help="a folder with LastFM.txt, for its lengths")
    p.add_argument("--kinds", default=",".join(KINDS), help="some of " + ", ".join(KINDS))
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--heads", type=int, default=4)
    p.add_argument("--dim", type=int, default=64)
    p.add_argument("--threads", type=int, default=0, help="0: one a physical core")
    p.add_argument("--repeats", type=int, default=9)
    p.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    p.add_argument("--json", help="write the rows to this file, one JSON object a line")
    o = p.parse_args()
    o.kinds = o.kinds.split(",")
    unknown = set(o.kinds) - set(KINDS)
    if unknown:
        p.error(f"--kinds {', '.join(unknown)}: expected some of {', '.join(KINDS)}")
    return o


def uniform(n):
    rng = random.Random(7)
    return [rng.randint(1, CAP) for _ in range(n)]


def of_file(path, n):
    """Items of n of its users, evenly spread, cut to CAP; the first word is the user."""
    with open(path) as f:
        lengths = [min(CAP, len(line.split()) - 1) for line in f]
    return [max(1, lengths[i * len(lengths) // n]) for i in range(n)]


class Ours:
    """keel in both types; the faster one counts, by the first repetition of each."""

    def __init__(self, o, lengths):
        self.jobs = sides.Jobs(o.keel, "bench", "attention", "--jobs", "--lengths", lengths,
                               "--batch", o.batch, "--heads", o.heads, "--dim", o.dim,
                               "--threads", o.threads)
        self.dtype = {}

    def ask(self, kind):
        if kind not in self.dtype:
            best = {t: max(self.jobs.ask(kind, t)["median"] for _ in range(3))
                    for t in ("f32", "bf16")}
            self.dtype[kind] = max(best, key=best.get)
        return self.jobs.ask(kind, self.dtype[kind])


class Peer(sides.Jobs):
    def __init__(self, o, lengths):
        script = os.path.join(os.path.dirname(__file__), "..", "peers", "torch_attention.py")
        super().__init__(o.peer_python, script, "--lengths", lengths, "--threads", o.threads,
                         "--heads", o.heads, "--dim", o.dim,
                         *(["--no-compile"] if o.no_compile else []))


def rows(o, name, lengths, folder):
    path = os.path.join(folder, "lengths")
    with open(path, "w") as f:
        f.writelines(f"{n}\n" for n in lengths)
    ours = Ours(o, path)
    peer = Peer(o, path) if o.peer_python else None
    programs = [ours] + ([peer] if peer else [])
    for kind in o.kinds:
        got = [[] for _ in programs]
        for r in range(-1, o.repeats):
            order = list(enumerate(programs))
            for i, program in reversed(order) if r % 2 else order:
                answer = program.ask(kind)
                if r >= 0:
                    got[i].append(answer)
        rates = [[a["median"] for a in g] for g in got]
        share = table.spread([a["share"] for a in got[0]])[0]
        note = f"{ours.dtype[kind]}, {100 * share:.0f} % of its peak"
        if peer:
            note += "; " + got[1][-1]["mode"]
            if abs(got[0][0]["flop"] / got[1][0]["flop"] - 1) > 1e-6:
                sys.exit(f"{kind}: the two sides do not count the same work")
        yield table.row(f"{kind}, {name}", "GFLOP/s", rates[0], rates[1] if peer else None,
                        KINDS[kind], None, note)
    ours.jobs.close()
    if peer:
        peer.close()


def long_rows(o, folder):
    """Ours alone, where products rule: the share of what bf16 dot products reach."""
    path = os.path.join(folder, "long")
    with open(path, "w") as f:
        f.write("4096\n" * 4)
    jobs = sides.Jobs(o.keel, "bench", "attention", "--jobs", "--lengths", path, "--batch", 4,
                      "--heads", o.heads, "--dim", o.dim, "--threads", o.threads)
    for kind in o.kinds:
        got = [jobs.ask(kind, "bf16") for _ in range(-1, o.repeats)][1:]
        yield table.single(f"{kind}, 4 x 4096", "GFLOP/s", [a["median"] for a in got],
                           [a["share"] for a in got], None, AIM_SHARE,
                           "ratio: share of the bf16 peak")
    jobs.close()


def main():
    o = parse()
    facts = common.facts(o)
    others = table.Others()
    time.sleep(1)
    common.tell_machine(facts, "start", others)
    others = table.Others()
    out = table.Table(facts, o.json)
    sets = {f"U[1,{CAP}]": uniform(o.batch)}
    last_fm = os.path.join(o.data or "", "LastFM.txt")
    if o.data and os.path.exists(last_fm):
        sets["LastFM"] = of_file(last_fm, o.batch)
    with tempfile.TemporaryDirectory() as folder:
        for name, lengths in sets.items():
            for row in rows(o, name, lengths, folder):
                out.add(row)
        for row in long_rows(o, folder):
            out.add(row)
    print()
    common.tell_machine(facts, "end", others)
    short = [r["name"] for r in out.rows if table.verdict(r) == "SHORT"]
    if short:
        print("below what must be reached: " + "; ".join(short))


if __name__ == "__main__":
    main()
