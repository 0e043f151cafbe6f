"""keel quantize against independent decoders: the PyPI package gguf reads its GGUF files,
numpy (and compressed-tensors, where it is installed) its folders by their published
formats; keel runs what it wrote; nothing is left behind where writing fails."""
import json
import os
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

from keelkit import keel, need_keel, need_model, skip

try:
    import gguf
    import numpy as np
except ImportError as missing:
    skip(f"the package {missing.name} is not installed")

HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(HERE, "..", "lm", "golden")
T = gguf.GGMLQuantizationType
C, F, H, K, D, V, LAYERS = 64, 96, 4, 2, 16, 288, 2
TYPES = {"F32": np.float32, "F16": np.float16, "I64": np.int64, "I32": np.int32,
         "BF16": np.uint16, "F8_E4M3": np.uint8}


def read(path):
    with open(path, "rb") as f:
        return f.read()


def write(path, data):
    with open(path, "wb") as f:
        f.write(data)


def read_safetensors(path):
    """{name: (dtype word, array)}; bf16 and e4m3 as their bits."""
    data = read(path)
    n = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + n])
    out = {}
    for name, t in header.items():
        if name != "__metadata__":
            a, b = t["data_offsets"]
            assert (8 + n + a) % np.dtype(TYPES[t["dtype"]]).itemsize == 0, name
            out[name] = (t["dtype"], np.frombuffer(data[8 + n + a:8 + n + b],
                                                   TYPES[t["dtype"]]).reshape(t["shape"]))
    return out


def write_safetensors(path, tensors):
    header, at, parts = {}, 0, []
    for name, (word, x) in tensors.items():
        raw = np.ascontiguousarray(x).tobytes()
        header[name] = {"dtype": word, "shape": list(x.shape),
                        "data_offsets": [at, at + len(raw)]}
        at += len(raw)
        parts.append(raw)
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(head)) + head + b"".join(parts))


def to_bf16(x):
    u = x.astype(np.float32).view(np.uint32).astype(np.uint64)
    return ((u + 0x7fff + (u >> 16 & 1)) >> 16).astype(np.uint16)


def from_bf16(bits):
    return (bits.astype(np.uint32) << 16).view(np.float32)


def e4m3_table():
    code = np.arange(256)
    e, m, sign = code >> 3 & 15, code & 7, np.where(code & 128, -1.0, 1.0)
    value = np.where(e == 0, m * 2.0 ** -9, (1 + m / 8) * 2.0 ** (e - 7))
    value[code & 127 == 127] = np.nan
    return (sign * value).astype(np.float32)


def nibbles(words, axis):
    """int32 words -> codes, low nibble first, along axis."""
    u = np.moveaxis(words.view(np.uint32), axis, -1)
    out = (u[..., None] >> (4 * np.arange(8, dtype=np.uint32)) & 15).astype(np.int32)
    return np.moveaxis(out.reshape(*u.shape[:-1], -1), -1, axis)


def decode_int4(t, name):
    """compressed-tensors' pack-quantized: w = (code - zero) * scale."""
    word, scale = t[name + "_scale"]
    assert word == "BF16"
    rows, cols = t[name + "_shape"][1]
    q = nibbles(t[name + "_packed"][1], 1)[:, :cols]
    group = cols // scale.shape[1]
    zero = np.full(scale.shape, 8)
    if name + "_zero_point" in t:
        zero = nibbles(t[name + "_zero_point"][1], 0)[:rows]
    return ((q - np.repeat(zero, group, 1)).astype(np.float32)
            * np.repeat(from_bf16(scale), group, 1))


def decode_fp8(t, name):
    codes, scale = t[name][1], t[name + "_scale_inv"][1]
    rows, cols = codes.shape
    big = np.repeat(np.repeat(scale, 128, 0), 128, 1)[:rows, :cols]
    return e4m3_table()[codes] * big


