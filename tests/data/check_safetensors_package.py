"""The safetensors reader and writer against the `safetensors` package, both directions:
what it writes reads equal here, and what is written here reads equal there."""
import json
import os
import subprocess
import sys
import tempfile
import unittest

import keelkit

try:
    import numpy as np
    from safetensors import safe_open
    from safetensors.numpy import load_file, save, save_file
except ImportError as missing:
    keelkit.skip(f"the package {missing.name} is not installed")

PROBE = os.path.join(os.environ.get("EK_BIN", ""), "tests", "probe_files")
DTYPES = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "i64": np.int64,
          "i32": np.int32, "i16": np.int16, "i8": np.int8, "u8": np.uint8,
          "bool": np.bool_}


def probe(*args):
    done = subprocess.run([PROBE, *args], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()
    return [json.loads(line) for line in done.stdout.decode().splitlines()]


def refusal(path):
    done = subprocess.run([PROBE, "tensors", path], capture_output=True, text=True)
    assert done.returncode == 3, done
    return done.stderr


class Safetensors(unittest.TestCase):
    def setUp(self):
        rng = np.random.default_rng(3)
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.tensors = {f"t.{name}": rng.integers(0, 100, (3, 5)).astype(kind)
                        for name, kind in DTYPES.items()}
        self.tensors["one"] = np.array(7, np.float32)
        self.tensors["none"] = np.zeros((0, 4), np.float32)
        self.tensors["odd"] = np.arange(7, dtype=np.uint8)
        self.tensors['a "quoted" é 漢 👩\u200d🚀\t'] = np.ones((1, 2, 3, 4), np.float16)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def equal(self, path, tensors):
        rows = probe("tensors", path)
        probe("raw", path, self.path("raw"))
        with open(self.path("raw"), "rb") as f:
            data, at = f.read(), 0
        self.assertEqual(sorted(r[0] for r in rows), sorted(tensors))
        for name, dtype, shape, size in rows:
            x = tensors[name]
            self.assertEqual((DTYPES[dtype], tuple(shape)), (x.dtype.type, x.shape))
            self.assertEqual(data[at:at + size], x.tobytes())
            at += size

    def test_what_the_package_writes_reads_equal_here(self):
        save_file(self.tensors, self.path("a.safetensors"), {"format": "np", "é": "\n"})
        self.equal(self.path("a.safetensors"), self.tensors)

    def test_what_is_written_here_reads_equal_there(self):
        save_file(self.tensors, self.path("a.safetensors"))
        probe("copy", self.path("a.safetensors"), self.path("b.safetensors"))
        theirs = load_file(self.path("b.safetensors"))
        self.assertEqual(sorted(theirs), sorted(self.tensors))
        for name, x in self.tensors.items():
            self.assertEqual(theirs[name].dtype, x.dtype)
            np.testing.assert_array_equal(theirs[name], x)
        with safe_open(self.path("b.safetensors"), "numpy") as f:
            self.assertEqual(f.metadata(), {"format": "pt"})
        self.equal(self.path("b.safetensors"), self.tensors)

    def test_sharded_set_reads_as_one(self):
        names = sorted(self.tensors)
        shards = {"m-1.safetensors": names[::2], "m-2.safetensors": names[1::2]}
        for shard, part in shards.items():
            save_file({n: self.tensors[n] for n in part}, self.path(shard))
        index = {"metadata": {"total_size": 1},
                 "weight_map": {n: s for s, part in shards.items() for n in part}}
        for name, value in [("m.safetensors.index.json", index), ("config.json", {})]:
            with open(self.path(name), "w", encoding="utf-8") as f:
                json.dump(value, f)
        self.equal(self.path("m.safetensors.index.json"), self.tensors)
        os.rename(self.path("m.safetensors.index.json"),
                  self.path("model.safetensors.index.json"))
        self.equal(self.folder.name, self.tensors)

    def test_what_the_package_refuses_is_refused_here(self):
        whole = save({"a": np.zeros(4, np.float32), "b": np.ones(2, np.float32)})
        n = int.from_bytes(whole[:8], "little")
        header, data = json.loads(whole[8:8 + n]), whole[8 + n:]
        lies = []
        for name, key, value in [("a", "data_offsets", [0, 12]), ("a", "shape", [5]),
                                 ("b", "data_offsets", [12, 20]), ("a", "dtype", "F99"),
                                 ("b", "data_offsets", [16, 32]), ("a", "shape", [2**62] * 4)]:
            lie = json.loads(json.dumps(header))
            lie[name][key] = value
            text = json.dumps(lie).encode()
            lies.append(len(text).to_bytes(8, "little") + text + data)
        lies += [whole[:-1], whole + b"\0", whole[:7], b"\xff" * 8 + whole[8:]]
        for lie in lies:
            with open(self.path("lie.safetensors"), "wb") as f:
                f.write(lie)
            with self.assertRaises(Exception):
                load_file(self.path("lie.safetensors"))
            self.assertTrue(refusal(self.path("lie.safetensors")).startswith(
                self.path("lie.safetensors") + ": "))


if __name__ == "__main__":
    if not os.path.exists(PROBE):
        keelkit.skip("probe_files is not built")
    unittest.main(argv=sys.argv[:1], verbosity=2)
