"""What asks for rows ahead is in the release objects. gcc takes a function of prefetches
alone for one without an effect and drops its calls: no result changes, only speed."""
import os
import platform
import re
import shutil
import subprocess
import unittest

import keelkit

BUILD = os.environ.get("EK_BIN", "")
PREFETCH = re.compile(r"\tprefetch")
CALL = re.compile(r"\t(?:call|jmp)\s.*<([^>+]+)>")

# Objects, and how many of their functions fetch, at least; functions that do no more.
EXPECTED = {
    "graph": {"op_lookup.c.o": 2, "op_softmax.c.o": 1, "rows.c.o": 1},
    "kernel": {"jagged_block.c.o": 2, "jagged_causal.c.o": 3, "jagged_pack.c.o": 1,
               "jagged_short.c.o": 1, "matmul_bf16.c.o": 2, "matmul_i4.c.o": 2},
}
FETCHES_ALONE = re.compile(r"(?:fetch|ask)")


def is_release():
    with open(os.path.join(BUILD, "CMakeCache.txt"), encoding="utf-8") as f:
        return "\nCMAKE_BUILD_TYPE:STRING=Release\n" in f.read()


def functions(archive):
    """Of each object: its functions that prefetch, and those that are called in it."""
    text = subprocess.run(["objdump", "-d", "--no-show-raw-insn", archive], check=True,
                          capture_output=True, text=True).stdout
    fetching, called, obj, name = {}, {}, None, None
    for line in text.splitlines():
        if "file format" in line:
            obj = line.split(":")[0]
            fetching.setdefault(obj, set())
            called.setdefault(obj, set())
        elif line.endswith(">:"):
            name = line.split("<")[1][:-2]
        elif PREFETCH.search(line):
            fetching[obj].add(name)
        elif (to := CALL.search(line)) and to[1] != name:
            called[obj].add(to[1])
    return fetching, called


class Prefetches(unittest.TestCase):
    def test_functions_that_fetch_rows_do(self):
        for library, objects in EXPECTED.items():
            fetching, _ = functions(os.path.join(BUILD, f"libek_{library}.a"))
            for obj, least in objects.items():
                with self.subTest(obj):
                    self.assertGreaterEqual(len(fetching[obj]), least, fetching[obj])

    def test_a_function_that_was_not_put_in_place_is_called(self):
        for library, objects in EXPECTED.items():
            fetching, called = functions(os.path.join(BUILD, f"libek_{library}.a"))
            for obj in objects:
                for name in filter(FETCHES_ALONE.match, fetching[obj]):
                    with self.subTest(f"{obj}: {name}"):
                        self.assertIn(name, called[obj])


if __name__ == "__main__":
    if platform.machine() != "x86_64" or not shutil.which("objdump"):
        keelkit.skip("needs objdump and x86-64")
    if not is_release():
        keelkit.skip("only a release build is optimised")
    unittest.main()
