#!/usr/bin/env python3
"""Makes the golden vectors that tests/lm/test_golden.c compares the forward pass with.

For every family a tiny model with random weights is built with transformers (PyTorch,
CPU, f32, eager attention), saved as a Hugging Face folder and as a GGUF file (llama.cpp's
conventions: rows of q and k permuted for interleaved RoPE in architecture llama, norms
of gemma3 stored as 1+w, Llama 3's scaling as the tensor rope_freqs.weight), and asked for
the last position's logits after several lengths of one random sequence.

usage: make_golden.py [FOLDER]        default: the folder of this script
needs: pip install torch transformers tokenizers gguf
Weights are rounded to the type they are stored in before the reference runs, so both
sides compute with the same numbers. Deterministic: the same versions write the same
files.
"""
import json
import math
import pathlib
import shutil
import sys

import gguf
import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

V = 288
LENGTHS = (1, 2, 17, 40)
MERGES = ["Ġ t", "h e", "i n", "e r", "Ġ a", "o n", "r e", "Ġ s", "a t", "e n", "o r",
          "e s", "i s", "a n", "Ġt he", "Ġ w", "Ġ o", "i t", "e d", "Ġ c", "a l", "o u",
          "Ġ b", "Ġ f", "in g", "Ġ p", "Ġa n", "Ġan d"]
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|pad|>"]
LLAMA3 = {"rope_type": "llama3", "rope_theta": 5000.0, "factor": 8.0,
          "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 32}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
        "original_max_position_embeddings": 32, "beta_fast": 8.0, "beta_slow": 1.0}

# name: (transformers class prefix, stored type, configuration)
MODELS = {
    "llama": ("Llama", "f32", dict(
        hidden_size=48, intermediate_size=88, num_hidden_layers=2, num_attention_heads=3,
        num_key_value_heads=3, tie_word_embeddings=False, rms_norm_eps=1e-5)),
    "llama3": ("Llama", "bf16", dict(
        hidden_size=54, intermediate_size=80, num_hidden_layers=2, num_attention_heads=9,
        num_key_value_heads=3, head_dim=8, tie_word_embeddings=True, rms_norm_eps=1e-5,
        rope_parameters=LLAMA3)),
    "llama-yarn": ("Llama", "f16", dict(
        hidden_size=40, intermediate_size=72, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=1, head_dim=16, tie_word_embeddings=True, rms_norm_eps=1e-5,
        rope_parameters=YARN)),
    "llama-linear": ("Llama", "bf16", dict(
        hidden_size=40, intermediate_size=72, num_hidden_layers=2, num_attention_heads=5,
        num_key_value_heads=5, tie_word_embeddings=False, rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5})),
    "mistral": ("Mistral", "bf16", dict(
        hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=3,
        num_key_value_heads=1, tie_word_embeddings=False, rms_norm_eps=1e-5,
        sliding_window=9)),
    "qwen2": ("Qwen2", "bf16", dict(
        hidden_size=56, intermediate_size=72, num_hidden_layers=2, num_attention_heads=7,
        num_key_value_heads=7, tie_word_embeddings=True, rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6})),
    "qwen3": ("Qwen3", "bf16", dict(
        hidden_size=42, intermediate_size=72, num_hidden_layers=2, num_attention_heads=3,
        num_key_value_heads=1, head_dim=18, tie_word_embeddings=False, rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6})),
    "gemma3": ("Gemma3", "bf16", dict(
        hidden_size=36, intermediate_size=60, num_hidden_layers=5, num_attention_heads=4,
        num_key_value_heads=1, head_dim=16, query_pre_attn_scalar=16, sliding_window=11,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"] * 1 +
                    ["sliding_attention", "sliding_attention"],
        rms_norm_eps=1e-6)),
    # Only as a folder: what GGUF has no key for, and the nesting of a vision model.
    "gemma3-nested": ("Gemma3", "bf16", dict(
        hidden_size=36, intermediate_size=60, num_hidden_layers=3, num_attention_heads=3,
        num_key_value_heads=3, head_dim=12, query_pre_attn_scalar=20, sliding_window=7,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        final_logit_softcapping=8.0, rms_norm_eps=1e-6,
        rope_parameters={
            "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}})),
}
TORCH = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def build(name):
    """The reference model, its weights rounded to the stored type."""
    prefix, stored, values = MODELS[name]
    text = prefix == "Gemma3"
    config = getattr(transformers, prefix + ("TextConfig" if text else "Config"))(
        vocab_size=V, max_position_embeddings=128, attn_implementation="eager", **values)
    config.bos_token_id, config.eos_token_id, config.pad_token_id = V - 3, V - 2, V - 1
    model = getattr(transformers, prefix + "ForCausalLM")(config)
    gen = torch.Generator().manual_seed(sum(name.encode()))
    with torch.no_grad():
        for key, w in model.named_parameters():
            r = torch.randn(w.shape, generator=gen)
            if "norm" in key:
                w.copy_((0 if text else 1) + 0.2 * r)
            elif key.endswith("bias"):
                w.copy_(0.5 * r)
            elif "embed_tokens" in key:
                w.copy_(r if not text else r / 4)
            else:
                w.copy_(1.5 * r / math.sqrt(w.shape[1]))
            w.copy_(w.to(TORCH[stored]).float())
    return model.eval().float()


def byte_alphabet():
    keep = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    rest = [b for b in range(256) if b not in keep]
    table = {b: chr(b) for b in keep} | {b: chr(256 + i) for i, b in enumerate(rest)}
    return [table[b] for b in range(256)]


def vocabulary():
    return byte_alphabet() + [m.replace(" ", "") for m in MERGES] + SPECIALS


def save_tokenizer(folder):
    words = vocabulary()
    assert len(words) == V == len(set(words))
    tok = Tokenizer(models.BPE(vocab={w: i for i, w in enumerate(words)},
                               merges=[tuple(m.split(" ")) for m in MERGES]))
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tok.decoder = decoders.ByteLevel()
    tok.add_special_tokens(SPECIALS)
    tok.save(str(folder / "tokenizer.json"), pretty=False)
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": SPECIALS[1],
        "eos_token": SPECIALS[2], "pad_token": SPECIALS[3], "add_bos_token": False}))


