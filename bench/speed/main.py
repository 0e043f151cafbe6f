#!/usr/bin/env python3
"""main.py - prints the table of serving speed; bench/serve.sh prepares what it needs."""
import argparse
import json
import os
import subprocess
import sys
import time

import rows
import table

GROUPS = ("prefill", "decode", "streams", "tools", "kv", "weights", "isa", "pages",
          "accuracy", "start")


def parse():
    p = argparse.ArgumentParser(prog="bench/serve.sh", description=__doc__)
    p.add_argument("--keel", required=True, help="the binary")
    p.add_argument("--model", required=True, help="the small model, ours")
    p.add_argument("--peer-model", help="the small model in the peer's fastest format")
    p.add_argument("--large", help="the larger model, for both")
    p.add_argument("--peer-python", help="a Python with llama-cpp-python; none: no peer")
    p.add_argument("--llama-bin", help="a folder with llama-server")
    p.add_argument("--text", help="what perplexity is measured on")
    p.add_argument("--text-bytes", type=int, default=50000)
    p.add_argument("--cache", default=".", help="where what can be used again lies")
    p.add_argument("--threads", type=int, default=0, help="0: one a physical core")
    p.add_argument("--quick", action="store_true", help="3 repetitions, shorter ones")
    p.add_argument("--repeats", type=int, help="repetitions of each row; 5, or 3")
    p.add_argument("--pairs", type=int, help="pairs of waves for the page check")
    p.add_argument("--rows", default=",".join(GROUPS), help="groups: " + ", ".join(GROUPS))
    p.add_argument("--json", help="write the rows to this file, one JSON object a line")
    p.add_argument("--is-tiny", action="store_true", help=argparse.SUPPRESS)
    o = p.parse_args()
    o.repeats = o.repeats or (3 if o.quick else 5)
    o.pairs = o.pairs or (8 if o.quick else 20)
    o.modes = os.path.join(o.cache, "peer-modes.json")
    o.groups = o.rows.split(",")
    unknown = set(o.groups) - set(GROUPS)
    if unknown:
        p.error(f"--rows {', '.join(unknown)}: expected some of {', '.join(GROUPS)}")
    if o.peer_python and not o.peer_model:
        p.error("--peer-python needs --peer-model")
    return o


def shrink(size):
    """--quick: half of the steps, no long prompts."""
    half = {k: {d: max(2, n // 2) for d, n in size[k].items()} for k in ("decode", "batch")}
    return {**size, **half, "prefill": size["prefill"][:1]}


def facts(o):
    got = subprocess.run([o.keel, "bench", "kernel", "--peak", "--repeat", "1", "--json",
                          "--threads", str(o.threads)], capture_output=True, text=True)
    if got.returncode:
        sys.exit(got.stderr)
    row = json.loads(got.stdout.splitlines()[0])
    o.threads, o.isa = row["threads"], row["isa"]
    return {"cpu": row["cpu"], "cores": os.cpu_count(), "isa": row["isa"],
            "threads": row["threads"]}


def tell_machine(f, when, others):
    share = others.share()
    print(f"{when}: {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}, {f['cpu']}, "
          f"{f['cores']} processors, ISA {f['isa']}, {f['threads']} threads, load "
          + ", ".join(f"{x:.2f}" for x in os.getloadavg())
          + f"; others took {100 * share:.0f} % of the processors", flush=True)
    if share > 0.05:
        print("WARNING: the machine is busy: these figures are not its best, and it is "
              "unfair to whoever waits spinning; --threads 1 counts processor time instead",
              flush=True)


def measure(b, out):
    o = b.o
    small = rows.TINY if o.is_tiny else shrink(rows.SMALL) if o.quick else rows.SMALL
    large = shrink(rows.LARGE) if o.quick else rows.LARGE
    models = [(small, o.model, o.peer_model)]
    if o.large:
        models.append((large, o.large, o.large))
    last = models[-1][:2]
    plan = []
    for size, model, peer_model in models:
        plan += [("prefill", rows.prefill, (size, model, peer_model)),
                 ("decode", rows.decode, (size, model, peer_model))]
    plan += [("streams", rows.streams, models[0]), ("tools", rows.tools, models[0])]
    plan += [("kv", rows.kv_dtypes, m[:2]) for m in models]
    plan += [("isa", rows.isa, m[:2]) for m in models]
    plan += [("weights", rows.weights, last), ("pages", rows.page_check, (small, o.model)),
             ("accuracy", rows.accuracy, (small, o.model)),
             ("start", rows.start, (small, o.model))]
    for group, fn, args in plan:
        if group not in o.groups:
            continue
        for row in fn(b, *args) or ():
            out.add(row)


def main():
    o = parse()
    f = facts(o)
    others = table.Others()
    time.sleep(1)
    tell_machine(f, "start", others)
    others = table.Others()
    began = time.monotonic()
    b = rows.Bench(o)
    b.prefill_rate = {}
    out = table.Table(f, o.json)
    measure(b, out)
    print()
    tell_machine(f, "end", others)
    print(f"{time.monotonic() - began:.0f} s")
    short = [r["name"] for r in out.rows if table.verdict(r) == "SHORT"]
    if short:
        print("below what must be reached: " + "; ".join(short))


if __name__ == "__main__":
    main()
