#!/usr/bin/env python3
"""Attention over sequences of uneven lengths in stock PyTorch on the CPU, timed as `keel
bench attention --jobs` times keel: a line on standard input is one repetition, forward and
backward, and a JSON line answers it.

    torch_attention.py --lengths FILE --threads N [--heads 4] [--dim 64] [--keys 64]

    jfa | hstu | gdpa | block           as keel names them
    forms KIND                          every form's best time so far

PyTorch has no attention that knows lengths on the CPU, so each kind is tried in the forms
that a practitioner has, in f32 and bf16, and the fastest is kept for every repetition:

    padded      one tensor, every sequence padded to the longest
    sorted      sequences of about one length padded together, --group at a time
    nested      torch.nested, jagged layout, through scaled_dot_product_attention
    compiled    the same formulas through torch.compile; "sorted compiled" of groups
    each        a call a sequence (gdpa)
    blocks      block: all blocks of 64 as one batch, short ones masked

What lays the rows out (padding, sorting) is done before the clock starts. Useful work
counts the pairs that the mask shows: 4 dim a pair and head forward, 3.5 times that in all.
One thread is timed by the process's own processor time, as keel times itself then.
"""
import argparse
import json
import sys
import time

import torch
import torch.nn.functional as F

BLOCK = 64
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def parse():
    p = argparse.ArgumentParser()
    p.add_argument("--lengths", required=True, help="a file, one length a line")
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--heads", type=int, default=4)
    p.add_argument("--dim", type=int, default=64)
    p.add_argument("--keys", type=int, default=64)
    p.add_argument("--group", type=int, default=8)
    p.add_argument("--search", type=float, default=0.6, help="seconds for each form")
    p.add_argument("--no-compile", action="store_true")
    return p.parse_args()


def padded(rows, n=None):
    """[length, heads, dim] of each sequence -> [sequences, heads, n, dim]"""
    n = n or max(len(r) for r in rows)
    out = torch.zeros(len(rows), n, *rows[0].shape[1:], dtype=rows[0].dtype)
    for i, r in enumerate(rows):
        out[i, :len(r)] = r
    return out.transpose(1, 2).contiguous()


