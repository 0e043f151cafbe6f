"""rows.py - the rows of the table, in groups; each yields finished rows."""
import json
import os
import subprocess
import tempfile

import sides
import table

# What one repetition does: about a second each for the slower side.
SMALL = {"name": "135M", "prefill": (512, 2048), "batch_depth": 128,
         "decode": {0: 96, 1024: 48, 4096: 32}, "batch": {16: 24, 32: 16}}
LARGE = {"name": "0.6B", "prefill": (512, 2048), "batch_depth": 128,
         "decode": {0: 32, 1024: 24, 4096: 16}, "batch": {16: 8, 32: 6}}
TINY = {"name": "tiny", "prefill": (32,), "batch_depth": 16, "decode": {0: 4, 16: 4},
        "batch": {16: 2}}
MUST_DECODE = {0: (1.3, None), 1024: (1.8, None), 4096: (3.0, None)}


class Bench:
    """What all groups share: programs, models, how often."""

    def __init__(self, options):
        self.o = options
        self.skipped = []
        self.prefill_weights = {}  # the fastest, by model

    def skip(self, what, why):
        self.skipped.append(f"{what}: {why}")
        print(f"| {what} | | | | | | | | skipped | {why} |", flush=True)

    def keel(self, model, *options):
        return sides.Keel(self.o.keel, model, self.o.threads, *options)

    def peer(self, model):
        if not self.o.peer_python:
            return None
        script = os.path.join(os.path.dirname(__file__), "..", "peers", "llamacpp.py")
        return sides.Peer(self.o.peer_python, script, model, self.o.threads, self.o.modes)

    def in_turn(self, words, *programs):
        """Repetitions of a row by each program, in turn; the order changes each time.
        One repetition before them warms up and does not count."""
        got = [[] for _ in programs]
        for r in range(-1, self.o.repeats):
            order = list(enumerate(programs))
            for i, program in reversed(order) if r % 2 else order:
                answer = program.ask(*words)
                if r >= 0:
                    got[i].append(answer)
        return got


def rates(answers):
    return [a["median"] for a in answers]


def best_prefill_weights(b, model):
    """The format of prompts that is fastest here: ours chooses as the peer does."""
    if model in b.prefill_weights:
        return b.prefill_weights[model]
    found = {}
    for weights in ("same",) if b.o.is_tiny else ("same", "bf16", "fp8"):
        keel = b.keel(model, "--prefill-weights", weights, "--kv-dtype", "fp8")
        found[weights] = max(keel.ask("prefill", 512)["median"] for _ in range(3))
        keel.close()
    b.prefill_weights[model] = max(found, key=found.get)
    return b.prefill_weights[model]


def many_rows(b, model):
    """Options of a server of many answers at once: each step takes the format of weights
    that is the faster one for its rows, by what was measured at start."""
    weights = best_prefill_weights(b, model)
    return [] if weights == "same" else ["--prefill-weights", weights,
                                         "--weights-rule", "tokens"]


def against_peer(b, size, words, name, keel, peer, must, aim=None, note=""):
    """The row of one job. Without a peer the ratio's place is empty."""
    if not peer:
        ours = b.in_turn(words, keel)[0]
        return ours, table.row(f"{size['name']}, {name}", "tokens/s", rates(ours), None,
                               must, aim)
    ours, theirs = b.in_turn(words, keel, peer)
    note = ", ".join(filter(None, [note, f"peer: {theirs[0]['mode']}"]))
    return ours, table.row(f"{size['name']}, {name}", "tokens/s", rates(ours), rates(theirs),
                           must, aim, note)


def roof(size, name, what, answers, aim):
    shares = [a["share"] for a in answers]
    return table.single(f"{size['name']}, {name}: share of {what}", "of 1", shares, shares,
                        None, aim, f"{answers[0]['roof']:.0f} "
                        + ("GB/s" if what == "bandwidth" else "GFLOP/s"))


def prefill(b, size, model, peer_model):
    weights = best_prefill_weights(b, model)
    keel = b.keel(model, "--prefill-weights", weights, "--kv-dtype", "fp8")
    peer = b.peer(peer_model)
    for n in size["prefill"]:
        ours, row = against_peer(b, size, ("prefill", n), f"prefill {n}", keel, peer, 1.4,
                                 None, f"prefill weights {weights}")
        yield row
        yield roof(size, f"prefill {n}", "dot-product peak", ours, 0.7)
        b.prefill_rate[size["name"]] = table.statistics.median(rates(ours))
        if peer:
            peer.rest()
    keel.close()
    if peer:
        peer.close()


