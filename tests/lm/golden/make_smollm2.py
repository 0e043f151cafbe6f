#!/usr/bin/env python3
"""Makes smollm2.json, what tests/lm/check_smollm2.py compares keel with: for a handful of
prompts the 64 tokens that greedy decoding gives in f32, and a sample of the logits; and
the perplexity of the first bytes of wikitext-2's test set.

usage: make_smollm2.py SmolLM2-135M-Instruct.Q4_1.gguf wikitext-2-test.txt [OUT.json]
needs: pip install numpy gguf tokenizers; about two minutes
"""
import json
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from ref_decoder import Decoder  # noqa: E402

CHAT = "<|im_start|>user\n%s<|im_end|>\n<|im_start|>assistant\n"
PROMPTS = [
    "The lighthouse keeper counted the ships that came in before the storm, and",
    CHAT % "What is the capital of France?",
    "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n",
    "In 1969, Apollo 11 landed on the Moon. The crew of three",
    CHAT % "Write a short list of five fruits, one a line.",
]
N_TOKENS = 64
TEXT_BYTES, CTX = 10000, 512
STRIDE = 97  # every 97th logit: 507 of 49,152


def sample(logits):
    return [round(float(x), 5) for x in logits[::STRIDE]]


def answer(model, tokenizer, prompt):
    ids = tokenizer.encode(prompt).ids
    model.reset()
    logits = model.forward(ids)[-1]
    first, given, margin = sample(logits), [], np.inf
    for _ in range(N_TOKENS):
        two = np.partition(logits, -2)[-2:]
        margin = min(margin, float(two[1] - two[0]))
        given.append(int(logits.argmax()))
        logits = model.forward(given[-1:])[-1]
    print(repr(tokenizer.decode(given, skip_special_tokens=False)), "margin", margin)
    return {"prompt": prompt, "prompt_ids": ids, "ids": given,
            "least_margin": round(margin, 4), "logits_first": first,
            "logits_last": sample(logits)}


def perplexity(model, tokenizer, text):
    """Chunks of CTX from an empty context; the second half of each is scored."""
    ids = tokenizer.encode(text[:TEXT_BYTES].decode()).ids
    total, scored = 0.0, 0
    for at in range(0, len(ids) // CTX * CTX, CTX):
        model.reset()
        chunk = ids[at:at + CTX]
        logits = model.forward(chunk)[CTX // 2:CTX - 1].astype(np.float64)
        top = logits.max(axis=1)
        log_sum = np.log(np.exp(logits - top[:, None]).sum(axis=1)) + top
        total += (log_sum - logits[np.arange(len(logits)), chunk[CTX // 2 + 1:]]).sum()
        scored += len(logits)
    return {"bytes": TEXT_BYTES, "ctx": CTX, "tokens": len(ids), "scored": scored,
            "value": round(float(np.exp(total / scored)), 5)}


def main():
    model = Decoder(sys.argv[1])
    tokenizer = model.tokenizer()
    out = pathlib.Path(sys.argv[3] if len(sys.argv) > 3
                       else pathlib.Path(__file__).with_name("smollm2.json"))
    results = [answer(model, tokenizer, p) for p in PROMPTS]
    score = perplexity(model, tokenizer, pathlib.Path(sys.argv[2]).read_bytes())
    print("perplexity", score)
    out.write_text(json.dumps({"stride": STRIDE, "perplexity": score,
                               "results": results},
                              separators=(",", ":")).replace('},{', '},\n{') + "\n")


if __name__ == "__main__":
    main()