def softmax_causal(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def silu(q, k, v, mask):
    return (F.silu(q @ k.mT) * mask) @ v


def gelu(q, k, v):
    return F.gelu(q @ k.mT, approximate="tanh") @ v


def softmax(q, k, v, mask):
    return torch.softmax(q @ k.mT * q.shape[-1] ** -0.5 + mask, -1) @ v


class Kind:
    """The forms of one kind: name -> (inputs, function of them)."""

    def __init__(self, o, lengths):
        self.o, self.lengths = o, lengths
        self.order = sorted(range(len(lengths)), key=lambda i: lengths[i])
        self.longest = max(lengths)

    def rows(self, lengths, dtype):
        return [(torch.randn(n, self.o.heads, self.o.dim) * 0.5).to(dtype) for n in lengths]

    def groups(self):
        g = self.o.group if self.longest > 64 else 8 * self.o.group
        return [self.order[i:i + g] for i in range(0, len(self.order), g)]

    def whole(self, dtype):
        return [padded(self.rows(self.lengths, dtype)) for _ in range(3)]

    def in_groups(self, dtype):
        return [padded(self.rows([self.lengths[i] for i in g], dtype))
                for g in self.groups() for _ in range(3)]

    @staticmethod
    def of_groups(f):
        return lambda *x: [f(*x[i:i + 3]) for i in range(0, len(x), 3)]

    def compiled(self, f, dynamic=False):
        return torch.compile(f, dynamic=dynamic)


class Jfa(Kind):
    def pairs(self):
        return sum(n * (n + 1) // 2 for n in self.lengths)

    def forms(self, dtype):
        yield "padded", self.whole(dtype), softmax_causal
        yield "sorted", self.in_groups(dtype), self.of_groups(softmax_causal)
        offsets = torch.tensor([0, *self.lengths]).cumsum(0)

        def nested(*x):
            x = [torch.nested.nested_tensor_from_jagged(
                t, offsets, min_seqlen=min(self.lengths), max_seqlen=self.longest)
                .transpose(1, 2) for t in x]
            return softmax_causal(*x).transpose(1, 2).values()
        yield "nested", [torch.cat(self.rows(self.lengths, dtype)) for _ in range(3)], nested


class Hstu(Kind):
    pairs = Jfa.pairs

    def forms(self, dtype):
        n = self.longest
        mask = torch.tril(torch.ones(n, n, dtype=dtype)) / n

        def some(q, k, v, f=silu):
            return f(q, k, v, mask[:q.shape[2], :q.shape[2]])
        yield "padded", self.whole(dtype), some
        yield "sorted", self.in_groups(dtype), self.of_groups(some)
        if not self.o.no_compile:
            f, g = self.compiled(silu), self.compiled(silu, True)
            yield "compiled", self.whole(dtype), lambda q, k, v: f(q, k, v, mask)
            yield ("sorted compiled", self.in_groups(dtype),
                   self.of_groups(lambda q, k, v: some(q, k, v, g)))


class Gdpa(Kind):
    def pairs(self):
        return sum(self.lengths) * self.o.keys

    def keys(self, n, dtype):
        return [(torch.randn(n, self.o.heads, self.o.keys, self.o.dim) * 0.2).to(dtype)
                for _ in range(2)]

    def forms(self, dtype):
        n = len(self.lengths)
        q = self.rows(self.lengths, dtype)
        yield "padded", [padded(q), *self.keys(n, dtype)], gelu
        grouped = []
        for g in self.groups():
            grouped += [padded([q[i] for i in g]), *self.keys(len(g), dtype)]
        yield "sorted", grouped, self.of_groups(gelu)

        def each(q, k, v):
            return [gelu(x.transpose(0, 1), k[i], v[i])
                    for i, x in enumerate(q.split(self.lengths))]
        yield "each", [torch.cat(q), *self.keys(n, dtype)], each
        if not self.o.no_compile:
            yield ("compiled", [padded(q), *self.keys(n, dtype)], self.compiled(gelu))
            yield "sorted compiled", grouped, self.of_groups(self.compiled(gelu, True))


class Block(Kind):
    def blocks(self):
        return [min(BLOCK, n - at) for n in self.lengths for at in range(0, n, BLOCK)]

    def pairs(self):
        return sum(n * n for n in self.blocks())

    def forms(self, dtype):
        n = self.blocks()
        width = max(n)
        is_there = torch.arange(width) < torch.tensor(n)[:, None]
        mask = torch.zeros(len(n), 1, 1, width, dtype=dtype)
        mask.masked_fill_(~is_there[:, None, None, :], float("-inf"))

        def inputs():
            return [padded(self.rows(n, dtype), width) for _ in range(3)]
        wide = mask.expand(-1, 1, width, -1)
        yield ("blocks sdpa", inputs(),
               lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=wide))
        yield "blocks", inputs(), lambda q, k, v: softmax(q, k, v, mask)
        if not self.o.no_compile:
            f = self.compiled(softmax)
            yield "blocks compiled", inputs(), lambda q, k, v: f(q, k, v, mask)


KINDS = {"jfa": Jfa, "hstu": Hstu, "gdpa": Gdpa, "block": Block}


class Form:
    def __init__(self, inputs, f):
        self.inputs = [x.requires_grad_() for x in inputs]
        self.f = f
        out = f(*self.inputs)
        self.grads = [torch.ones_like(y) for y in out] if isinstance(
            out, (list, tuple)) else torch.ones_like(out)
        self.best = float("inf")

    def run(self):
        clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
        start = clock()
        torch.autograd.grad(self.f(*self.inputs), self.inputs, self.grads)
        s = clock() - start
        self.best = min(self.best, s)
        return s


def search(o, kind):
    """Every form that works, with its best time; the fastest first."""
    found = []
    for name, dtype in DTYPES.items():
        torch._dynamo.reset()
        forms = kind.forms(dtype)
        while True:
            try:
                form_name, inputs, f = next(forms)
            except StopIteration:
                break
            try:
                form = Form(inputs, f)
                form.run()
            except (RuntimeError, NotImplementedError, TypeError, ValueError) as e:
                print(f"{form_name} {name}: {type(e).__name__}: {e}", file=sys.stderr)
                continue
            start = time.perf_counter()
            while time.perf_counter() - start < o.search:
                form.run()
            found.append((form.best, f"{form_name}, {name}", form))
    if not found:
        sys.exit("no form of PyTorch works here")
    return sorted(found, key=lambda x: x[0])


def main():
    o = parse()
    if o.threads:
        torch.set_num_threads(o.threads)
    torch.manual_seed(0)
    with open(o.lengths) as f:
        lengths = [int(line) for line in f]
    kinds, forms = {}, {}
    for line in sys.stdin:
        what, word = (line.split() + [""])[:2] if line.startswith("forms") else ("", line.strip())
        if word not in KINDS:
            sys.exit(f"'{line.strip()}': expected one of {', '.join(KINDS)}")
        if word not in forms:
            kinds[word] = KINDS[word](o, lengths)
            forms[word] = search(o, kinds[word])
        flop = 3.5 * 4 * o.heads * o.dim * kinds[word].pairs()
        if what:
            answer = {name: flop / form.best / 1e9 for _, name, form in forms[word]}
        else:
            _, name, form = forms[word][0]
            answer = {"name": word, "median": flop / form.run() / 1e9, "unit": "GFLOP/s",
                      "mode": f"torch {torch.__version__.split('+')[0]}, {name}",
                      "flop": flop, "threads": torch.get_num_threads()}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
