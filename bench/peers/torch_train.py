#!/usr/bin/env python3
"""Training of SASRec and HSTU in stock PyTorch on the CPU, f32, timed as bench/rec.c times
keel: a line on standard input is one repetition, and a JSON line answers it.

    torch_train.py --data FILE --model sasrec|hstu [--length 50] [--batch 128] [--threads N]

    train SECONDS     tokens/s over steps of so many seconds
    eval              seconds of ranking all items for every user's last one

PyTorch has no jagged attention on the CPU, so users of about one length share a batch
(--pool batches are drawn together, sorted by length and cut), which pads little. Padding is
never counted as tokens, and only rows with a target reach the loss. The same architecture,
loss (sampled softmax over negatives that a batch shares, cosine / 0.05) and optimizer
(AdamW, fused) as ours. One thread is timed by the process's own processor time, as ours
is then.
"""
import argparse
import json
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

TEMPERATURE = 0.05
EXTRA = 11  # rows that HSTU's published code pads by


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--data", required=True, help="a user a line: user item item ...")
    p.add_argument("--model", choices=["sasrec", "hstu"], default="sasrec")
    p.add_argument("--length", type=int, default=50)
    p.add_argument("--batch", type=int, default=128)
    p.add_argument("--blocks", type=int, default=1)
    p.add_argument("--heads", type=int, default=1)
    p.add_argument("--dim", type=int, default=64)
    p.add_argument("--dropout", type=float, default=0.2)
    p.add_argument("--negatives", type=int, default=256)
    p.add_argument("--pool", type=int, default=16)
    p.add_argument("--threads", type=int, default=0)
    return p.parse_args()


def now():
    return time.process_time() if torch.get_num_threads() == 1 else time.perf_counter()


class Sequences:
    """Rows of items in one tensor, padded by 0; what is taken is cut to its longest."""

    def __init__(self, rows):
        self.lengths = torch.tensor([len(r) for r in rows])
        self.rows = nn.utils.rnn.pad_sequence([torch.tensor(r) for r in rows], True)

    def take(self, which):
        return self.rows[which, :int(self.lengths[which].max())]


