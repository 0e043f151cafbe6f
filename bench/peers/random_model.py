#!/usr/bin/env python3
"""Writes a GGUF file of a real model's shape with random weights, for measuring speed.

    random_model.py OUT.gguf [--shape qwen3-0.6b|tiny] [--blocks q4_0|q4_1]
                             [--embedding q6_k|q8_0] [--seed N]

Times do not depend on what weights say, only on their shapes and formats. The blocks are
drawn as the quantised formats store them, with scales that keep activations finite. The
vocabulary has the real size and made-up words: 256 bytes, a few merges, words that no
text has. Formats are those that llama.cpp's own quantiser gives such a model.
"""
import argparse
import struct

import numpy as np

SHAPES = {  # layers, C, H, K, D, F, V, context
    "qwen3-0.6b": (28, 1024, 16, 8, 128, 3072, 151936, 40960),
    "tiny": (2, 256, 4, 2, 64, 512, 512, 2048),
}
GGML = {"f32": 0, "q4_0": 2, "q4_1": 3, "q8_0": 8, "q6_k": 14}
FILE_TYPE = {"q4_0": 2, "q4_1": 3}
ALIGN = 32
TEMPLATE = ("{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
            "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


def half(x):
    return np.float16(x).tobytes()


def q4_0(rng, n, std):
    """n blocks of 32: f16 scale, 16 bytes of nibbles; value = (nibble - 8) scale."""
    out = rng.integers(0, 256, (n, 18), np.uint8)
    out[:, :2] = np.frombuffer(half(std / 4.6), np.uint8)
    return out


def q4_1(rng, n, std):
    """The same with an f16 minimum: value = nibble scale + minimum."""
    out = rng.integers(0, 256, (n, 20), np.uint8)
    out[:, :2] = np.frombuffer(half(std / 4.6), np.uint8)
    out[:, 2:4] = np.frombuffer(half(-7.5 * std / 4.6), np.uint8)
    return out


def q8_0(rng, n, std):
    """f16 scale, 32 signed bytes."""
    out = rng.integers(0, 256, (n, 34), np.uint8)
    out[:, :2] = np.frombuffer(half(std / 74), np.uint8)
    return out


def q6_k(rng, n, std):
    """n blocks of 32, 8 a super-block: 192 bytes of codes, 16 scales, f16 scale of all;
    value = (code - 32) scale scale."""
    out = rng.integers(0, 256, (n // 8, 210), np.uint8)
    out[:, 192:208] = 16
    out[:, 208:] = np.frombuffer(half(std / 18.5 / 16), np.uint8)
    return out


PACK = {"q4_0": q4_0, "q4_1": q4_1, "q8_0": q8_0, "q6_k": q6_k}


def byte_names():
    """The 256 bytes as byte-level BPE writes them: printable ones as they are, the others
    as characters from U+0100 on."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other, names = 256, {}
    for b in range(256):
        names[b] = chr(b) if b in shown else chr(other)
        other += b not in shown
    return [names[b] for b in range(256)]


def vocabulary(V):
    """(tokens, types, merges): bytes, " a" to " z", made-up words, three special ones."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    space = byte_names()[32]
    tokens = byte_names() + [space + a for a in letters]
    merges = [f"{space} {a}" for a in letters]
    i = 0
    while len(tokens) < V - 3:
        word, n = "", i
        for _ in range(4):
            word, n = word + letters[n % 26], n // 26
        tokens.append(space + word + "q")
        i += 1
    types = [1] * len(tokens) + [3] * 3
    return tokens + ["<|endoftext|>", "<|im_start|>", "<|im_end|>"], types, merges


def text(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def value(v):
    """A metadata value behind its type."""
    if isinstance(v, bool):
        return struct.pack("<I?", 7, v)
    if isinstance(v, int):
        return struct.pack("<II", 4, v)
    if isinstance(v, float):
        return struct.pack("<If", 6, v)
    if isinstance(v, str):
        return struct.pack("<I", 8) + text(v)
    of_text = isinstance(v[0], str)
    items = b"".join(text(s) for s in v) if of_text else struct.pack(f"<{len(v)}i", *v)
    return struct.pack("<IIQ", 9, 8 if of_text else 5, len(v)) + items


def metadata(shape, blocks):
    L, C, H, K, D, F, V, ctx = SHAPES[shape]
    tokens, types, merges = vocabulary(V)
    return {
        "general.architecture": "qwen3", "general.name": f"{shape}, random weights",
        "general.file_type": FILE_TYPE[blocks], "general.quantization_version": 2,
        "qwen3.block_count": L, "qwen3.context_length": ctx,
        "qwen3.embedding_length": C, "qwen3.feed_forward_length": F,
        "qwen3.attention.head_count": H, "qwen3.attention.head_count_kv": K,
        "qwen3.attention.key_length": D, "qwen3.attention.value_length": D,
        "qwen3.attention.layer_norm_rms_epsilon": 1e-6, "qwen3.rope.freq_base": 1e6,
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": types,
        "tokenizer.ggml.merges": merges, "tokenizer.ggml.eos_token_id": V - 1,
        "tokenizer.ggml.bos_token_id": V - 3, "tokenizer.ggml.padding_token_id": V - 3,
        "tokenizer.ggml.add_bos_token": False, "tokenizer.chat_template": TEMPLATE,
    }


def tensors(shape, blocks, embedding):
    """(name, sizes with the input dimension first, format)"""
    L, C, H, K, D, F, V, _ = SHAPES[shape]
    yield "token_embd.weight", (C, V), embedding
    yield "output_norm.weight", (C,), "f32"
    for i in range(L):
        for name, sizes in (("attn_q", (C, H * D)), ("attn_k", (C, K * D)),
                            ("attn_v", (C, K * D)), ("attn_output", (H * D, C)),
                            ("ffn_gate", (C, F)), ("ffn_up", (C, F)), ("ffn_down", (F, C))):
            yield f"blk.{i}.{name}.weight", sizes, blocks
        for name, n in (("attn_norm", C), ("ffn_norm", C), ("attn_q_norm", D),
                        ("attn_k_norm", D)):
            yield f"blk.{i}.{name}.weight", (n,), "f32"


def n_bytes(sizes, fmt):
    n = int(np.prod(sizes))
    return {"f32": 4 * n, "q4_0": n // 32 * 18, "q4_1": n // 32 * 20, "q8_0": n // 32 * 34,
            "q6_k": n // 256 * 210}[fmt]


def write(path, shape="qwen3-0.6b", blocks="q4_0", embedding="q6_k", seed=1):
    rng = np.random.default_rng(seed)
    meta = metadata(shape, blocks)
    parts = list(tensors(shape, blocks, embedding))
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(parts), len(meta))
    head += b"".join(text(k) + value(v) for k, v in meta.items())
    at = 0
    for name, sizes, fmt in parts:
        head += text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes,
                                         GGML[fmt], at)
        at += -(-n_bytes(sizes, fmt) // ALIGN) * ALIGN
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % ALIGN))
        for _, sizes, fmt in parts:
            if fmt == "f32":
                data = np.ones(sizes[0], np.float32).tobytes()
            else:
                n = int(np.prod(sizes)) // 32
                data = PACK[fmt](rng, n, sizes[0] ** -0.5).tobytes()
            f.write(data + bytes(-len(data) % ALIGN))


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("out")
    p.add_argument("--shape", choices=SHAPES, default="qwen3-0.6b")
    p.add_argument("--blocks", choices=("q4_0", "q4_1"), default="q4_0")
    p.add_argument("--embedding", choices=("q6_k", "q8_0"), default="q6_k")
    p.add_argument("--seed", type=int, default=1)
    a = p.parse_args()
    write(a.out, a.shape, a.blocks, a.embedding, a.seed)


if __name__ == "__main__":
    main()