def decode(b, size, model, peer_model):
    keel, peer = b.keel(model, "--kv-dtype", "fp8"), b.peer(peer_model)
    for depth, steps in size["decode"].items():
        name = f"decode, depth {depth}"
        must, _ = MUST_DECODE.get(depth, (None, None))
        ours, row = against_peer(b, size, ("decode", depth, 1, steps), name, keel, peer,
                                 must)
        yield row
        yield roof(size, name, "bandwidth", ours, 0.85 if depth else 0.9)
    keel.close()
    if peer:
        peer.rest()
    options = many_rows(b, model)
    keel = b.keel(model, *options, "--kv-dtype", "fp8")
    note = " ".join([f"depth {size['batch_depth']}", *options])
    for n, steps in size["batch"].items():
        name = f"decode, batch {n}"
        ours, row = against_peer(b, size, ("decode", size["batch_depth"], n, steps), name,
                                 keel, peer, 2.2, None, note)
        yield row
        prompt = b.prefill_rate.get(size["name"])
        if prompt:
            yield table.single(f"{size['name']}, {name}: share of our prefill", "of 1",
                               [r / prompt for r in rates(ours)],
                               [r / prompt for r in rates(ours)], None, 0.8)
    keel.close()
    if peer:
        peer.close()


def wave(b, server, n_streams, n_prompt, n_output, seed):
    """n_streams chats that all begin at once, by keel bench serve."""
    got = subprocess.run(
        [b.o.keel, "bench", "serve", "--url", f"http://127.0.0.1:{server.port}",
         "--concurrency", str(n_streams), "--requests", str(n_streams), "--prompt-tokens",
         str(n_prompt), "--output-tokens", str(n_output), "--seed", str(seed), "--json",
         "-"], capture_output=True, text=True, timeout=600)
    if got.returncode:
        raise RuntimeError(f"keel bench serve: {got.stderr[-1000:]}")
    found = json.loads(got.stdout)
    if found["requests"]["ok"] != n_streams:
        raise RuntimeError(f"keel bench serve: {found['requests']}, {found['errors']}")
    return {"tokens_s": found["output_tokens_per_second"], "ttft_p50_ms": found["ttft_ms"]["p50"],
            "itl_p50_ms": found["itl_ms"]["p50"], "itl_p95_ms": found["itl_ms"]["p95"],
            "itl_p99_ms": found["itl_ms"]["p99"]}


class HttpPeer:
    """llama-server in its fastest mode for this load."""

    def __init__(self, b, model, shape):
        self.b, self.shape = b, shape
        n_ctx = 2 * (shape[1] + shape[2])
        found = {}
        for mode in sides.LLAMA_MODES:
            server = sides.llama_server(b.o.llama_bin, model, b.o.threads, shape[0], n_ctx,
                                        mode)
            try:
                found[mode] = max(wave(b, server, *shape, seed=9000 + s)["tokens_s"]
                                  for s in range(2))
            finally:
                server.close()
        self.mode = max(found, key=found.get)
        self.server = sides.llama_server(b.o.llama_bin, model, b.o.threads, shape[0], n_ctx,
                                         self.mode)
        self.what = f"llama-server, {self.mode}"

    def wave(self, seed):
        return wave(self.b, self.server, *self.shape, seed)

    def close(self):
        self.server.close()


class ApiPeer:
    """The same work in the peer's process by its low-level API: no HTTP, no tokenizer."""

    def __init__(self, b, model, shape):
        self.jobs, self.shape = b.peer(model), shape
        self.what = "in process, no HTTP"

    def wave(self, seed):
        got = self.jobs.ask("streams", *self.shape)
        self.what = f"in process, no HTTP, {got['mode']}"
        return {**got, "tokens_s": got["median"]}

    def close(self):
        self.jobs.close()


