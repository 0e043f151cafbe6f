"""keel inspect: what it says of the default model, of folders and of single files, and
that a file which lies costs one line, exit code 3 and no memory to speak of."""
import json
import os
import re
import resource
import struct
import subprocess
import sys
import tempfile
import unittest

import keelkit

try:
    import gguf
    import numpy as np
    from safetensors.numpy import save_file
except ImportError as missing:
    keelkit.skip(f"the package {missing.name} is not installed")

GUIDE = os.path.join(os.path.dirname(__file__), "..", "..", "docs", "guide", "inspect.md")
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 8,
         "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
         "intermediate_size": 16, "vocab_size": 32, "max_position_embeddings": 64,
         "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True,
         "hidden_act": "silu"}


def limited():
    """Room for the program and its libraries, not for what a file claims."""
    resource.setrlimit(resource.RLIMIT_AS, (512 << 20, 512 << 20))


# The sanitizers' own address space is beyond any limit; there is none then.
if keelkit.keel("--version", preexec_fn=limited).returncode:
    limited = None


def refusal(path, *args, **kwargs):
    done = keelkit.keel("inspect", path, *args, **kwargs)
    assert done.returncode == 3, done
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith(f"keel inspect: {path}: "), done.stderr
    return lines[0]


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def put(self, name, data):
        with open(self.path(name), "wb") as f:
            f.write(data if isinstance(data, bytes) else json.dumps(data).encode())
        return self.path(name)