def save_folder(model, name, folder):
    """config.json and model.safetensors as transformers writes them; the nested one by
    hand, as a Gemma 3 with vision looks."""
    stored = TORCH[MODELS[name][1]]
    folder.mkdir()
    if name == "gemma3-nested":
        text = model.config.to_dict()
        text["model_type"] = "gemma3_text"
        (folder / "config.json").write_text(json.dumps(
            {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
             "text_config": text}, indent=1))
        save_file({"language_model." + k: w.to(stored).contiguous()
                   for k, w in model.state_dict().items() if k != "lm_head.weight"},
                  folder / "model.safetensors")
    else:
        model.to(stored).save_pretrained(folder)
        model.float()
    save_tokenizer(folder)


def permute(w, heads):
    """Rows of q or k from half-split to interleaved order."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2) \
            .reshape(w.shape)


GGUF_NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    "post_attention_layernorm": "ffn_norm",
}
GEMMA_NAMES = {"post_attention_layernorm": "post_attention_norm",
               "pre_feedforward_layernorm": "ffn_norm",
               "post_feedforward_layernorm": "post_ffw_norm"}


def gguf_name(key, text):
    if key == "model.embed_tokens.weight":
        return "token_embd.weight"
    if key == "model.norm.weight":
        return "output_norm.weight"
    if key == "lm_head.weight":
        return "output.weight"
    _, _, layer, rest = key.split(".", 3)
    part, kind = rest.rsplit(".", 1)
    names = GGUF_NAMES | (GEMMA_NAMES if text else {})
    return f"blk.{layer}.{names[part]}.{kind}"


def llama3_factors(config):
    r = config.rope_parameters
    inv = r["rope_theta"] ** -(np.arange(0, config.head_dim, 2) / config.head_dim)
    wave = 2 * np.pi / inv
    low = r["original_max_position_embeddings"] / r["low_freq_factor"]
    high = r["original_max_position_embeddings"] / r["high_freq_factor"]
    smooth = (r["original_max_position_embeddings"] / wave - r["low_freq_factor"]) / \
        (r["high_freq_factor"] - r["low_freq_factor"])
    mid = 1 / ((1 - smooth) / r["factor"] + smooth)
    return np.where(wave < high, 1, np.where(wave > low, r["factor"], mid)) \
        .astype(np.float32)


def add_rope(out, config, text):
    rope = config.rope_parameters
    if text:
        out.add_rope_freq_base(rope["full_attention"]["rope_theta"])
        return
    out.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] in ("linear", "yarn"):
        out.add_rope_scaling_type(gguf.RopeScalingType(rope["rope_type"]))
        out.add_rope_scaling_factor(rope["factor"])
    if rope["rope_type"] == "yarn":
        out.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
        out.add_rope_scaling_yarn_beta_fast(rope["beta_fast"])
        out.add_rope_scaling_yarn_beta_slow(rope["beta_slow"])
    if rope["rope_type"] == "llama3":
        out.add_tensor("rope_freqs.weight", llama3_factors(config))


def add_metadata(out, config, name, text):
    out.add_name(f"tiny {name}")
    out.add_block_count(config.num_hidden_layers)
    out.add_context_length(config.max_position_embeddings)
    out.add_embedding_length(config.hidden_size)
    out.add_feed_forward_length(config.intermediate_size)
    out.add_head_count(config.num_attention_heads)
    out.add_head_count_kv(config.num_key_value_heads)
    out.add_layer_norm_rms_eps(config.rms_norm_eps)
    head_dim = getattr(config, "head_dim", None)
    if head_dim and head_dim * config.num_attention_heads != config.hidden_size:
        out.add_key_length(head_dim)
        out.add_value_length(head_dim)
        out.add_rope_dimension_count(head_dim)
    if text or name == "mistral":
        out.add_sliding_window(config.sliding_window)
    if text:
        out.add_sliding_window_pattern([t == "sliding_attention"
                                        for t in config.layer_types])
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("gpt-2")
    out.add_token_list(vocabulary())
    out.add_token_types([gguf.TokenType.NORMAL] * (V - 4) + [gguf.TokenType.CONTROL] * 4)
    out.add_token_merges(MERGES)
    out.add_bos_token_id(V - 3)
    out.add_eos_token_id(V - 2)
    out.add_add_bos_token(False)


def save_gguf(model, name, path):
    prefix, stored, _ = MODELS[name]
    text = prefix == "Gemma3"
    arch = {"Llama": "llama", "Mistral": "llama", "Gemma3": "gemma3"}.get(
        prefix, prefix.lower())
    config = model.config
    out = gguf.GGUFWriter(path, arch)
    add_metadata(out, config, name, text)
    add_rope(out, config, text)
    for key, w in model.state_dict().items():
        if key == "lm_head.weight" and config.tie_word_embeddings:
            continue
        w = w.float().numpy()
        if text and "norm" in key:
            w = w + np.float32(1)
        if arch == "llama" and ("q_proj" in key or "k_proj" in key):
            w = permute(w, config.num_attention_heads if "q_proj" in key
                        else config.num_key_value_heads)
        kind = gguf.GGMLQuantizationType.F32
        if w.ndim == 2 and stored != "f32":
            kind = getattr(gguf.GGMLQuantizationType, stored.upper())
            w = gguf.quants.quantize(w, kind)
        out.add_tensor(gguf_name(key, text), np.ascontiguousarray(w), raw_dtype=kind)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
    root = root if root.is_dir() else root.parent
    golden = []
    torch.set_num_threads(1)
    for name in MODELS:
        model = build(name)
        folder = root / name
        shutil.rmtree(folder, ignore_errors=True)
        gen = torch.Generator().manual_seed(7)
        ids = torch.randint(0, V, (1, max(LENGTHS)), generator=gen)
        with torch.no_grad():
            logits = [model(ids[:, :n]).logits[0, -1].tolist() for n in LENGTHS]
        save_folder(model, name, folder)
        files = [name]
        if name != "gemma3-nested":
            save_gguf(model, name, root / f"{name}.gguf")
            files.append(f"{name}.gguf")
        golden.append({"files": files, "tokens": ids[0].tolist(), "lengths": LENGTHS,
                       "logits": [[round(x, 6) for x in row] for row in logits]})
        print(name, files, "max |logit|", max(abs(x) for r in logits for x in r))
    (root / "golden.json").write_text("[" + ",\n".join(
        json.dumps(g, separators=(",", ":")) for g in golden) + "]\n")


if __name__ == "__main__":
    main()