def streams(b, size, model, peer_model):
    shape = (4, 24, 8) if b.o.is_tiny else (16, 120, 128)
    options = ["--max-seqs", shape[0], "--kv-dtype", "fp8", "--max-batch-tokens", 1024,
               "--itl-target", "16ms"]
    weights = best_prefill_weights(b, model)
    if weights != "same":
        options += ["--prefill-weights", weights]
    server = sides.keel_server(b.o.keel, model, b.o.threads, *options)
    peer = None
    if b.o.llama_bin:
        peer = HttpPeer(b, peer_model, shape)
    elif b.o.peer_python:
        peer = ApiPeer(b, peer_model, shape)
    ours, theirs = [], []
    for r in range(-1, b.o.repeats):
        for is_ours in (True, False) if r % 2 else (False, True):
            if is_ours:
                got = wave(b, server, *shape, seed=100 + r)
            elif peer:
                got = peer.wave(200 + r)
            else:
                continue
            if r >= 0:
                (ours if is_ours else theirs).append(got)
    server.close()
    note = peer.what if peer else "no peer"
    if peer:
        peer.close()
    name = f"{size['name']}, {shape[0]} streams"
    for what, unit, key, must, is_less in (
            ("all answers", "tokens/s", "tokens_s", 2.0, False),
            ("between tokens p99", "ms", "itl_p99_ms", 2.0, True),
            ("first token p50", "ms", "ttft_p50_ms", 2.0, True)):
        yield table.row(f"{name}, {what}", unit, [g[key] for g in ours],
                        [g[key] for g in theirs] if peer else None, must, None, note,
                        is_less)


def available_bytes():
    with open("/proc/meminfo") as f:
        for text in f:
            if text.startswith("MemAvailable"):
                return int(text.split()[1]) * 1024
    return 0


def tools(b, size, model, peer_model):
    """A few rows again, against the peer's own command-line tools."""
    if not b.o.llama_bin:
        return b.skip("llama.cpp's tools", "LLAMA_CPP_BIN names no build of them")
    peer = sides.Tools(b.o.llama_bin, peer_model, b.o.threads)
    weights = best_prefill_weights(b, model)
    keel = b.keel(model, "--prefill-weights", weights, "--kv-dtype", "fp8")
    steps = size["decode"]
    for words, must in ((("prefill", 512), 1.4), (("decode", 0, 1, steps[0]), 1.3),
                        (("decode", 1024, 1, steps[1024]), 1.8),
                        (("decode", size["batch_depth"], 16, size["batch"][16]), 2.2)):
        name = " ".join(map(str, words))
        yield against_peer(b, size, words, f"tools, {name}", keel, peer, must)[1]
    keel.close()


def isa(b, size, model):
    """Our AVX2 kernels against the widest ones of this CPU."""
    if b.o.isa in ("ref", "avx2"):
        return b.skip("AVX2 against wider", f"the ISA is {b.o.isa}")
    narrow, wide = (b.keel(model, "--isa", i, "--kv-dtype", "fp8") for i in ("avx2", b.o.isa))
    first = min(size["decode"])
    for words in (("prefill", size["prefill"][0]), ("decode", first, 1, size["decode"][first])):
        ours, theirs = b.in_turn(words, narrow, wide)
        yield table.row(f"{size['name']}, {words[0]}: avx2, {b.o.isa}", "tokens/s",
                        rates(ours), rates(theirs))
    narrow.close()
    wide.close()