def split_heads(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


class SasrecBlock(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.o = o
        self.norm, self.norm2 = (nn.LayerNorm(o.dim, 1e-8) for _ in range(2))
        self.q, self.out, self.up, self.down = (nn.Linear(o.dim, o.dim) for _ in range(4))
        self.kv = nn.Linear(o.dim, 2 * o.dim)

    def drop(self, x):
        return F.dropout(x, self.o.dropout, self.training)

    def forward(self, x):
        normed = self.norm(x)
        q, k, v = (split_heads(y, self.o.heads)
                   for y in (self.q(normed), *self.kv(x).chunk(2, -1)))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = normed + self.drop(self.out(y.transpose(1, 2).flatten(2)))
        z = self.norm2(y)
        return z + self.drop(self.down(self.drop(F.relu(self.up(z)))))


class HstuBlock(nn.Module):
    def __init__(self, o):
        super().__init__()
        self.o, self.n = o, o.length + EXTRA
        self.uvqk = nn.Parameter(torch.randn(o.dim, 4 * o.dim) * 0.02)
        self.bias = nn.Parameter(torch.randn(2 * self.n - 1) * 0.02)
        self.out = nn.Linear(o.dim, o.dim)

    def forward(self, x):
        width = (self.o.dim,)
        u, v, q, k = F.silu(F.layer_norm(x, width, eps=1e-6) @ self.uvqk).chunk(4, -1)
        q, k, v = (split_heads(y, self.o.heads) for y in (q, k, v))
        at = torch.arange(x.shape[1])
        scores = F.silu(q @ k.mT + self.bias[at - at[:, None] + self.n - 1]) / self.n
        y = (scores.tril() @ v).transpose(1, 2).flatten(2)
        y = u * F.layer_norm(y, width, eps=1e-6)
        return x + self.out(F.dropout(y, self.o.dropout, self.training))


class Model(nn.Module):
    def __init__(self, o, n_items):
        super().__init__()
        self.o = o
        self.items = nn.Parameter(torch.randn(n_items + 1, o.dim) * 0.02)
        self.positions = nn.Parameter(torch.randn(o.length, o.dim) * 0.02)
        block = SasrecBlock if o.model == "sasrec" else HstuBlock
        self.blocks = nn.Sequential(*(block(o) for _ in range(o.blocks)))
        self.norm = nn.LayerNorm(o.dim, 1e-8) if o.model == "sasrec" else nn.Identity()

    def forward(self, items):
        x = F.embedding(items, self.items) * self.o.dim ** 0.5
        x = F.dropout(x + self.positions[:items.shape[1]], self.o.dropout, self.training)
        return self.norm(self.blocks(x))


class Bench:
    def __init__(self, o):
        with open(o.data) as f:
            self.users = sorted(([int(w) for w in line.split()[1:]] for line in f), key=len)
        self.o, self.n_items = o, max(map(max, self.users))
        kept = [u[:-2][-o.length - 1:] for u in self.users if len(u) > 3]
        self.inputs, self.targets = (Sequences(rows) for rows in (
            [u[:-1] for u in kept], [u[1:] for u in kept]))
        self.model = Model(o, self.n_items)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3,
                                           betas=(0.9, 0.98), weight_decay=0, fused=True)
        self.queue = []
        self.tests = [self.test(self.users[at:at + 512])
                      for at in range(0, len(self.users), 512)]

    def test(self, users):
        """Inputs, targets, and (row, item) of all that was seen, before any clock."""
        return (Sequences([u[:-1][-self.o.length:] for u in users]),
                torch.tensor([u[-1] for u in users])[:, None],
                torch.tensor([i for i, u in enumerate(users) for _ in u[:-1]]),
                torch.tensor([v for u in users for v in u[:-1]]))

    def next_batch(self):
        if not self.queue:
            for pool in torch.randperm(len(self.inputs.rows)).split(
                    self.o.batch * self.o.pool):
                pool = pool[self.inputs.lengths[pool].argsort()]
                self.queue += [b for b in pool.split(self.o.batch)
                               if len(b) == self.o.batch]
            order = torch.randperm(len(self.queue))
            self.queue = [self.queue[i] for i in order]
        return self.queue.pop()

    def step(self):
        which = self.next_batch()
        items, targets = self.inputs.take(which), self.targets.take(which)
        has_target = targets > 0
        h = F.normalize(self.model(items)[has_target], dim=-1)
        targets = targets[has_target]
        negatives = torch.randint(1, self.n_items + 1, (self.o.negatives,))
        table = self.model.items
        right = (h * F.normalize(F.embedding(targets, table), dim=-1)).sum(-1, True)
        wrong = h @ F.normalize(F.embedding(negatives, table), dim=-1).T
        wrong = wrong.masked_fill(negatives == targets[:, None], -1e4)
        scores = torch.cat([right, wrong], 1) / TEMPERATURE
        loss = F.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long))
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return len(targets), items.numel()

    def train(self, seconds):
        self.model.train()
        start = now()
        tokens = cells = steps = 0
        while now() - start < seconds:
            n, m = self.step()
            tokens, cells, steps = tokens + n, cells + m, steps + 1
        return {"median": tokens / (now() - start), "steps": steps,
                "waste": 1 - tokens / cells}

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        start = now()
        items = F.normalize(self.model.items, dim=-1).T.contiguous()
        hits, gain = [0, 0], [0.0, 0.0]  # filtered, unfiltered: recall@10, ndcg@10
        for x, target, row, seen in self.tests:
            every = torch.arange(len(target))
            h = F.normalize(self.model(x.take(every))[every, x.lengths - 1], dim=-1)
            scores = h @ items
            scores[:, 0] = -9
            its = scores.gather(1, target)
            ranks = [None, (scores > its).sum(1)]
            scores[row, seen] = -9
            ranks[0] = (scores > its).sum(1)
            for i, rank in enumerate(ranks):
                rank = rank[rank < 10]
                hits[i] += len(rank)
                gain[i] += float((1 / torch.log2(rank + 2.0)).sum())
        return {"median": now() - start,
                "recall@10": [x / len(self.users) for x in hits],
                "ndcg@10": [x / len(self.users) for x in gain]}


def main():
    o = parse()
    if o.threads:
        torch.set_num_threads(o.threads)
    torch.manual_seed(0)
    bench = Bench(o)
    bench.train(0.5)
    for line in sys.stdin:
        word, *rest = line.split()
        answer = bench.evaluate() if word == "eval" else bench.train(float(rest[0]))
        answer["mode"] = f"torch {torch.__version__.split('+')[0]}, f32, by length"
        answer["threads"] = torch.get_num_threads()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