class Hostile(Folder):
    def test_lies_cost_one_line_and_no_memory(self):
        huge = 2 ** 62
        key = struct.pack("<Q", 1) + b"a"
        lies = {"n_kv": b"GGUF" + struct.pack("<IQQ", 3, 0, huge),
                "n_tensors": b"GGUF" + struct.pack("<IQQ", 3, huge, 0),
                "string": b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + key +
                          struct.pack("<IQ", 8, huge) + bytes(64),
                "array": b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + key +
                         struct.pack("<IIQ", 9, 8, huge) + bytes(64),
                "n_dims": b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + key +
                          struct.pack("<I", 0xffffffff) + bytes(64)}
        for name, lie in lies.items():
            self.assertIn(name if name.startswith("n_") else "key 'a'",
                          refusal(self.put(name + ".gguf", lie), preexec_fn=limited))

    def test_many_small_lies_stay_in_proportion(self):
        """65,536 one-byte keys and a million-value header: tables, not trees."""
        keys = b"".join(struct.pack("<Q", 3) + b"%03x" % (i % 4096) +
                        struct.pack("<IB", 0, 0) for i in range(65536))
        path = self.put("k.gguf", b"GGUF" + struct.pack("<IQQ", 3, 0, 65536) + keys)
        self.assertIn("is there twice; expected once", refusal(path, preexec_fn=limited))
        text = b'{"a":{"dtype":"U8","shape":' + b"[" * (8 << 20)
        path = self.put("d.safetensors", struct.pack("<Q", len(text)) + text)
        self.assertIn("expected a whole number", refusal(path, preexec_fn=limited))

    def test_truncated_model_is_refused_wherever_it_ends(self):
        model = os.environ.get("EK_MODEL", "")
        if not os.path.exists(model):
            self.skipTest("the default model is not fetched")
        whole = os.path.getsize(model)
        with open(model, "rb") as f:
            head = f.read(4 << 20)
        for n in (0, 3, 4, 23, 24, 1000, 100_000, 1_000_000, len(head)):
            self.assertRegex(refusal(self.put("cut.gguf", head[:n])),
                             "truncated|expected the magic")
        with open(self.put("cut.gguf", head), "r+b") as f:
            f.truncate(whole - 1)  # the header whole, the data a hole
        self.assertRegex(refusal(self.path("cut.gguf")),
                         r"tensor '.*': offset 0x[0-9a-f]+ \+ .* is past the end of the file")

    def test_control_characters_never_reach_the_terminal(self):
        path = self.path("esc.gguf")
        writer = gguf.GGUFWriter(path, "\x1b[31mred")
        writer.add_string("a\x1b]0;title\x07", "\x1b[2J\x9b31m")
        writer.add_tensor("w\x1b[8m", np.zeros(2, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        done = keelkit.keel("inspect", path, "--tensors")
        self.assertNotRegex(done.stdout + done.stderr, "[\x00-\x09\x0b-\x1f\x7f-\x9f]")
        self.assertIn("w\\x1b[8m", done.stdout)
        self.assertIn("w\x1b[8m", [t["name"] for t in json.loads(keelkit.keel(
            "inspect", path, "--tensors", "--json").stdout)["tensor_list"]])

    def test_missing_file_and_wrong_kinds_are_named(self):
        self.assertIn("No such file or directory", refusal(self.path("none.gguf")))
        self.assertIn("is a device or pipe, not a regular file", refusal("/dev/null"))
        os.mkfifo(self.path("pipe.gguf"))
        self.assertIn("is a device or pipe", refusal(self.path("pipe.gguf"), timeout=10))
        self.assertIn("no config.json in this folder", refusal(self.folder))
        self.put("config.json", {})
        self.assertIn("no weights in this folder; expected model.safetensors.index.json "
                      "or model.safetensors", refusal(self.folder))
        self.put("config.json", b'{"a":1,"a":2}')
        self.assertRegex(keelkit.keel("inspect", self.folder).stderr,
                         "config.json: JSON line 1 .*duplicate")
        self.put("config.json", b"[" * 70)
        self.assertIn("config.json: JSON is nested deeper than 64 levels",
                      keelkit.keel("inspect", self.folder).stderr)

    def test_wrong_use_is_exit_code_2(self):
        self.assertEqual(keelkit.keel("inspect").returncode, 2)
        self.assertEqual(keelkit.keel("inspect", "a", "b").returncode, 2)
        self.assertEqual(keelkit.keel("inspect", "a", "--jsn").returncode, 2)


class Honest(Folder):
    def test_unknown_architecture_is_a_note(self):
        path = self.path("x.gguf")
        writer = gguf.GGUFWriter(path, "mamba9")
        writer.add_context_length(77)
        writer.add_tensor("w", np.zeros((2, 3), np.float16))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        done = keelkit.keel("inspect", path, "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        seen = json.loads(done.stdout)
        self.assertEqual((seen["architecture"], seen["context"], seen["parameters"]),
                         ("mamba9", 77, 6))
        self.assertIsNone(seen["kv_bytes_per_token"])
        self.assertRegex(seen["notes"][0], "mamba9.*llama.*qwen3")

    def test_folder_and_single_file_are_read(self):
        save_file({"a": np.zeros((3, 4), np.float32), "b": np.zeros(2, np.int8)},
                  self.path("model.safetensors"), {"format": "pt"})
        alone = json.loads(keelkit.keel("inspect", self.path("model.safetensors"),
                                        "--json").stdout)
        self.assertEqual(alone["metadata"], {"format": "pt"})
        self.assertIsNone(alone["architecture"])
        self.put("config.json", LLAMA)
        self.put("tokenizer_config.json", {"chat_template": "{{ 1 }}"})
        for path in (self.folder, self.folder + "/", self.path("model.safetensors")):
            done = keelkit.keel("inspect", path, "--json", "--tensors")
            self.assertEqual((done.returncode, done.stderr), (0, ""), path)
            seen = json.loads(done.stdout)
            self.assertEqual(seen["metadata"], LLAMA)
            self.assertEqual(seen["parameters"], 14)
            # 2 layers x 1 kv head x 4 dims, K and V
            self.assertEqual(seen["kv_bytes_per_token"], {"f32": 64, "bf16": 32, "fp8": 16})
            self.assertEqual((seen["context"], seen["chat_template_bytes"]), (64, 7))
            self.assertEqual(sorted((t["name"], t["dtype"], t["shape"], t["bytes"])
                                    for t in seen["tensor_list"]),
                             [("a", "f32", [3, 4], 48), ("b", "i8", [2], 2)])
        with open(self.path("chat_template.jinja"), "w", encoding="utf-8") as f:
            f.write("{{ 22 }}")
        self.assertEqual(json.loads(keelkit.keel("inspect", self.folder, "--json").stdout)
                         ["chat_template_bytes"], 8)


    def test_tokenizer_of_a_folder_is_named(self):
        try:
            import tokenizers
        except ImportError:
            self.skipTest("the package tokenizers is not installed")
        save_file({"a": np.zeros(3, np.float32)}, self.path("model.safetensors"))
        self.put("config.json", LLAMA)
        made = tokenizers.ByteLevelBPETokenizer()
        made.train_from_iterator(["a man, a plan, a canal"] * 9, vocab_size=300)
        made.save(self.path("tokenizer.json"))
        done = keelkit.keel("inspect", self.folder, "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        seen = json.loads(done.stdout)
        self.assertRegex(seen["tokenizer"], "^bpe")
        self.assertEqual(seen["vocabulary"], made.get_vocab_size())
        with open(self.path("tokenizer.json"), encoding="utf-8") as f:
            lie = json.load(f)
        lie["model"]["vocab"]["a"] = 2 ** 40
        self.put("tokenizer.json", lie)
        done = keelkit.keel("inspect", self.folder, "--json")
        self.assertEqual(done.returncode, 3)
        self.assertIn("tokenizer.json: ", done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1)
        self.assertEqual(json.loads(done.stdout)["context"], 64)  # the rest is shown


class RealModel(unittest.TestCase):
    def setUp(self):
        self.model = os.environ.get("EK_MODEL", "")
        if not os.path.exists(self.model):
            self.skipTest("the default model is not fetched")

    def test_json_says_what_is_known_of_the_model(self):
        done = keelkit.keel("inspect", self.model, "--json", "--tensors")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        seen = json.loads(done.stdout)
        self.assertEqual(seen["architecture"], "llama")
        self.assertEqual((seen["parameters"], seen["tensors"]), (134515008, 272))
        self.assertEqual((seen["vocabulary"], seen["context"]), (49152, 8192))
        # 30 layers x 3 kv heads x 64 dims, K and V
        self.assertEqual(seen["kv_bytes_per_token"],
                         {"f32": 46080, "bf16": 23040, "fp8": 11520})
        self.assertEqual(seen["bytes"], sum(t["bytes"] for t in seen["types"]))
        self.assertEqual(seen["bytes"], sum(t["bytes"] for t in seen["tensor_list"]))
        self.assertEqual(seen["metadata"]["tokenizer.ggml.tokens"]["count"], 49152)
        self.assertAlmostEqual(
            seen["metadata"]["llama.attention.layer_norm_rms_epsilon"], 1e-5, 12)
        self.assertEqual(seen["notes"], [])

    def test_every_key_of_the_json_is_documented(self):
        seen = json.loads(keelkit.keel("inspect", self.model, "--json", "--tensors").stdout)
        with open(GUIDE, encoding="utf-8") as f:
            documented = set(re.findall(r"^\| `(\w+)` \|", f.read(), re.M))
        self.assertEqual(set(seen), documented)

    def test_text_says_the_same_in_columns(self):
        text = keelkit.keel("inspect", self.model, "--tensors").stdout
        for line in ("architecture   llama", "tokenizer      bpe smollm, 49,152 tokens",
                     "context        8,192 tokens", "chat template  yes, 368 bytes",
                     "KV a token     f32 45.0 KiB, bf16 22.5 KiB, fp8 11.2 KiB"):
            self.assertIn(line + "\n", text)
        self.assertRegex(text, r"(?m)^  blk\.0\.attn_k\.weight +q4_1 +67\.5 KiB  \(192, 576\)$")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