def decode(t, name):
    if name + "_packed" in t:
        return decode_int4(t, name)
    word, x = t[name]
    if word == "F8_E4M3":
        return decode_fp8(t, name)
    return from_bf16(x) if word == "BF16" else x.astype(np.float32)


def matrix_names():
    for layer in range(LAYERS):
        for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj",
                     "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj",
                     "mlp.down_proj"):
            yield f"model.layers.{layer}.{name}.weight"


def random_weights(rng):
    shapes = {"q": (H * D, C), "k": (K * D, C), "v": (K * D, C), "o": (C, H * D),
              "g": (F, C), "u": (F, C), "d": (C, F)}
    w = {"model.embed_tokens.weight": rng.standard_normal((V, C)),
         "lm_head.weight": rng.standard_normal((V, C)) / 8,
         "model.norm.weight": 1 + 0.1 * rng.standard_normal(C)}
    for name in matrix_names():
        rows, cols = shapes[name.rsplit(".", 2)[1][0]]
        x = rng.standard_normal((rows, cols)) * 1.2 / np.sqrt(cols)
        x *= np.exp(rng.standard_normal(cols))  # columns of unlike size
        w[name] = x
    for layer in range(LAYERS):
        for name in ("input_layernorm", "post_attention_layernorm"):
            w[f"model.layers.{layer}.{name}.weight"] = (
                1 + 0.2 * rng.standard_normal(C)) * np.exp(rng.standard_normal(C))
    return {name: x.astype(np.float32) for name, x in w.items()}


GGUF_NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
              "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
              "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
              "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
              "post_attention_layernorm": "ffn_norm"}


def gguf_name(name):
    for hf, g in GGUF_NAMES.items():
        name = name.replace(hf, g)
    return (name.replace("model.layers.", "blk.").replace("model.embed_tokens", "token_embd")
            .replace("model.norm", "output_norm").replace("lm_head", "output"))


def make_folder(path, weights, word="BF16", config_extra=None):
    os.makedirs(path)
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(os.path.join(GOLDEN, "llama", name), path)
    config = json.loads(read(os.path.join(GOLDEN, "llama", "config.json")))
    config.update(hidden_size=C, intermediate_size=F, num_attention_heads=H,
                  num_key_value_heads=K, head_dim=D, num_hidden_layers=LAYERS,
                  **(config_extra or {}))
    write(os.path.join(path, "config.json"), json.dumps(config).encode())
    pack = {"BF16": to_bf16, "F32": lambda x: x, "F16": lambda x: x.astype(np.float16)}
    write_safetensors(os.path.join(path, "model.safetensors"),
                      {n: (word, pack[word](x)) for n, x in weights.items()})


