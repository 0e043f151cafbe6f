"""keel eval and keel recommend: the figures of training come out again, names are those of
the log, and what does not fit is told by name."""
import json
import os
import pathlib
import shutil
import tempfile
import unittest

import keelkit

CONFIG = """
run: {{name: made, dir: {dir}/run, threads: 2}}
data: {{path: {dir}/log.csv}}
model: {{dim: 16, negatives: 30, similarity: cosine, temperature: 0.1}}
train: {{batch: 32, epochs: 4, lr: 0.01}}
eval: {{every: 1}}
"""
N_USERS, N_ITEMS = 90, 50


def write_log(path, rename=lambda name: name):
    """Users who walk along a ring of items, most of the time."""
    lines, state = ["user_id,item_id,timestamp"], 12345
    for user in range(N_USERS):
        at = user % N_ITEMS
        for step in range(4 + user % 9):
            name = rename(f"item-{at:03}")
            lines.append(f"user {user},{name},{1000 + step}")
            state = (state * 1103515245 + 12345) % 2**31
            at = (at + 1) % N_ITEMS if state % 10 else state // 10 % N_ITEMS
    pathlib.Path(path).write_text("\n".join(lines) + "\n")


class Trained(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.temporary.cleanup)
        cls.folder = cls.temporary.name
        cls.log = os.path.join(cls.folder, "log.csv")
        cls.run_folder = os.path.join(cls.folder, "run")
        write_log(cls.log)
        config = os.path.join(cls.folder, "c.yaml")
        pathlib.Path(config).write_text(CONFIG.format(dir=cls.folder))
        done = keelkit.keel("train", config, "--json")
        assert done.returncode == 0, done.stderr
        cls.end = json.loads(done.stdout.splitlines()[-1])

    def ok(self, *args):
        got = keelkit.keel(*args)
        self.assertEqual(got.returncode, 0, got.stderr)
        return got.stdout

    def told(self, code, says, *args):
        got = keelkit.keel(*args)
        self.assertEqual((got.returncode, got.stdout), (code, ""), got.stderr)
        self.assertRegex(got.stderr, says)
        self.assertEqual(len(got.stderr.splitlines()), 1, got.stderr)

    def test_eval_repeats_the_figures_of_training(self):
        for part in ("test", "valid"):
            got = json.loads(self.ok("eval", self.run_folder, "--part", part, "--json"))
            for which in (part, f"{part}_unfiltered"):
                self.assertEqual(set(got[which]), set(self.end[which]))
                for name, value in self.end[which].items():
                    self.assertAlmostEqual(got[which][name], value, 5, (which, name))
            self.assertEqual((got["samples"], got["items"]), (N_USERS, N_ITEMS))
            self.assertEqual(got[part]["recall@50"], 1)  # there are 50 items

    def test_threads_change_nothing(self):
        def figures(threads):
            got = json.loads(self.ok("eval", self.run_folder, "--threads", threads, "--json"))
            return got["test"], got["test_unfiltered"]
        self.assertEqual(figures(1), figures(3))

    def test_eval_is_a_table_for_people(self):
        text = self.ok("eval", os.path.join(self.run_folder, "checkpoints/last"))
        for word in ("filtered", "unfiltered", "recall", "ndcg", "mrr", "@200", "samples"):
            self.assertIn(word, text)

    def test_eval_takes_the_log_from_elsewhere_and_only_the_same_items(self):
        moved = os.path.join(self.folder, "moved.csv")
        shutil.copy(self.log, moved)
        here = json.loads(self.ok("eval", self.run_folder, "--json"))
        there = json.loads(self.ok("eval", self.run_folder, "--data", moved, "--json"))
        self.assertEqual(here["test"], there["test"])
        write_log(moved, lambda name: name.replace("item-007", "other"))
        self.told(3, "moved.csv.*item 7 is 'other', expected 'item-007'", "eval",
                  self.run_folder, "--data", moved)
        pathlib.Path(moved).write_text("user_id,item_id,timestamp\na,x,1\na,y,2\na,z,3\n")
        self.told(3, "3 items, expected the 50", "eval", self.run_folder, "--data", moved)
        self.told(3, "none.csv", "eval", self.run_folder, "--data",
                  os.path.join(self.folder, "none.csv"))

    def test_recommend_needs_no_log(self):
        alone = os.path.join(self.folder, "alone")
        shutil.copytree(os.path.join(self.run_folder, "checkpoints/best"), alone)
        args = ("--items", "item-010,item-011,item-012", "--top", 5, "--json")
        self.told(3, "no vocab.txt", "recommend", alone, *args)
        shutil.copy(os.path.join(self.run_folder, "vocab.txt"), alone)
        got = json.loads(self.ok("recommend", alone, *args))
        self.assertEqual(got["history"], ["item-010", "item-011", "item-012"])
        items = [x["item"] for x in got["items"]]
        scores = [x["score"] for x in got["items"]]
        self.assertEqual((len(set(items)), scores), (5, sorted(scores, reverse=True)))
        self.assertIn("item-013", items)  # what it learned: the ring goes on
        self.assertFalse(set(items) & set(got["history"]))
        self.assertTrue(all(-1.001 <= s <= 1.001 for s in scores))  # cosines

    def test_seen_items_come_again_only_when_asked_for(self):
        history = [f"item-{i:03}" for i in range(N_ITEMS)]
        args = ("recommend", self.run_folder, "--items", ",".join(history[:-2]), "--top", 99,
                "--json")
        left = json.loads(self.ok(*args))["items"]
        self.assertEqual({x["item"] for x in left}, set(history[-2:]))
        every = json.loads(self.ok(*args, "--seen"))["items"]
        self.assertEqual({x["item"] for x in every}, set(history))

    def test_a_user_of_the_log_is_a_history(self):
        got = json.loads(self.ok("recommend", self.run_folder, "--user", "user 10", "--json"))
        rows = [line.split(",") for line in pathlib.Path(self.log).read_text().splitlines()]
        mine = [item for user, item, _ in rows if user == "user 10"]
        self.assertEqual(got["history"], mine)
        lines = self.ok("recommend", self.run_folder, "--user", "user 10").splitlines()
        self.assertEqual([line.split()[-1] for line in lines],
                         [x["item"] for x in got["items"]])

    def test_all_users_have_a_line_each_as_by_themselves(self):
        lines = [json.loads(line) for line in self.ok(
            "recommend", self.run_folder, "--all-users", "--top", "7").splitlines()]
        rows = [line.split(",") for line in pathlib.Path(self.log).read_text().splitlines()]
        users = list(dict.fromkeys(user for user, _, _ in rows[1:]))
        self.assertEqual([line["user"] for line in lines], users)
        for line in lines[:5] + lines[-2:]:
            alone = json.loads(self.ok("recommend", self.run_folder, "--user", line["user"],
                                       "--top", "7", "--json"))
            self.assertEqual(line["items"], alone["items"])
        self.told(2, "--all-users", "recommend", self.run_folder, "--all-users", "--user",
                  "user 1")

    def test_unknown_names_are_told_with_the_nearest(self):
        self.told(2, "unknown item 'item-1O1', did you mean 'item-0[01]1'", "recommend",
                  self.run_folder, "--items", "item-004,item-1O1")
        self.told(2, "unknown item ''", "recommend", self.run_folder, "--items",
                  "item-004,")
        self.told(2, "unknown user 'User 10', did you mean 'user 10'", "recommend",
                  self.run_folder, "--user", "User 10")

    def test_wrong_usage_and_wrong_folders_are_told(self):
        self.told(2, "--items A,B,C or --user NAME", "recommend", self.run_folder)
        self.told(2, "one of", "recommend", self.run_folder, "--items", "item-001",
                  "--user", "user 1")
        self.told(2, "expected", "recommend", self.run_folder, "--items", "item-001", "--top",
                  0)
        self.told(3, "nowhere", "eval", os.path.join(self.folder, "nowhere"))
        self.told(3, self.folder, "eval", self.folder)


if __name__ == "__main__":
    keelkit.need_keel()
    if "\n  train " not in keelkit.keel("--help").stdout:
        keelkit.skip("this keel does not train")
    unittest.main(verbosity=2)