def kv_dtypes(b, size, model):
    """fp8 against bf16 keys and values."""
    n, depth, steps = (4, 32, 2) if b.o.is_tiny else (64, 1024, 3)
    fp8, bf16 = (b.keel(model, *many_rows(b, model), "--kv-dtype", d)
                 for d in ("fp8", "bf16"))
    one, two = (k.ask("decode", 0, 1, 1) for k in (fp8, bf16))
    deep, deep_two = (k.ask("decode", 16, 1, 1) for k in (fp8, bf16))
    token, token_two = ((d["bytes_per_token"] - s["bytes_per_token"]) / 16
                        for s, d in ((one, deep), (two, deep_two)))
    yield table.row(f"{size['name']}, context in 1 GiB of KV: fp8, bf16", "tokens",
                    [2**30 // token], [2**30 // token_two], 2.0)
    need = 1.2 * n * (depth + steps) * (token + token_two)
    if need > available_bytes():
        b.skip(f"{size['name']}, decode of {n} at depth {depth}: fp8, bf16",
               f"{need / 2**30:.0f} GiB of memory are not free")
    else:
        ours, theirs = b.in_turn(("decode", depth, n, steps), fp8, bf16)
        yield table.row(f"{size['name']}, decode of {n} at depth {depth}: fp8, bf16",
                        "tokens/s", rates(ours), rates(theirs), 1.35, 1.41)
    fp8.close()
    bf16.close()


def weights(b, size, model):
    """int4 against fp8 weights, embedding and head included on both sides."""
    int4 = b.keel(model, "--weights", "int4", "--kv-dtype", "fp8")
    fp8 = b.keel(model, "--weights", "fp8", "--kv-dtype", "fp8")
    ours, theirs = b.in_turn(("decode", 0, 1, size["decode"][0]), int4, fp8)
    int4.close()
    fp8.close()
    yield table.row(f"{size['name']}, decode: int4, fp8 weights", "tokens/s", rates(ours),
                    rates(theirs), 1.55, 1.8)


def page_check(b, size, model):
    """--page-check pages against off: two servers, the same prompts, pairs of waves."""
    if not sides.has_option(b.o.keel, "serve", "--page-check"):
        return b.skip("page check", "keel serve has no --page-check")
    shape, n = ((4, 24, 8), 2) if b.o.is_tiny else ((16, 32, 64), b.o.pairs)
    servers = {c: sides.keel_server(b.o.keel, model, b.o.threads, "--max-seqs", shape[0],
                                    "--kv-dtype", "fp8", "--page-check", c)
               for c in ("pages", "off")}
    got = {"pages": [], "off": []}
    for r in range(-1, n):
        for check in ("pages", "off") if r % 2 else ("off", "pages"):
            before = servers[check].cpu_s()
            found = wave(b, servers[check], *shape, seed=300 + r)
            found["cpu_s"] = servers[check].cpu_s() - before
            if r >= 0:
                got[check].append(found)
    for server in servers.values():
        server.close()
    for what, unit, key, is_less in (("all answers", "tokens/s", "tokens_s", False),
                                     ("between tokens p95", "ms", "itl_p95_ms", True),
                                     ("processor time", "s", "cpu_s", True)):
        pairs = [(p[key], o[key]) for p, o in zip(got["pages"], got["off"])]
        ratio, low, high = table.bootstrap([(o, p) for p, o in pairs] if is_less else pairs)
        row = table.row(f"{size['name']}, page check on, off: {what}", unit,
                        [p for p, _ in pairs], [o for _, o in pairs], 0.995, 0.998,
                        f"{n} pairs, 95 % interval of the mean", is_less)
        yield {**row, "ratio": ratio, "low": low, "high": high}


def perplexity(b, model, text, kv_dtype):
    got = subprocess.run([b.o.keel, "perplexity", model, "--text", text, "--json",
                          "--threads", str(b.o.threads), "--kv-dtype", kv_dtype],
                         capture_output=True, text=True, timeout=3600)
    if got.returncode:
        raise RuntimeError(got.stderr)
    return json.loads(got.stdout)["perplexity"]


def accuracy(b, size, model):
    """Perplexity of fp8 against bf16 KV, and of int4 against its bf16 parent. What
    calibrates is the text behind the part that is measured."""
    if not b.o.text:
        return b.skip("perplexity", "no text: --text FILE, or EK_DATA with text/")
    name = f"{size['name']}, perplexity"
    with tempfile.TemporaryDirectory(dir=b.o.cache) as folder:
        part, behind, parent, child = (
            os.path.join(folder, n) for n in ("part", "behind", "parent.gguf", "child.gguf"))
        with open(b.o.text, "rb") as f:
            for path in (part, behind):
                with open(path, "wb") as out:
                    out.write(f.read(b.o.text_bytes))
        fp8, bf16 = (perplexity(b, model, part, d) for d in ("fp8", "bf16"))
        yield table.row(f"{name}: fp8, bf16 KV", "perplexity", [fp8], [bf16], 0.997, None, "",
                        True)
        if not sides.has_option(b.o.keel, "quantize", "--calibrate"):
            return b.skip("perplexity of int4", "keel quantize cannot calibrate")
        quantize(b, model, parent, "bf16")
        base = perplexity(b, parent, part, "bf16")
        for what, options in (("int4", []), ("calibrated int4", ["--calibrate", behind])):
            quantize(b, parent, child, "int4", *options)
            yield table.row(f"{name}: {what}, bf16 parent", "perplexity",
                            [perplexity(b, child, part, "bf16")], [base], None, None, "",
                            True)


def quantize(b, source, out, to, *options):
    got = subprocess.run([b.o.keel, "quantize", source, out, "--to", to, "--force", "--quiet",
                          "--threads", str(b.o.threads), *options], capture_output=True,
                         text=True, timeout=3600)
    if got.returncode:
        raise RuntimeError(got.stderr)


def start(b, size, model):
    """From exec to the first 200 of /health, the file in the page cache."""
    seconds = []
    for r in range(-1, b.o.repeats):
        server = sides.keel_server(b.o.keel, model, b.o.threads)
        server.close()
        if r >= 0:
            seconds.append(server.start_s)
    yield table.single(f"{size['name']}, start to /health", "s", seconds,
                       [1.5 / s for s in seconds], 1.0, 3.0, "ratio: 1.5 s over ours")
