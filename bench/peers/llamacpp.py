#!/usr/bin/env python3
"""llama.cpp through the low-level API of llama-cpp-python, timed as `keel bench model
--jobs` times keel: a line on standard input is one repetition, a JSON line answers it.

    llamacpp.py MODEL.gguf --threads N [--modes FILE]
    llamacpp.py MODEL.gguf --requantize OUT.gguf         Q4_0, as its own tool makes it

    prefill TOKENS                    a prompt, in batches as its tools cut them
    decode DEPTH BATCH STEPS          BATCH sequences behind DEPTH positions each
    streams N PROMPT OUTPUT           N requests at once, continuous batching, greedy
    forget                            frees the contexts

The first repetition of a row is preceded by a search: f16 KV with and without flash
attention, q8_0 KV with it, and for several sequences one KV buffer or one for each. The
fastest is kept; the file of --modes remembers it unless the machine was busy. Random ids stand for a prompt.
No sampling is timed but in `streams`, which has an argmax and no HTTP at all.
"""
import argparse
import ctypes
import json
import os
import statistics
import sys
import time

import llama_cpp.llama_cpp as api
import numpy as np

F16, Q8_0 = 1, 8
MODES = {"f16": (F16, 0), "f16 flash": (F16, 1), "q8_0 flash": (Q8_0, 1)}
BATCH, MICRO_BATCH = 2048, 512
PROMPT_FOR_RANDOM = 2654435761


@api.llama_log_callback
def silent(level, text, user_data):
    pass


def some_token(i, n_vocab):
    return i * PROMPT_FOR_RANDOM % n_vocab


class Batch:
    """Tokens for one llama_decode: (token, position, sequence, wants logits)."""

    def __init__(self, items):
        self.n = len(items)
        self.c = api.llama_batch_init(self.n, 0, 1)
        self.c.n_tokens = self.n
        for i, (token, pos, seq, wants) in enumerate(items):
            self.c.token[i], self.c.pos[i] = token, pos
            self.c.n_seq_id[i], self.c.seq_id[i][0] = 1, seq
            self.c.logits[i] = wants

    def close(self):
        api.llama_batch_free(self.c)


