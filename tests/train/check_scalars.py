"""Event files against protobuf's own decoder and an independent crc32c: framing, digests
and every field; and against TensorBoard itself where it is installed."""
import os
import struct
import subprocess
import tempfile
import unittest

import keelkit

try:
    import crc32c
    from tensorboardX.proto import event_pb2
except ImportError as missing:
    keelkit.skip(f"the package {missing.name} is not installed")

PROBE = os.path.join(os.environ.get("EK_BIN", ""), "tests", "probe_scalars")


def check(data, digest):
    crc = crc32c.crc32c(data)
    masked = ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff
    assert struct.unpack("<I", digest)[0] == masked, (data, digest)


def read(path):
    with open(path, "rb") as f:
        raw = f.read()
    events = []
    while raw:
        size, = struct.unpack("<Q", raw[:8])
        check(raw[:8], raw[8:12])
        check(raw[12:12 + size], raw[12 + size:16 + size])
        events.append(event_pb2.Event.FromString(raw[12:12 + size]))
        raw = raw[16 + size:]
    return events


class Scalars(unittest.TestCase):
    def setUp(self):
        if not os.path.exists(PROBE):
            keelkit.skip(f"{PROBE} is not built")
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = os.path.join(folder.name, "scalars")

    def write(self, *args):
        done = subprocess.run([PROBE, *map(str, args)], capture_output=True, text=True,
                              timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return done.stdout.strip()

    def test_every_field_is_what_was_added(self):
        events = read(self.write(self.folder, 0, 50))
        self.assertEqual(events[0].file_version, "brain.Event:2")
        self.assertEqual(len(events), 1 + 2 * 50 + 1)
        for i in range(50):
            loss, ndcg = events[1 + 2 * i:3 + 2 * i]
            self.assertEqual((loss.step, ndcg.step), (i, i * 1000000007))
            self.assertEqual([v.tag for v in loss.summary.value], ["train/loss"])
            self.assertEqual([v.tag for v in ndcg.summary.value], ["valid/ndcg@10 é"])
            self.assertEqual(loss.summary.value[0].simple_value,
                             struct.unpack("f", struct.pack("f", 1 / (i + 1)))[0])
            self.assertEqual(ndcg.summary.value[0].simple_value, -i / 2)
            self.assertGreaterEqual(loss.wall_time, events[0].wall_time)
        self.assertEqual(events[-1].step, 2 ** 63 - 1)
        self.assertEqual(events[-1].summary.value[0].tag, "t" * 200)
        self.assertNotEqual(events[-1].summary.value[0].simple_value,
                            events[-1].summary.value[0].simple_value)

    def test_resume_adds_a_file_that_begins_with_its_step(self):
        first = self.write(self.folder, 0, 50)
        before = read(first)
        second = self.write(self.folder, 30, 60)
        self.assertEqual(read(first), before)
        self.assertEqual(sorted(os.listdir(self.folder)),
                         [os.path.basename(first), os.path.basename(second)])
        start = read(second)[1]
        self.assertEqual((start.step, start.session_log.status),
                         (30, event_pb2.SessionLog.START))

    def test_a_full_disk_is_an_error_that_names_the_file(self):
        done = subprocess.run([PROBE, "full", self.folder], capture_output=True, text=True,
                              timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn("events.out.tfevents", done.stderr)
        self.assertIn("File too large", done.stderr)

    def test_tensorboard_reads_both_files_and_drops_what_was_trained_again(self):
        try:
            from tensorboard.backend.event_processing import event_accumulator
        except ImportError:
            self.skipTest("tensorboard is not installed")
        self.write(self.folder, 0, 50)
        self.write(self.folder, 30, 60)
        board = event_accumulator.EventAccumulator(self.folder, {"scalars": 0})
        board.Reload()
        points = board.Scalars("train/loss")
        self.assertEqual([p.step for p in points], list(range(60)))
        self.assertAlmostEqual(points[40].value, 1 / 41, 6)


if __name__ == "__main__":
    unittest.main(verbosity=2)