def add_scaled(w, name, x):
    """x as llama.cpp's converter keeps NVFP4: a factor of the matrix beside it. Here it
    comes first. Returns the numbers."""
    rng = np.random.default_rng(len(name))
    blocks = rng.integers(0, 256, (x.shape[0], x.shape[1] // 64, 36), dtype=np.uint8)
    blocks[:, :, :4] = 0x30 + blocks[:, :, :4] % 16
    blocks = blocks.reshape(x.shape[0], -1)
    scale = np.array([0.013], np.float32)
    w.add_tensor(name.replace(".weight", ".scale"), scale)
    w.add_tensor(name, blocks, raw_dtype=T.NVFP4)
    return gguf.quants.dequantize(blocks, T.NVFP4) * scale


def make_gguf(path, weights, scaled=None):
    """scaled: a dictionary; matrices of layers are NVFP4 where they can be, and their
    numbers come here."""
    old = gguf.GGUFReader(os.path.join(GOLDEN, "llama.gguf"))
    w = gguf.GGUFWriter(path, "llama")
    sizes = {"llama.embedding_length": C, "llama.feed_forward_length": F,
             "llama.attention.head_count": H, "llama.attention.head_count_kv": K,
             "llama.rope.dimension_count": D, "llama.block_count": LAYERS,
             "llama.attention.key_length": D, "llama.attention.value_length": D}
    for field in old.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        kind = field.types[0]
        sub = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        w.add_key_value(field.name, sizes.get(field.name, field.contents()), kind, sub)
    w.add_key_value("test.words", ["one", "", "three"], gguf.GGUFValueType.ARRAY,
                    gguf.GGUFValueType.STRING)
    for name, x in weights.items():
        if x.ndim == 1:
            w.add_tensor(gguf_name(name), x)
        elif scaled is not None and name.startswith("model.layers.") and x.shape[1] % 64 == 0:
            scaled[gguf_name(name)] = add_scaled(w, gguf_name(name), x)
        else:
            w.add_tensor(gguf_name(name), gguf.quants.quantize(x, T.BF16), raw_dtype=T.BF16)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def relative_rms(x, w):
    x, w = x.astype(np.float64), w.astype(np.float64)
    return np.sqrt(((x - w) ** 2).sum() / (x ** 2).sum())


class Quantize(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.box = tempfile.TemporaryDirectory()
        cls.root = cls.box.name
        cls.text = os.path.join(cls.root, "text.txt")
        with open(cls.text, "w") as f:
            f.write("The men went on to the river in the late hours of the day. " * 30)
        cls.weights = random_weights(np.random.default_rng(11))
        cls.folder = os.path.join(cls.root, "folder")
        cls.file = os.path.join(cls.root, "file.gguf")
        make_folder(cls.folder, cls.weights)
        make_gguf(cls.file, cls.weights)
        # What both really hold.
        cls.real = {n: from_bf16(to_bf16(x)) if x.ndim == 2 else x
                    for n, x in cls.weights.items()}

    @classmethod
    def tearDownClass(cls):
        cls.box.cleanup()

    def place(self, name):
        path = os.path.join(self.root, self.id().rsplit(".", 1)[1] + "-" + name)
        self.assertFalse(os.path.exists(path))
        return path

    def run_ok(self, *args, **kwargs):
        got = keel("quantize", *args, **kwargs)
        self.assertEqual(got.returncode, 0, got.stderr)
        return json.loads(got.stdout) if "--json" in args else got.stdout

    def nll(self, model, *args):
        got = keel("perplexity", model, "--text", self.text, "--ctx", 64, "--json",
                   "--kv-dtype", "f32", *args)
        self.assertEqual(got.returncode, 0, got.stderr)
        return json.loads(got.stdout)["mean_nll"]

    def check_gguf(self, out, kind, told):
        """Types, errors and everything carried over, by the package gguf."""
        a, b = gguf.GGUFReader(self.file), gguf.GGUFReader(out)
        self.assertEqual([t.name for t in a.tensors], [t.name for t in b.tensors])
        rows = {m["name"]: m for m in told["matrices"]}
        for old, new in zip(a.tensors, b.tensors):
            if old.data.ndim == 1:
                self.assertEqual(old.data.tobytes(), new.data.tobytes())
                continue
            x = gguf.quants.dequantize(old.data, old.tensor_type)
            w = gguf.quants.dequantize(new.data, new.tensor_type)
            with self.subTest(old.name):
                wide = old.name in ("token_embd.weight", "output.weight")
                self.assertEqual(new.tensor_type, T.Q8_0 if wide else kind)
                self.assertAlmostEqual(rows[old.name]["relative_rms"], relative_rms(x, w),
                                       delta=1e-6)
                self.assertEqual(rows[old.name]["bytes_out"], new.data.nbytes)
                if not wide:
                    usual = gguf.quants.dequantize(gguf.quants.quantize(x, kind), kind)
                    self.assertLess(relative_rms(x, w), relative_rms(x, usual))
        values = {f.name: f.contents() for f in a.fields.values()}
        again = {f.name: f.contents() for f in b.fields.values()}
        self.assertEqual(again.pop("general.file_type"), {T.Q4_0: 2, T.Q4_1: 3}[kind])
        self.assertEqual(again.pop("general.quantization_version"), 2)
        for name in ("general.file_type", "general.quantization_version",
                     "GGUF.kv_count"):
            values.pop(name, None)
        again.pop("GGUF.kv_count")
        self.assertEqual(values, again)

    def test_gguf_int4_reads_the_same_in_the_package_gguf_and_runs(self):
        out = self.place("q4_1.gguf")
        told = self.run_ok(self.file, out, "--to", "int4", "--json", "--check", self.text,
                           "--ctx", 64)
        self.check_gguf(out, T.Q4_1, told)
        check = told["check"]
        self.assertAlmostEqual(check["perplexity_out"], np.exp(self.nll(out)), delta=1e-3)
        self.assertAlmostEqual(check["perplexity_in"], np.exp(self.nll(self.file)),
                               delta=1e-3)
        self.assertGreater(check["kl"]["mean"], 0)
        self.assertLess(check["kl"]["mean"], 1)

    def test_the_factor_of_an_nvfp4_matrix_is_in_what_is_written(self):
        made, out, real = self.place("made.gguf"), self.place("out.gguf"), {}
        make_gguf(made, self.weights, real)
        self.run_ok(made, out, "--to", "bf16")
        tensors = {t.name: t for t in gguf.GGUFReader(out).tensors}
        self.assertFalse([n for n in tensors if n.endswith(".scale")])
        self.assertEqual(len(real), 6 * LAYERS)  # all but ffn_down
        for name, x in real.items():
            got = gguf.quants.dequantize(tensors[name].data, T.BF16)
            np.testing.assert_array_equal(got, from_bf16(to_bf16(x)), name)
        self.assertAlmostEqual(self.nll(made, "--weights", "bf16"),
                               self.nll(out, "--weights", "bf16"), delta=1e-6)

    def test_gguf_int4_symmetric_is_q4_0(self):
        out = self.place("q4_0.gguf")
        told = self.run_ok(self.file, out, "--to", "int4", "--symmetric", "--json")
        self.check_gguf(out, T.Q4_0, told)
        self.nll(out)

    def test_embedding_and_head_take_the_type_they_are_given(self):
        out = self.place("small.gguf")
        self.run_ok(self.file, out, "--to", "int4", "--embed", "int4", "--head", "bf16")
        types = {t.name: t.tensor_type for t in gguf.GGUFReader(out).tensors}
        self.assertEqual(types["token_embd.weight"], T.Q4_1)
        self.assertEqual(types["output.weight"], T.BF16)
        again = self.place("kept.gguf")
        self.run_ok(out, again, "--to", "int4")  # narrower than q8_0: not widened
        a, b = ({t.name: t for t in gguf.GGUFReader(p).tensors} for p in (out, again))
        self.assertEqual(a["token_embd.weight"].data.tobytes(),
                         b["token_embd.weight"].data.tobytes())
        self.assertEqual(b["output.weight"].tensor_type, T.Q8_0)

    def test_bf16_of_both_containers_is_rounded_to_nearest(self):
        small, wide = self.place("q4.gguf"), self.place("bf16.gguf")
        self.run_ok(self.file, small, "--to", "int4")
        self.run_ok(small, wide, "--to", "bf16")
        for a, b in zip(gguf.GGUFReader(small).tensors, gguf.GGUFReader(wide).tensors):
            x = gguf.quants.dequantize(a.data, a.tensor_type)
            if x.ndim == 2:
                self.assertEqual(b.tensor_type, T.BF16)
                want = from_bf16(to_bf16(x))
                np.testing.assert_array_equal(gguf.quants.dequantize(b.data, T.BF16), want)
        f32, out = self.place("f32"), self.place("folder")
        make_folder(f32, self.weights, "F32")
        self.run_ok(f32, out, "--to", "bf16")
        for name, (word, x) in read_safetensors(out + "/model.safetensors").items():
            if x.ndim == 2:
                self.assertEqual(word, "BF16")
                np.testing.assert_array_equal(x, to_bf16(self.weights[name]))

    def check_folder(self, out, told, suffix):
        """Errors and everything carried over; and keel computes with exactly the numbers
        that the published formula gives."""
        t = read_safetensors(out + "/model.safetensors")
        rows = {m["name"]: m for m in told["matrices"]}
        decoded = {}
        for name, x in self.real.items():
            if x.ndim == 2 and name not in ("model.embed_tokens.weight", "lm_head.weight"):
                self.assertIn(name + suffix, t)
                w = decode(t, name)
                self.assertAlmostEqual(rows[name]["relative_rms"], relative_rms(x, w),
                                       delta=1e-6)
            else:
                w = decode(t, name)
                np.testing.assert_array_equal(from_bf16(to_bf16(w)), w)
            decoded[name] = w
        plain = out + "-f32"
        make_folder(plain, decoded, "F32")
        self.assertEqual(self.nll(out, "--weights", "f32"),
                         self.nll(plain, "--weights", "f32"))
        self.assertLess(abs(self.nll(out) - self.nll(plain, "--weights", "f32")), 0.1)
        for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
            self.assertEqual(read(os.path.join(self.folder, name)),
                             read(os.path.join(out, name)))
        return t, json.loads(read(out + "/config.json"))["quantization_config"]

    def test_folders_of_int4_decode_by_the_published_format(self):
        for args, symmetric in ((("--asymmetric",), False), ((), True)):
            out = self.place("int4" + "".join(args))
            told = self.run_ok(self.folder, out, "--to", "int4", "--json", *args)
            t, q = self.check_folder(out, told, "_packed")
            name = next(matrix_names())
            self.assertEqual(name + "_zero_point" in t, not symmetric)
            scheme = q["config_groups"]["group_0"]["weights"]
            self.assertEqual((q["quant_method"], q["format"], q["ignore"]),
                             ("compressed-tensors", "pack-quantized", ["lm_head"]))
            self.assertEqual((scheme["num_bits"], scheme["group_size"],
                              scheme["symmetric"]), (4, 32, symmetric))

    def test_folders_of_int4_decode_the_same_by_compressed_tensors(self):
        try:
            import torch
            from compressed_tensors.compressors import PackedQuantizationCompressor
            from compressed_tensors.quantization import QuantizationConfig
        except ImportError as e:
            self.skipTest(f"{e.name} is not installed")
        for args in ((), ("--asymmetric",)):
            out = self.place("ct" + "".join(args))
            self.run_ok(self.folder, out, "--to", "int4", *args)
            t = read_safetensors(out + "/model.safetensors")
            q = json.loads(read(out + "/config.json"))["quantization_config"]
            scheme = QuantizationConfig.model_validate(q).config_groups["group_0"]
            for name in matrix_names():
                state = {}
                for part in ("packed", "scale", "shape", "zero_point"):
                    if f"{name}_{part}" in t:
                        word, x = t[f"{name}_{part}"]
                        x = torch.from_numpy(x.copy())
                        state["weight_" + part] = (x.view(torch.bfloat16).float()
                                                   if word == "BF16" else x)
                w = PackedQuantizationCompressor.decompress(state, scheme)["weight"]
                np.testing.assert_array_equal(w.float().numpy(), decode(t, name))

    def test_transformers_computes_the_same_from_folders_as_from_their_numbers(self):
        if not os.environ.get("EK_FULL"):
            self.skipTest("EK_FULL is not set")
        try:
            import accelerate  # noqa: F401  what transformers loads FP8 with
            import compressed_tensors  # noqa: F401
            import torch
            from transformers import AutoModelForCausalLM, FineGrainedFP8Config
        except ImportError as e:
            self.skipTest(f"{e.name} is not installed")
        ids = torch.tensor([[1, 50, 7, 260, 33]])
        for to in ("int4", "fp8"):
            out, plain = self.place(to), self.place(to + "-f32")
            self.run_ok(self.folder, out, "--to", to)
            t = read_safetensors(out + "/model.safetensors")
            make_folder(plain, {n: decode(t, n) for n in self.weights}, "F32")
            more = {} if to == "int4" else {
                "quantization_config": FineGrainedFP8Config(dequantize=True)}
            logits = [AutoModelForCausalLM.from_pretrained(p, dtype=torch.float32, **k)(
                ids).logits for p, k in ((plain, {}), (out, more))]
            self.assertTrue(torch.equal(*logits))

    def test_folders_of_fp8_decode_by_the_published_format(self):
        out = self.place("fp8")
        told = self.run_ok(self.folder, out, "--to", "fp8", "--json")
        t, q = self.check_folder(out, told, "_scale_inv")
        self.assertEqual(q["quant_method"], "fp8")
        self.assertEqual(q["weight_block_size"], [128, 128])
        self.assertEqual(q["modules_to_not_convert"], ["lm_head"])
        for name in matrix_names():  # the largest of a block is e4m3's largest
            self.assertEqual(e4m3_table()[t[name][1]].__abs__().max(), 448)
        # Rounding when the folder is loaded makes the same of it.
        self.assertEqual(self.nll(out, "--weights", "fp8"),
                         self.nll(self.folder, "--weights", "fp8"))

    def test_quantised_folders_are_inputs_too(self):
        int4, fp8 = self.place("int4"), self.place("fp8")
        asym = self.place("asym")
        self.run_ok(self.folder, int4, "--to", "int4")
        self.run_ok(self.folder, asym, "--to", "int4", "--asymmetric")
        self.run_ok(self.folder, fp8, "--to", "fp8")
        for name, source in (("int4", int4), ("int4 --asymmetric", asym), ("fp8", fp8)):
            wide = self.place(name + "-bf16")
            self.run_ok(source, wide, "--to", "bf16")
            a = read_safetensors(source + "/model.safetensors")
            b = read_safetensors(wide + "/model.safetensors")
            self.assertEqual(set(b), set(self.real))
            self.assertNotIn("quantization_config", json.loads(read(wide + "/config.json")))
            for matrix in matrix_names():
                np.testing.assert_array_equal(b[matrix][1], to_bf16(decode(a, matrix)))
            same = self.place(name + "-same")
            self.run_ok(source, same, "--to", *name.split())
            b = read_safetensors(same + "/model.safetensors")
            self.assertEqual(b.keys(), a.keys())
            for part, (_, x) in a.items():
                np.testing.assert_array_equal(x, b[part][1])
        cross = self.place("fp8-to-int4")
        self.run_ok(fp8, cross, "--to", "int4", "--symmetric")
        self.nll(cross)

    def test_calibration_gives_up_plain_error_for_what_it_weighs(self):
        for source, name, args in ((self.file, "a.gguf", ()), (self.file, "b.gguf",
                                   ("--symmetric",)), (self.folder, "c", ()),
                                   (self.folder, "d", ("--asymmetric",))):
            out = self.place(name)
            told = self.run_ok(source, out, "--to", "int4", "--json", "--calibrate",
                               self.text, "--ctx", 64, *args)
            self.assertGreater(told["calibration_tokens"], 100)
            plain = self.run_ok(source, self.place("plain-" + name), "--to", "int4",
                                "--json", *args)
            self.assertGreater(told["relative_rms"], plain["relative_rms"])

    def test_any_number_of_threads_writes_the_same_bytes(self):
        for source, end in ((self.file, ".gguf"), (self.folder, "")):
            files = []
            for n in (1, 2, 3, 8, 17):
                out = self.place(str(n) + end)
                self.run_ok(source, out, "--to", "int4", "--calibrate", self.text, "--ctx",
                            64, "--threads", n)
                files.append(read(out if end else out + "/model.safetensors"))
            self.assertEqual(len(set(files)), 1)

    def test_rows_of_no_whole_groups_stay_wide_and_are_told(self):
        out = self.place("odd.gguf")
        told = self.run_ok(os.path.join(GOLDEN, "llama.gguf"), out, "--to", "int4", "--json")
        self.assertEqual({m["to"] for m in told["matrices"]}, {"bf16"})
        self.assertIn("multiple of 32", told["matrices"][1]["why"])
        folder = self.place("odd")
        self.run_ok(os.path.join(GOLDEN, "qwen2"), folder, "--to", "int4")
        q = json.loads(read(folder + "/config.json"))["quantization_config"]
        self.assertIn("model.layers.0.self_attn.q_proj", q["ignore"])
        self.nll(folder)

    def refuse(self, code, word, *args, **kwargs):
        before = sorted(os.listdir(self.root))
        got = keel("quantize", *args, **kwargs)
        self.assertEqual(got.returncode, code, got.stderr)
        lines = [s for s in got.stderr.splitlines() if not s.startswith('{"progress"')]
        self.assertEqual(len(lines), 1, got.stderr)
        self.assertIn(word, lines[0])
        self.assertEqual(sorted(os.listdir(self.root)), before)

    def test_what_cannot_be_is_refused_in_one_line_and_leaves_nothing(self):
        there = self.place("there.gguf")
        write(there, b"precious")
        self.addCleanup(os.remove, there)
        new, folder = self.place("new.gguf"), self.place("new")
        for code, word, *args in (
                (2, "--to", self.file, new),
                (2, "int4", self.file, new, "--to", "int3"),
                (2, "one of them", self.file, new, "--to", "int4", "--symmetric",
                 "--asymmetric"),
                (1, "GGUF has no FP8", self.file, new, "--to", "fp8"),
                (1, "--force", self.file, there, "--to", "int4"),
                (1, "is the input", self.file, self.file, "--to", "int4", "--force"),
                (1, "is the input", self.folder, self.folder + "/", "--to", "int4",
                 "--force"),
                (1, ".gguf", self.file, folder, "--to", "int4"),
                (1, "folder", self.folder, new, "--to", "int4"),
                (1, "folder", self.folder, folder + ".safetensors", "--to", "int4"),
                (1, "no loader", self.folder, folder, "--to", "int4", "--head", "int4"),
                (1, "No such file", self.file, self.root + "/no/such.gguf", "--to", "int4"),
                (1, "No such file", self.folder, self.root + "/no/such", "--to", "int4"),
                (3, "/nonexistent", "/nonexistent", new, "--to", "int4"),
                (3, "/nonexistent", self.file, new, "--to", "int4", "--calibrate",
                 "/nonexistent", "--ctx", 64),
                (3, "/nonexistent", self.file, new, "--to", "int4", "--check",
                 "/nonexistent", "--ctx", 64),
                (3, "the model's 128", self.file, new, "--to", "int4", "--check", self.text),
                (3, "GGUF", self.text, new, "--to", "int4")):
            with self.subTest(word):
                self.refuse(code, word, *args)
        self.assertEqual(read(there), b"precious")

    def test_matrices_beside_the_decoder_are_carried_over_and_ignored(self):
        folder, out = self.place("vision"), self.place("out")
        extra = {"vision_tower.layers.0.self_attn.q_proj.weight":
                 np.ones((8, 32), np.float32)}
        make_folder(folder, {**self.weights, **extra}, "F32")
        self.run_ok(folder, out, "--to", "int4")
        t = read_safetensors(out + "/model.safetensors")
        name, x = next(iter(extra.items()))
        np.testing.assert_array_equal(t[name][1], x)
        q = json.loads(read(out + "/config.json"))["quantization_config"]
        self.assertEqual(set(q["ignore"]), {name[:-len(".weight")], "lm_head"})
        self.nll(out)

    def test_force_replaces_files_and_folders_whole(self):
        out, folder = self.place("out.gguf"), self.place("out")
        write(out, b"old")
        self.run_ok(self.file, out, "--to", "int4", "--force")
        self.nll(out)
        self.run_ok(self.folder, folder, "--to", "int4")
        write(folder + "/model-00001-of-00002.safetensors", b"stale")
        self.run_ok(self.folder, folder, "--to", "fp8", "--force")
        self.assertNotIn("model-00001-of-00002.safetensors", os.listdir(folder))
        os.mkdir(folder + "/notes")
        self.refuse(1, "'notes'", self.folder, folder, "--to", "int4", "--force")

    def test_a_full_disk_is_told_and_leaves_nothing(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (60000, 60000))
        self.refuse(1, "File too large", self.file, self.place("full.gguf"), "--to", "int4",
                    preexec_fn=limit)
        self.refuse(1, "File too large", self.folder, self.place("full"), "--to", "int4",
                    preexec_fn=limit)

    def test_an_interrupt_leaves_nothing(self):
        model = need_model()
        for sig in (signal.SIGINT, signal.SIGTERM):
            out = self.place(f"stopped{sig}.gguf")
            p, stderr = self.interrupted(model, out, sig)
            for _ in range(20):  # this process may have slept over the other's end
                if p.returncode == 0:
                    os.remove(out)
                    p, stderr = self.interrupted(model, out, sig)
            self.assertEqual(p.returncode, 130, stderr)
            self.assertIn("stopped", stderr)
            self.assertFalse([s for s in os.listdir(self.root) if "stopped" in s])

    def interrupted(self, model, out, sig):
        """A run that is stopped once it writes: the process, and what it said."""
        p = subprocess.Popen([need_keel(), "quantize", model, out, "--to", "int4",
                              "--symmetric"], stderr=subprocess.PIPE, text=True)
        while p.poll() is None and not any(s.endswith(".tmp") for s in os.listdir(self.root)):
            time.sleep(0.01)
        p.send_signal(sig)
        _, stderr = p.communicate(timeout=600)
        return p, stderr

    def most_memory(self, *args):
        """Largest resident set of a run of keel, in bytes, mapped files included. A small
        process starts it: a child begins with its parent's largest."""
        code = ("import os, subprocess, sys\n"
                "p = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL,\n"
                "                     stderr=subprocess.DEVNULL)\n"
                "_, status, usage = os.wait4(p.pid, 0)\n"
                "print(status, usage.ru_maxrss)\n")
        got = subprocess.run([sys.executable, "-c", code, need_keel(), *map(str, args)],
                             capture_output=True, text=True, timeout=600)
        status, kib = map(int, got.stdout.split())
        self.assertEqual(status, 0)
        return kib * 1024

    def test_neither_loading_nor_quantising_holds_the_file_beside_the_weights(self):
        symbols = subprocess.run(["nm", "-D", need_keel()], capture_output=True, text=True)
        if re.search("__[at]san_", symbols.stdout):
            self.skipTest("a sanitizer's own memory is larger")
        model = need_model()  # 92 MiB of weights, kept as they are
        size = os.path.getsize(model)
        loaded = self.most_memory("generate", model, "-p", "a", "-n", 1, "--ctx", 64)
        self.assertLess(loaded, size + (48 << 20))
        out = self.place("wide.gguf")
        written = self.most_memory("quantize", model, out, "--to", "bf16")
        self.assertGreater(os.path.getsize(out), 2 * size)
        self.assertLess(written, 160 << 20)

    def test_numbers_that_are_not_finite_are_named(self):
        bad = dict(self.weights)
        name = "model.layers.1.mlp.up_proj.weight"
        bad[name] = bad[name].copy()
        bad[name][3, 5] = np.nan
        folder = self.place("bad")
        make_folder(folder, bad, "F32")
        self.refuse(3, name, folder, self.place("bad-int4"), "--to", "int4")


if __name__ == "__main__":
    need_keel()
    unittest.main(verbosity=2)
