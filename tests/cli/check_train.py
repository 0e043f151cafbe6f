"""keel train: what it prints, what it refuses and with which exit code, and that a
signal leaves what a resume goes on from."""
import fcntl
import gzip
import json
import os
import pathlib
import random
import resource
import signal
import subprocess
import tempfile
import time
import unittest

import keelkit

CONFIG = """
run: {{name: made, dir: {dir}/run, threads: 1}}
data:
  path: {dir}/log.pack
model:
  dim: 16
  negatives: 30
train: {{batch: 32, epochs: 3, lr: 0.01}}
eval: {{every: 1}}
log.every: 4
"""


class Train(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.folder = cls.temporary.name
        done = keelkit.keel("data", "synth", os.path.join(cls.folder, "log.pack"),
                            "--users", 200, "--items", 60, "--median", 8, "--follow", 0.9)
        assert done.returncode == 0, done.stderr
        cls.config = os.path.join(cls.folder, "c.yaml")
        pathlib.Path(cls.config).write_text(CONFIG.format(dir=cls.folder))

    @classmethod
    def tearDownClass(cls):
        cls.temporary.cleanup()

    def train(self, *args, config=None):
        return keelkit.keel("train", config or self.config, *args)

    def put(self, text):
        path = os.path.join(self.folder, "bad.yaml")
        pathlib.Path(path).write_text(text)
        return path

    def dir(self, name):
        return f"run.dir={self.folder}/{name}"

    def test_a_run_prints_its_log_and_the_test_last(self):
        done = self.train("--json", "--set", self.dir("a"))
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual({line["kind"] for line in lines}, {"train", "valid", "end"})
        last = lines[-1]
        self.assertEqual(last["kind"], "end")
        for part in ("test", "test_unfiltered", "valid", "valid_unfiltered"):
            for metric in ("recall", "ndcg", "mrr"):
                for cut in (5, 10, 20, 50, 200):
                    self.assertTrue(0 <= last[part][f"{metric}@{cut}"] <= 1)
        self.assertEqual(last["test"]["recall@200"], 1)  # of 60 items
        self.assertNotIn("test", lines[-2])
        log = pathlib.Path(self.folder, "a", "log.jsonl").read_text().splitlines()
        self.assertEqual([json.loads(line) for line in log], lines)
        for name in ("checkpoints/best/model.safetensors",
                     "checkpoints/last/optimizer.safetensors", "vocab.txt"):
            self.assertTrue(pathlib.Path(self.folder, "a", name).exists(), name)

    def test_a_person_is_told_the_figures_and_mfu(self):
        done = self.train("--set", self.dir("b"))
        self.assertEqual(done.returncode, 0, done.stderr)
        for word in ("trained ", "best ", "validation ", "test ", "MFU ", "ratio"):
            self.assertIn(word, done.stdout)

    def test_check_starts_nothing(self):
        done = self.train("--check", "--set", self.dir("c"), "--set", "model.dim=32")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"model.dim +32\n")
        self.assertFalse(os.path.exists(os.path.join(self.folder, "c")))
        done = self.train("--check", "--json")
        self.assertEqual(json.loads(done.stdout)["train"]["beta2"], 0.98)

    def test_explain_is_a_table(self):
        done = self.train("--explain", "--set", self.dir("d"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("MFU %", done.stdout)
        self.assertIn("attention", done.stdout)
        self.assertRegex(done.stdout, r"\nheld +[0-9.]+ [KM]iB: [a-z ]+ [0-9.]+ [KM]iB, .* was there for it\n$")

    def test_bad_configurations_are_code_2_with_their_place(self):
        log = f"data: {{path: {self.folder}/log.pack}}\n"
        for text, want in (
                ("data: {path: x}\nmodel:\n  dims: 3\n",
                 ":3:3: unknown key 'model.dims', did you mean 'model.dim'?"),
                ("modell: {dim: 3}\n", ":1:1: unknown key 'modell', did you mean 'model'?"),
                ("train: {}\nmodel: {lr: 1}\n",
                 ":2:9: unknown key 'model.lr', did you mean 'train.lr'?"),
                (log + "model:\n  heads: 3\n", ":3:10: model.heads: 3 does not divide"),
                (log + "model: {dropout: 2}\n", ":2:18: model.dropout: '2' is out of"),
                (log + "model: {kind: hstu, times: 7}\n", ":2:28: model.times: '7' is"),
                ("model: {dim: 8}\n", "bad.yaml: data.path: is missing"),
                (log + "data.click: nothing\n", "bad.yaml:2:13: data.click: "),
                (log + "data.skip: [nothing]\n", "bad.yaml:2:13: data.skip: "),
                (log + "train: [1]\n", ":2:8: train is a section"),
                (log + "train: {max_bytes: 1KiB}\n", "the ceiling is 1024"),
                (log + "model: {kind: gem, seeds: 256}\n",
                 "bad.yaml:2:27: model.seeds: 256; expected 1 to 64 for gem"),
                (log + "model: {dim: 1024}\n", "model.heads: 1 make heads of 1024; expected heads of at most 256"),
        ):
            done = self.train(config=self.put(text))
            self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
            self.assertIn(want, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        done = self.train("--set", "model.dmi=3")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--set: unknown key 'model.dmi', did you mean 'model.dim'?", done.stderr)
        done = self.train("--resume", "--overwrite")
        self.assertEqual(done.returncode, 2)
        self.assertIn("expected one of them", done.stderr)
        done = keelkit.keel("train", "/absent.yaml")
        self.assertEqual(done.returncode, 2)
        self.assertEqual(keelkit.keel("train").returncode, 2)

    def test_a_log_that_nobody_takes_ends_the_run_with_code_1(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run([os.environ["KEEL"], "train", self.put(
                f"run.dir: {self.folder}/full\ndata.path: {self.folder}/log.pack\n"
                "log.every: 1\n"), "--json"], stdout=full, stderr=subprocess.PIPE,
                text=True, timeout=120)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, "keel train: standard output: .*: stopped behind step")
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_a_last_line_that_nobody_takes_is_code_1_too(self):
        # A pipe of a page, which has room for the lines before the last one alone.
        get, put = os.pipe()
        room = 2100
        os.write(put, b"x" * (fcntl.fcntl(put, fcntl.F_SETPIPE_SZ, 4096) - room))
        run = subprocess.Popen([keelkit.need_keel(), "train", self.config, "--set",
                                self.dir("last"), "--json", "--set", "train.max_steps=3",
                                "--set", "log.every=1000", "--set", "eval.every=0"],
                               stdout=put, stderr=subprocess.PIPE, text=True)
        os.close(put)
        log = pathlib.Path(self.folder, "last", "log.jsonl")
        end = time.monotonic() + 600
        while time.monotonic() < end and run.poll() is None and not (
                log.exists() and '"kind": "valid"' in log.read_text()):
            time.sleep(0.01)
        os.close(get)
        _, stderr = run.communicate(timeout=600)
        self.assertGreater(log.stat().st_size, room)  # the last one had no room
        self.assertEqual(run.returncode, 1, stderr)
        self.assertEqual(stderr, "keel train: standard output: input/output failure\n")

    def test_a_bad_log_is_code_3(self):
        done = self.train("--set", "data.path=/absent.txt")
        self.assertEqual(done.returncode, 3)
        bad = os.path.join(self.folder, "bad.txt")
        pathlib.Path(bad).write_text("1 2 x\n")
        done = self.train("--set", f"data.path={bad}")
        self.assertEqual(done.returncode, 3)
        self.assertIn("bad.txt:1:5", done.stderr)

    def test_each_bad_log_costs_one_line(self):
        whole = gzip.compress(b"1 2 3 4\n" * 1)
        csv = b"user_id,item_id,price\n"
        numeric = ("--set", "data.numeric=price")
        for name, data, code, want, *args in (
                ("a.txt", b"", 3, "a.txt: holds no event"),
                ("b.txt", b"1 2\n0 3\n", 3, "b.txt:2:1: user '0': expected a whole number"),
                ("c.txt", b"1 2 -3\n", 3, "c.txt:1:5: item '-3'"),
                ("d.txt", b"1 2147483648\n", 3, "d.txt:1:3: item '2147483648'"),
                ("e.txt", b"1 2\n3\n", 3, "e.txt:2:2: the user has no item"),
                ("f.txt", b"1 2 3\n2 3\n1 4 5\n", 3, "f.txt:3:1: user '1' had a line"),
                ("g.txt.gz", whole[:-5], 3, "g.txt.gz:2: gzip data is cut off"),
                ("h.csv", b"who,item_id\na,b\n", 3, "h.csv:1:1: no column 'user_id': "
                 "the header has 'who', 'item_id'; data.user NAME says which it is"),
                ("i.csv", csv + b"a,b,nan\n", 3, "i.csv:2:5: price 'nan'", *numeric),
                ("j.csv", b"user_id,item_id\na,b\n", 3, "j.csv:1:1: no column 'price'",
                 *numeric),
                ("k.txt", b"1 2\n2 3\n3 2\n", 2, "expected users of more events")):
            path = pathlib.Path(self.folder, name)
            path.write_bytes(data)
            done = self.train("--set", f"data.path={path}", "--set", self.dir("bad"), *args)
            self.assertEqual((done.returncode, done.stdout), (code, ""), done.stderr)
            self.assertIn(want, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertFalse(os.path.exists(os.path.join(self.folder, "bad")))

    def test_ids_of_a_table_are_names_whatever_they_look_like(self):
        log = pathlib.Path(self.folder, "ids.csv")
        names = ["0", "-3", "99999999999", "x y", "1e9"]  # rows are not in order of time
        log.write_text("user_id,item_id,timestamp\n" + "".join(
            f"{user},{names[(user + i) % 5]},{9 - i}\n" for i in range(5)
            for user in range(-2, 4)))
        done = self.train("--set", f"data.path={log}", "--set", self.dir("k"))
        self.assertEqual(done.returncode, 0, done.stderr)
        done = keelkit.keel("recommend", os.path.join(self.folder, "k"), "--items", "-3,0",
                            "--json")
        self.assertEqual({x["item"] for x in json.loads(done.stdout)["items"]},
                         set(names) - {"-3", "0"})
    def test_a_run_that_is_there_is_not_overwritten(self):
        args = ["--set", self.dir("e"), "--set", "train.epochs=1"]
        self.assertEqual(self.train(*args).returncode, 0)
        done = self.train(*args)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--resume", done.stderr)
        self.assertEqual(self.train("--overwrite", *args).returncode, 0)

    def test_two_runs_do_not_share_a_folder(self):
        args = ["--overwrite", "--set", self.dir("two"), "--set", "train.epochs=10000",
                "--set", "eval.every=0"]
        first = subprocess.Popen([keelkit.need_keel(), "train", self.config, *args, "--json"],
                                 stdout=subprocess.PIPE, text=True)
        try:
            self.assertTrue(first.stdout.readline())  # it has begun
            done = self.train(*args)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("run.dir", done.stderr)
            self.assertIn("another run", done.stderr)
        finally:
            first.kill()
            first.wait()
            first.stdout.close()
        self.assertEqual(self.train(*args, "--set", "train.max_steps=3").returncode, 0)

    def test_a_run_that_ended_while_the_log_was_read_is_kept(self):
        log, pipe = (os.path.join(self.folder, n) for n in ("short.tsv", "short.pipe"))
        pathlib.Path(log).write_text("user_id\titem_id\ttimestamp\n" + "".join(
            f"u{u}\ti{(u * 7 + k) % 20}\t{k}\n" for u in range(40) for k in range(6)))
        os.mkfifo(pipe)
        args = ["--set", self.dir("late"), "--set", "data.format=tsv", "--set",
                "train.max_steps=3", "--set"]
        late = subprocess.Popen([keelkit.need_keel(), "train", self.config, *args,
                                 f"data.path={pipe}"], stderr=subprocess.PIPE, text=True)
        try:
            end = None
            while end is None and late.poll() is None:
                try:  # nobody reads it yet: ENXIO
                    end = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
                except OSError:
                    time.sleep(0.01)
            self.assertEqual(self.train(*args, f"data.path={log}").returncode, 0)
            manifest = pathlib.Path(self.folder, "late", "checkpoints", "last", "manifest.json")
            before = (manifest.stat().st_ino, manifest.read_bytes())
            os.write(end, pathlib.Path(log).read_bytes())
            os.close(end)
            _, stderr = late.communicate(timeout=600)
        finally:
            late.kill()
            late.wait()
        self.assertEqual(late.returncode, 1, stderr)
        self.assertIn("holds a run", stderr)
        self.assertEqual((manifest.stat().st_ino, manifest.read_bytes()), before)

    def test_a_loss_that_is_not_finite_is_code_1(self):
        done = self.train("--set", self.dir("f"), "--set", "train.lr=1000", "--set",
                          "train.weight_decay=900", "--set", "train.epochs=50",
                          "--set", "eval.every=0")
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stderr, r"step \d+ .*the loss is -?(nan|inf)")
        self.assertIn("user '", done.stderr)

    def stop(self, name, number):
        args = [keelkit.need_keel(), "train", self.config, "--json", "--set", self.dir(name),
                "--set", "train.epochs=100000", "--set", "eval.every=0", "--set",
                "log.every=1"]
        process = subprocess.Popen(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   text=True)
        for _ in range(3):
            process.stdout.readline()
        process.send_signal(number)
        _, err = process.communicate(timeout=60)
        return process.returncode, err

    def test_signals_save_and_a_resume_goes_on(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            name = f"signal{int(number)}"
            code, err = self.stop(name, number)
            self.assertEqual(code, 130, err)
            self.assertIn("--resume", err)
            manifest = pathlib.Path(self.folder, name, "checkpoints/last/manifest.json")
            self.assertTrue(manifest.exists())
            log = pathlib.Path(self.folder, name, "log.jsonl").read_text().splitlines()
            steps = json.loads(log[-1])["step"]
            done = self.train("--resume", "--json", "--set", self.dir(name), "--set",
                              f"train.max_steps={steps + 5}", "--set", "eval.every=0",
                              "--set", "train.epochs=100000")
            self.assertEqual(done.returncode, 0, done.stderr)
            last = json.loads(done.stdout.splitlines()[-1])
            self.assertEqual(last["step"], steps + 5)

    LONG = ["--set", "train.epochs=100000", "--set", "train.max_steps=60", "--set",
            "eval.unit=steps", "--set", "eval.every=10", "--set", "checkpoint.every=3"]

    def kill(self, name, lines):
        """Begins or goes on, and is killed behind that many lines and a moment."""
        last = pathlib.Path(self.folder, name, "checkpoints/last/manifest.json")
        process = subprocess.Popen(
            [keelkit.need_keel(), "train", self.config, "--json", *self.LONG, "--set",
             self.dir(name), "--resume" if last.exists() else "--overwrite"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for _ in range(lines):
            process.stdout.readline()
        time.sleep(random.random() * 0.02)
        process.kill()
        process.communicate(timeout=60)

    def test_a_run_that_is_killed_again_and_again_ends_as_one_that_never_was(self):
        whole = self.train("--json", *self.LONG, "--set", self.dir("l"))
        self.assertEqual(whole.returncode, 0, whole.stderr)
        for i in range(8):
            self.kill("m", 1 + i % 3)
        done = self.train("--json", *self.LONG, "--set", self.dir("m"),
                          *(["--resume"] if os.path.exists(
                              f"{self.folder}/m/checkpoints/last/manifest.json") else []))
        self.assertEqual(done.returncode, 0, done.stderr)
        for name in ("checkpoints/last/model.safetensors", "vocab.txt",
                     "checkpoints/last/optimizer.safetensors",
                     "checkpoints/best/model.safetensors"):
            self.assertEqual(pathlib.Path(self.folder, "l", name).read_bytes(),
                             pathlib.Path(self.folder, "m", name).read_bytes(), name)
        a, b = ([{k: v for k, v in json.loads(line).items() if k in
                  ("kind", "step", "epoch", "loss", "lr", "value", "is_best", "test", "best")}
                 for line in pathlib.Path(self.folder, run, "log.jsonl").read_text().splitlines()]
                for run in "lm")
        self.assertEqual(a, b)

    def test_tensorboard_shows_what_the_log_says(self):
        try:
            from tensorboard.backend.event_processing import event_accumulator
        except ImportError:
            self.skipTest("tensorboard is not installed")
        args = ["--set", self.dir("n"), "--set", "train.epochs=5", "--json"]
        for more in (["--set", "train.epochs=2"], ["--resume"]):
            done = self.train(*args, *more)
            self.assertEqual(done.returncode, 0, done.stderr)
        lines = [json.loads(line) for line in pathlib.Path(
            self.folder, "n", "log.jsonl").read_text().splitlines()]
        board = event_accumulator.EventAccumulator(f"{self.folder}/n/tensorboard",
                                                   {"scalars": 0})
        board.Reload()
        for kind, tag, value in (("train", "train/loss", lambda x: x["loss"]),
                                 ("train", "train/lr", lambda x: x["lr"]),
                                 ("valid", "valid/ndcg@10", lambda x: x["filtered"]["ndcg@10"])):
            shown = {p.step: p.value for p in board.Scalars(tag)}
            for line in (x for x in lines if x["kind"] == kind):
                self.assertAlmostEqual(shown[line["step"]], value(line), 5, tag)

    def test_a_resume_with_another_model_names_the_key(self):
        args = ["--set", self.dir("g"), "--set", "train.epochs=1"]
        self.assertEqual(self.train(*args).returncode, 0)
        done = self.train("--resume", *args, "--set", "model.dim=32")
        self.assertEqual(done.returncode, 2)
        self.assertIn("model.dim is 16 there and 32 here", done.stderr)

    def test_a_checkpoint_that_is_none_is_code_3_and_stays(self):
        args = ["--set", self.dir("h"), "--set", "train.epochs=1"]
        done = self.train("--resume", *args)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("no checkpoint", done.stderr)
        self.assertEqual(self.train(*args).returncode, 0)
        last = pathlib.Path(self.folder, "h", "checkpoints/last")
        for name, change, want in (
                ("model.safetensors", lambda b: b[:100], "model.safetensors: has 100 bytes"),
                ("manifest.json", lambda b: b[:-9], "manifest.json: "),
                ("manifest.json", lambda b: b.replace(b'"format": 1', b'"format": 7'),
                 "manifest.json: format 7; this program reads up to 1")):
            whole = (last / name).read_bytes()
            (last / name).write_bytes(change(whole))
            for verb in (["train", self.config, "--resume", *args],
                         ["eval", str(last)], ["recommend", str(last), "--items", "1"],
                         ["export", str(last), "--out", os.path.join(self.folder, "none")]):
                done = keelkit.keel(*verb)
                self.assertEqual((done.returncode, done.stdout), (3, ""), done.stderr)
                self.assertIn(want, done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertEqual((last / name).read_bytes(), change(whole))
            (last / name).write_bytes(whole)
        self.assertEqual(self.train("--resume", *args).returncode, 0)

    def test_a_full_disk_is_code_1_and_keeps_the_checkpoint(self):
        args = ["--set", self.dir("i"), "--set", "train.max_steps=9"]
        self.assertEqual(self.train(*args).returncode, 0)
        last = pathlib.Path(self.folder, "i", "checkpoints/last")
        before = {p.name: p.read_bytes() for p in last.iterdir()}
        more = [keelkit.need_keel(), "train", self.config, "--resume", "--set",
                self.dir("i"), "--set", "train.max_steps=18"]
        small = len(before["model.safetensors"]) // 2
        done = subprocess.run(more, capture_output=True, text=True, timeout=120,
                              preexec_fn=lambda: resource.setrlimit(
                                  resource.RLIMIT_FSIZE, (small, small)))
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("File too large", done.stderr)
        self.assertEqual({p.name: p.read_bytes() for p in last.iterdir()}, before)
        done = subprocess.run(more, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_memory_that_is_not_there_is_code_1(self):
        if keelkit.is_sanitized(keelkit.need_keel()):
            self.skipTest("a sanitizer takes more than any limit")
        args = [keelkit.need_keel(), "train", self.config, "--set", self.dir("o"), "--set",
                "train.max_steps=3", "--set", "eval.every=0"]
        self.assertEqual(subprocess.run(args, capture_output=True, timeout=120).returncode, 0)
        codes = set()
        for mib in range(24, 120, 3):  # from no library to all that is needed
            done = subprocess.run([*args, "--resume"], capture_output=True, text=True,
                                  timeout=120, preexec_fn=lambda: resource.setrlimit(
                                      resource.RLIMIT_AS, (mib << 20, mib << 20)))
            if done.returncode == 127:  # the loader's
                continue
            self.assertIn(done.returncode, (0, 1), done.stderr)
            self.assertEqual(done.stderr.count("\n"), done.returncode, done.stderr)
            codes.add(done.returncode)
        self.assertIn(1, codes)

    def test_what_no_machine_holds_is_refused_before_it_is_taken(self):
        # copies of a million negatives' rows of 16 KiB, once an event: 16 GiB each
        begun = ["--set", "train.items=rowwise_adagrad", "--set", "train.micro_batches=4096",
                 "--set", "train.sub_batch=1", "--set", "train.cuts_windows=true",
                 "--set", "model.max_length=1", "--set", "model.negatives=1048576",
                 "--set", "model.dim=4096", "--set", "model.heads=16", "--set", self.dir("r")]
        for more in ([], ["--check"], ["--explain"]):
            done = self.train(*begun, *more)
            self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
            self.assertRegex(
                done.stderr,
                r"^keel train: memory: the run would hold 36\.8 TiB, [0-9.]+ [A-Z]?i?B is there "
                r"for it: gradient rows 36\.7 TiB \(train\.micro_batches 4096, train\.batch 32, "
                r"model\.negatives 1048576, model\.dim 4096\), a step 49\.0 GiB \(train\.batch "
                r"32, model\.max_length 1, model\.negatives 1048576, model\.dim 4096\), layers "
                r"1\.5 GiB \(model\.blocks 1, model\.dim 4096\); expected a lower "
                r"train\.micro_batches, train\.batch, model\.negatives or model\.dim\n$")
        self.assertFalse(os.path.exists(os.path.join(self.folder, "r")))

    def test_a_user_of_a_million_events_trains_beside_short_ones(self):
        log = os.path.join(self.folder, "long.txt")
        with open(log, "w", encoding="ascii") as f:
            print(1, *(i % 1000 + 1 for i in range(1000000)), file=f)
            for user in range(2, 40):  # of one event and more
                print(user, *(user * 7 + i for i in range(1 + user % 5)), file=f)
        done = self.train("--json", "--set", f"data.path={log}", "--set", self.dir("j"),
                          "--set", "train.epochs=1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout.splitlines()[-1])["kind"], "end")


if __name__ == "__main__":
    unittest.main()
