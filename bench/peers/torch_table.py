#!/usr/bin/env python3
"""A large table in stock PyTorch on the CPU, timed as bench/table.c times keel: a line on
standard input, seconds, is one repetition, and a JSON line answers it.

    torch_table.py [--bag 20] [--threads N]

1,048,576 rows of 64 floats, 81,920 Zipf ids a step in bags whose rows are summed (--bag 1:
every row by itself), a loss that is the product with a constant and its gradient of one row
a bag, duplicates summed first, row-wise adagrad.
Two forms, of which the faster at the start is the peer: nn.EmbeddingBag(sparse=True) whose
gradient is coalesced, and by hand, unique ids and index_add. One thread is timed by the
process's own processor time, as ours is.
"""
import argparse
import json
import sys
import time

import torch
import torch.nn.functional as F

ROWS, DIM, IDS, SETS, RATE, EPS = 1 << 20, 64, 81920, 8, 0.01, 1e-8


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--bag", type=int, default=20)
    p.add_argument("--threads", type=int, default=0)
    return p.parse_args()


def now():
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


class Table:
    def __init__(self, bag):
        self.bag, self.at = bag, 0
        chance = torch.arange(1, ROWS + 1, dtype=torch.float64).pow(-1.05).cumsum(0)
        places = torch.randperm(ROWS)
        self.ids = [places[torch.searchsorted(chance, torch.rand(IDS, dtype=torch.float64)
                                              * chance[-1])] for _ in range(SETS)]
        self.offsets = torch.arange(0, IDS, bag)
        self.module = torch.nn.EmbeddingBag(ROWS, DIM, mode="sum", sparse=True)
        self.weight = self.module.weight
        self.sums = torch.zeros(ROWS)
        self.weights = torch.ones(IDS // bag, DIM)  # the loss: sum of y * weights

    def next(self):
        self.at += 1
        return self.ids[self.at % SETS]

    @torch.no_grad()
    def update(self, rows, values):
        sums = self.sums.index_select(0, rows) + values.square().mean(1)
        self.sums.index_copy_(0, rows, sums)
        self.weight.index_add_(0, rows, values * (-RATE / (sums.sqrt() + EPS)).unsqueeze(1))

    def coalesced(self):
        self.weight.grad = None
        (self.module(self.next(), self.offsets) * self.weights).sum().backward()
        g = self.weight.grad.coalesce()
        self.update(g.indices()[0], g.values())

    @torch.no_grad()
    def by_hand(self):
        ids = self.next()
        if self.bag == 1:
            y = F.embedding(ids, self.weight)
        else:
            y = F.embedding_bag(ids, self.weight, self.offsets, mode="sum")
        torch.dot(y.view(-1), self.weights.view(-1))
        gradient = self.weights * 1.0
        if self.bag > 1:
            gradient = gradient.repeat_interleave(self.bag, 0)
        rows, where = ids.unique(return_inverse=True)
        self.update(rows, torch.zeros(len(rows), DIM).index_add_(0, where, gradient))


def rate(step, seconds):
    """Rows a second, over `seconds`."""
    n, start = 0, now()
    while now() - start < seconds:
        step()
        n += 1
    return n * IDS / (now() - start)


def main():
    o = parse()
    if o.threads:
        torch.set_num_threads(o.threads)
    torch.manual_seed(0)
    table = Table(o.bag)
    forms = {"coalesced": table.coalesced, "unique and index_add": table.by_hand}
    for step in forms.values():
        rate(step, 0.3)
    best = max(forms, key=lambda name: rate(forms[name], 0.7))
    for line in sys.stdin:
        got = rate(forms[best], float(line))
        print(json.dumps({"median": got, "threads": torch.get_num_threads(),
                          "mode": f"torch {torch.__version__.split('+')[0]}, {best}"}),
              flush=True)


if __name__ == "__main__":
    main()
