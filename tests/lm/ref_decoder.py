"""ref_decoder.py - an independent f32 decoder for GGUF files of architecture llama.

numpy only, weights dequantised by the `gguf` package: nothing of keel is used. One
sequence, no cache of keys: plain matrices, so that it can be read beside the paper.
"""
import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize
from tokenizers import Tokenizer, decoders, models, pre_tokenizers


class Decoder:
    def __init__(self, path):
        reader = GGUFReader(path)
        self.meta = {key: field.contents() for key, field in reader.fields.items()}
        assert self.meta["general.architecture"] == "llama"
        self.weights = {t.name: dequantize(t.data, t.tensor_type).astype(np.float32)
                        for t in reader.tensors}
        llama = {k[6:]: v for k, v in self.meta.items() if k.startswith("llama.")}
        self.layers = llama["block_count"]
        self.heads = llama["attention.head_count"]
        self.kv_heads = llama["attention.head_count_kv"]
        self.dim = llama["rope.dimension_count"]
        self.eps = np.float32(llama["attention.layer_norm_rms_epsilon"])
        powers = np.arange(self.dim // 2, dtype=np.float64) * 2 / self.dim
        self.freq = llama["rope.freq_base"] ** -powers
        self.keys = self.values = None
        self.reset()

    def reset(self):
        shape = (self.layers, self.kv_heads, 0, self.dim)
        self.keys, self.values = np.empty(shape, np.float32), np.empty(shape, np.float32)

    def product(self, x, name):
        return x @ self.weights[name].T

    def rms(self, x, name):
        mean = np.mean(np.square(x), axis=-1, keepdims=True)
        return x / np.sqrt(mean + self.eps) * self.weights[name]

    def heads_of(self, x, n):
        """(T, n*D) -> (n, T, D)"""
        return x.reshape(len(x), n, self.dim).transpose(1, 0, 2)

    def rotate(self, x, first):
        """Interleaved rotary embedding of x (n, T, D) from position `first`: neighbours
        are the real and imaginary part of one number."""
        angle = np.outer(first + np.arange(x.shape[1]), self.freq)
        turn = np.exp(1j * angle).astype(np.complex64)
        return (np.ascontiguousarray(x).view(np.complex64) * turn).view(np.float32)

    def attention(self, x, layer, keys, values):
        first = self.keys.shape[2]
        name = f"blk.{layer}.attn_"
        q = self.rotate(self.heads_of(self.product(x, name + "q.weight"), self.heads),
                        first)
        k = self.heads_of(self.product(x, name + "k.weight"), self.kv_heads)
        v = self.heads_of(self.product(x, name + "v.weight"), self.kv_heads)
        k = np.concatenate([self.keys[layer], self.rotate(k, first)], axis=1)
        v = np.concatenate([self.values[layer], v], axis=1)
        keys.append(k)
        values.append(v)
        hidden = np.triu(np.ones((len(x), k.shape[1]), bool), first + 1)
        out = np.empty_like(q)
        for h in range(self.heads):
            g = h // (self.heads // self.kv_heads)
            score = q[h] @ k[g].T * np.float32(self.dim ** -0.5)
            score[hidden] = -np.inf
            weight = np.exp(score - score.max(axis=1, keepdims=True))
            out[h] = weight / weight.sum(axis=1, keepdims=True) @ v[g]
        return self.product(out.transpose(1, 0, 2).reshape(len(x), -1),
                            name + "output.weight")

    def feed_forward(self, x, layer):
        gate = self.product(x, f"blk.{layer}.ffn_gate.weight")
        gate = gate / (np.float32(1) + np.exp(-gate))
        return self.product(gate * self.product(x, f"blk.{layer}.ffn_up.weight"),
                            f"blk.{layer}.ffn_down.weight")

    def forward(self, ids):
        """Logits (T, V) of ids after what was forwarded since reset()."""
        keys, values = [], []
        x = self.weights["token_embd.weight"][ids]
        for layer in range(self.layers):
            x = x + self.attention(self.rms(x, f"blk.{layer}.attn_norm.weight"), layer,
                                   keys, values)
            x = x + self.feed_forward(self.rms(x, f"blk.{layer}.ffn_norm.weight"), layer)
        self.keys, self.values = np.stack(keys), np.stack(values)
        head = "output.weight" if "output.weight" in self.weights else "token_embd.weight"
        return self.product(self.rms(x, "output_norm.weight"), head)

    def tokenizer(self):
        """The file's own vocabulary in the `tokenizers` package (SmolLM2's splitting)."""
        words = self.meta["tokenizer.ggml.tokens"]
        merges = [tuple(m.split(" ")) for m in self.meta["tokenizer.ggml.merges"]]
        tok = Tokenizer(models.BPE(vocab={w: i for i, w in enumerate(words)},
                                   merges=merges))
        tok.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True),
             pre_tokenizers.ByteLevel(add_prefix_space=False)])
        tok.decoder = decoders.ByteLevel()
        kinds = self.meta["tokenizer.ggml.token_type"]
        tok.add_special_tokens([w for w, k in zip(words, kinds) if k == 3])
        return tok