class Context:
    """n_seqs sequences of n_ctx positions each, in one mode."""

    def __init__(self, peer, mode, n_seqs, n_ctx):
        name, _, layout = mode.partition(", ")
        kv, flash = MODES[name]
        p = api.llama_context_default_params()
        p.n_ctx = n_seqs * (-(-n_ctx // 256) * 256)
        p.n_batch, p.n_ubatch, p.n_seq_max = BATCH, MICRO_BATCH, n_seqs
        p.n_threads = p.n_threads_batch = peer.n_threads
        p.flash_attn_type, p.type_k, p.type_v = flash, kv, kv
        p.kv_unified, p.no_perf = layout == "one buffer", True
        self.peer, self.n_seqs = peer, n_seqs
        self.c = api.llama_init_from_model(peer.model, p)
        if not self.c:
            raise RuntimeError(f"no context for {mode}, {n_seqs} x {n_ctx}")
        self.memory = api.llama_get_memory(self.c)

    def decode(self, batch):
        if api.llama_decode(self.c, batch.c):
            raise RuntimeError("llama_decode failed")
        api.llama_synchronize(self.c)

    def run(self, items):
        for i in range(0, len(items), BATCH):
            batch = Batch(items[i:i + BATCH])
            self.decode(batch)
            batch.close()

    def cut(self, depth):
        for s in range(self.n_seqs):
            api.llama_memory_seq_rm(self.memory, s, depth, -1)

    def close(self):
        api.llama_free(self.c)


class Peer:
    def __init__(self, path, n_threads, modes_file):
        api.llama_log_set(silent, None)
        api.llama_backend_init()
        self.path, self.n_threads = path, n_threads
        # As keel bench does: one thread counts its processor time, not what else runs.
        self.now = time.process_time if n_threads == 1 else time.perf_counter
        self.model = api.llama_model_load_from_file(
            path.encode(), api.llama_model_default_params())
        if not self.model:
            raise SystemExit(f"{path}: llama.cpp cannot load it")
        self.n_vocab = api.llama_vocab_n_tokens(api.llama_model_get_vocab(self.model))
        self.contexts = {}
        self.modes_file = modes_file
        self.modes = {}
        if modes_file and os.path.exists(modes_file):
            with open(modes_file) as f:
                self.modes = json.load(f)

    def prefill(self, mode, n):
        key = (mode, "prefill", n)
        if key not in self.contexts:
            self.contexts[key] = Context(self, mode, 1, n)
        c = self.contexts[key]
        api.llama_memory_clear(c.memory, False)
        items = [(some_token(i, self.n_vocab), i, 0, i == n - 1) for i in range(n)]
        batches = [Batch(items[i:i + BATCH]) for i in range(0, n, BATCH)]
        start = self.now()
        for b in batches:
            c.decode(b)
        took = self.now() - start
        for b in batches:
            b.close()
        return n / took

    def at_depth(self, mode, depth, n_seqs, n_steps):
        key = (mode, depth, n_seqs)
        c, room = self.contexts.get(key, (None, 0))
        if room < n_steps:
            if c:
                c.close()
            room = max(n_steps, 64)
            c = Context(self, mode, n_seqs, depth + room)
            for s in range(n_seqs):
                c.run([(some_token(i + s, self.n_vocab), i, s, False) for i in range(depth)])
            self.contexts[key] = (c, room)
        return c

    def decode(self, mode, depth, n_seqs, n_steps):
        c = self.at_depth(mode, depth, n_seqs, n_steps)
        batches = [Batch([(some_token(t * n_seqs + s, self.n_vocab), depth + t, s, True)
                          for s in range(n_seqs)]) for t in range(n_steps)]
        start = self.now()
        for b in batches:
            c.decode(b)
        took = self.now() - start
        for b in batches:
            b.close()
        c.cut(depth)
        return n_seqs * n_steps / took

    def streams(self, mode, n_seqs, n_prompt, n_output):
        """Each step: one token of every sequence that decodes, the rest of a micro-batch
        filled with prompts in order; greedy. Returns (tokens a second, token times)."""
        key = (mode, "streams", n_seqs)
        if key not in self.contexts:
            self.contexts[key] = Context(self, mode, n_seqs, n_prompt + n_output)
        c = self.contexts[key]
        api.llama_memory_clear(c.memory, False)
        done = [0] * n_seqs  # positions in the KV
        last = [0] * n_seqs
        times = [[] for _ in range(n_seqs)]
        start = time.perf_counter()
        while any(len(t) < n_output for t in times):
            items, rows = [], []
            for s in range(n_seqs):
                if done[s] >= n_prompt and len(times[s]) < n_output:
                    rows.append((s, len(items)))
                    items.append((last[s], done[s], s, True))
                    done[s] += 1
            for s in range(n_seqs):
                n = min(n_prompt - done[s], MICRO_BATCH - len(items))
                for i in range(max(n, 0)):
                    ends = done[s] == n_prompt - 1
                    if ends:
                        rows.append((s, len(items)))
                    items.append((some_token(done[s] + s, self.n_vocab), done[s], s, ends))
                    done[s] += 1
            batch = Batch(items)
            c.decode(batch)
            for s, row in rows:
                logits = api.llama_get_logits_ith(c.c, row)
                last[s] = int(np.ctypeslib.as_array(logits, (self.n_vocab,)).argmax())
                times[s].append(time.perf_counter() - start)
            batch.close()
        return n_seqs * n_output / max(t[-1] for t in times), times

    def one(self, mode, words):
        kind, n = words[0], [int(w) for w in words[1:]]
        if kind == "streams":
            return self.streams(mode, *n)[0]
        return getattr(self, kind)(mode, *n)

    def best_mode(self, words):
        """The fastest mode for this row: of two tries each, the better one counts."""
        is_many = words[0] == "streams" or words[0] == "decode" and int(words[2]) > 1
        key = " ".join([os.path.basename(self.path), str(self.n_threads), *words])
        if key in self.modes:
            return self.modes[key]["mode"]
        names = [f"{m}, {layout}" for m in MODES for layout in ("apart", "one buffer")
                 ] if is_many else list(MODES)
        rates, best = {}, None
        for mode in names:
            try:
                rates[mode] = max(self.one(mode, words) for _ in range(2))
            except RuntimeError as e:
                print(f"llamacpp.py: {mode}: {e}", file=sys.stderr)
                continue
            best = max(rates, key=rates.get)
            self.forget(but=best)
        if not best:
            raise SystemExit(f"llamacpp.py: no mode can do '{' '.join(words)}'")
        self.modes[key] = {"mode": best, "tokens_s": {m: round(r, 1) for m, r in rates.items()}}
        if self.modes_file and os.getloadavg()[0] < 1.5 * os.cpu_count():
            with open(self.modes_file + ".new", "w") as f:
                json.dump(self.modes, f, indent=1)
            os.replace(self.modes_file + ".new", self.modes_file)
        return best

    def forget(self, but=None):
        """Frees the contexts but those of one mode."""
        for key in [k for k in self.contexts if k[0] != but]:
            c = self.contexts.pop(key)
            (c[0] if isinstance(c, tuple) else c).close()

    def answer(self, words):
        if words[0] == "forget":
            self.forget()
            return {"name": "forget"}
        mode = self.best_mode(words)
        row = {"name": words[0], "mode": mode, "unit": "tokens/s"}
        if words[0] == "streams":
            rate, times = self.streams(mode, *[int(w) for w in words[1:]])
            gaps = sorted(b - a for t in times for a, b in zip(t, t[1:]))
            row["ttft_p50_ms"] = 1e3 * statistics.median(t[0] for t in times)
            row["itl_p50_ms"] = 1e3 * statistics.median(gaps)
            row["itl_p99_ms"] = 1e3 * gaps[int(0.99 * (len(gaps) - 1))]
        else:
            rate = self.one(mode, words)
        return {**row, "median": rate}


def requantize(source, out, n_threads):
    """Q4_0 from a file that is quantised already: what `llama-quantize
    --allow-requantize source out Q4_0` makes."""
    api.llama_log_set(silent, None)
    api.llama_backend_init()
    p = api.llama_model_quantize_default_params()
    p.nthread, p.ftype, p.allow_requantize = n_threads, 2, True
    if api.llama_model_quantize(source.encode(), (out + ".new").encode(), ctypes.byref(p)):
        raise SystemExit(f"{source}: llama.cpp cannot requantize it")
    os.replace(out + ".new", out)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("model")
    p.add_argument("--threads", type=int, default=os.cpu_count())
    p.add_argument("--modes")
    p.add_argument("--requantize", metavar="OUT")
    a = p.parse_args()
    if a.requantize:
        return requantize(a.model, a.requantize, a.threads)
    peer = Peer(a.model, a.threads, a.modes)
    print(json.dumps({"name": "ready"}), flush=True)
    for line in sys.stdin:
        print(json.dumps(peer.answer(line.split())), flush=True)


if __name__ == "__main__":
    main()
