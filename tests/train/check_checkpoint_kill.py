"""Checkpoints under SIGKILL: whatever the moment, one loads, and it is the last state
that was reported written or the one that was being written."""
import os
import random
import subprocess
import tempfile
import time
import unittest

import keelkit

PROBE = os.path.join(os.environ.get("EK_BIN", ""), "tests", "probe_checkpoint")
KILLS = 50


class Kill(unittest.TestCase):
    def setUp(self):
        if not os.path.exists(PROBE):
            keelkit.skip(f"{PROBE} is not built")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        self.last = os.path.join(folder.name, "last")
        self.random = random.Random(5)

    def load(self):
        done = subprocess.run([PROBE, "load", self.last], capture_output=True, text=True,
                              timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr + str(os.listdir(self.root)))
        return int(done.stdout)

    def saving(self, first, *args):
        return subprocess.Popen([PROBE, "save", self.last, str(first), *args],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0)

    def killed(self, process):
        """The steps it reported."""
        process.kill()
        out, err = process.communicate(timeout=60)
        if process.returncode == 77:
            keelkit.skip("the kernel takes no system call filter")
        self.assertEqual((process.returncode, err), (-9, b""))
        return list(map(int, out.split()))

    def begin(self, *args):
        """The last step that was reported of a few, and the seconds that one took."""
        process = self.saving(0, *args)
        process.stdout.readline()
        start = time.monotonic()
        for _ in range(8):
            process.stdout.readline()
        seconds = (time.monotonic() - start) / 8
        return max(self.killed(process) + [8]), seconds

    def kill_often(self, *args):
        reported, seconds = self.begin(*args)
        self.assertIn(self.load(), (reported, reported + 1))
        first, kills, saved, amid = self.load() + 1, 0, 0, 0
        # How long a start takes beside a save differs between builds and machines: every
        # second one is killed after it saved, and it goes on until enough were amid one.
        while kills < KILLS or amid <= KILLS // 10:
            self.assertLess(kills, 20 * KILLS, f"only {amid} were killed amid a save")
            process = self.saving(first, *args)
            before = [int(process.stdout.readline())] if kills % 2 else []
            time.sleep(self.random.uniform(0, 4 * seconds))
            reported = self.killed(process) + before
            kills += 1
            saved += bool(reported)
            amid += any(name.endswith(".tmp") for name in os.listdir(self.root))
            got = self.load()
            reported = max(reported + [first - 1])
            self.assertIn(got, (reported, reported + 1))
            first = got + 1
        self.assertGreaterEqual(saved, kills // 2)
        # What the killed ones left does not pile up.
        self.assertLessEqual(len(os.listdir(self.root)), 3, os.listdir(self.root))

    def test_a_kill_at_any_moment_leaves_a_state_that_was_written(self):
        self.kill_often()

    def test_the_same_where_the_file_system_cannot_exchange_folders(self):
        self.kill_often("two")


if __name__ == "__main__":
    unittest.main(verbosity=2)
