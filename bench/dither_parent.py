#!/usr/bin/env python3
"""dither_parent.py - a BF16 parent for measuring what quantisation costs, from a Q4_1 file.

usage: dither_parent.py IN.gguf OUT.gguf          needs: pip install gguf

Quantising a file that is Q4_1 to Q4_1 is exact and says nothing. Each weight of a Q4_1
matrix is moved at random, evenly, within its step, so that it lies on no grid; everything
else is widened. Deterministic.
"""
import sys

import gguf
import numpy as np

TYPE = gguf.GGMLQuantizationType


def main(source, out):
    reader = gguf.GGUFReader(source)
    rng = np.random.default_rng(1)
    writer = gguf.GGUFWriter(out, reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture",
                                                            "general.file_type"):
            continue
        kind = field.types[0]
        is_array = kind == gguf.GGUFValueType.ARRAY
        writer.add_key_value(field.name, field.contents(), kind,
                             field.types[-1] if is_array else None)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_BF16)
    for t in reader.tensors:
        x = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32)
        if t.tensor_type == TYPE.Q4_1:
            blocks = np.asarray(t.data).reshape(x.shape[0], -1, 20)
            step = blocks[:, :, :2].copy().view(np.float16).astype(np.float32)
            move = rng.uniform(-0.5, 0.5, x.shape).astype(np.float32)
            x += (move.reshape(x.shape[0], -1, 32) * step).reshape(x.shape)
        if x.ndim == 1:
            writer.add_tensor(t.name, x)
        else:
            writer.add_tensor(t.name, gguf.quants.quantize(x, TYPE.BF16),
                              raw_dtype=TYPE.BF16)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
