"""keel data: text to packs and their numbers, on made logs and on the real ones where
EK_DATA has them; what is wrong with a file is one line and exit code 3."""
import gzip
import json
import os
import pathlib
import tempfile
import unittest

import keelkit

REAL = os.path.join(os.environ.get("EK_DATA", ""), "recsys")
# users, items, events: published for these files
COUNTS = {"Beauty.txt": (22363, 12101, 198502),
          "Sports_and_Outdoors.txt": (35598, 18357, 296337),
          "Toys_and_Games.txt": (19412, 11924, 167597),
          "LastFM.txt": (1090, 3646, 52551),
          "ml-100k.inter": (943, 1682, 100000)}


class Data(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def put(self, name, text):
        with open(self.path(name), "wb") as f:
            f.write(text if isinstance(text, bytes) else text.encode())
        return self.path(name)

    def json(self, *args):
        done = keelkit.keel("data", *args, "--json")
        self.assertEqual((done.returncode, done.stderr), (0, ""), args)
        return json.loads(done.stdout)

    def counts(self, got):
        return got["users"], got["items"], got["events"]

    def test_real_files_have_their_published_counts(self):
        for name, counts in COUNTS.items():
            path = os.path.join(REAL, name)
            if not os.path.exists(path):
                keelkit.skip(f"{path} is not there")
            with self.subTest(name):
                pack = self.path(name + ".pack")
                self.assertEqual(self.counts(self.json("pack", path, pack)), counts)
                stats = self.json("stats", pack)
                self.assertEqual(self.counts(stats), counts)
                self.assertEqual(stats["split"]["test"], counts[0])

    def test_gzip_and_plain_text_give_the_same_pack_in_every_format(self):
        table = "user_id{t}{s}item_id{t}{s}timestamp{f}\n1{s}5{s}3\n2{s}6{s}1\n1{s}6{s}2\n"
        for name, text in (("a.txt", "1 5 6 5\n2 6 7\n"),
                           ("a.csv", table.format(s=",", t="", f="")),
                           ("a.tsv", table.format(s="\t", t="", f="")),
                           ("a.inter", table.format(s="\t", t=":token", f=":float"))):
            whole = gzip.compress(text.encode())
            self.json("pack", self.put(name, text), self.path("a.pack"))
            self.json("pack", self.put(name + ".gz", whole), self.path("b.pack"))
            a, b = (self.json("stats", self.path(p + ".pack")) for p in "ab")
            del a["source"], b["source"]
            self.assertEqual(a, b)
            for n in (len(whole) - 1, len(whole) - 8, len(whole) // 2, 12):
                said = self.refused("pack", self.put(name + ".gz", whole[:n]),
                                    self.path("c.pack"))
                self.assertIn(f"{name}.gz:", said)
                self.assertIn("gzip data is cut off", said)
                self.assertFalse(os.path.exists(self.path("c.pack")))

    def test_columns_are_mapped_and_ties_told(self):
        log = self.put("log.csv", "who,sku,at,price,land\nann,a,5,1,de\nann,b,3,2,de\n"
                                  "bob,a,1,3,fr\nann,c,5,4,de\n")
        got = self.json("pack", log, self.path("p"), "--user", "who", "--item", "sku",
                        "--time", "at", "--numeric", "price", "--user-category", "land")
        self.assertEqual(self.counts(got), (2, 3, 4))
        self.assertEqual((got["ties"], got["users_sorted"]), (1, 1))
        self.assertEqual([(c["name"], c["of"], c["kind"]) for c in got["columns"]],
                         [("price", "event", "numeric"), ("land", "user", "category")])

    def refused(self, *args):
        done = keelkit.keel("data", *args)
        self.assertEqual(done.returncode, 3, done)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        return done.stderr

    def test_bad_files_cost_one_line_with_their_place(self):
        out = self.path("out.pack")
        packed = gzip.compress(b"1 2 3\n" * 1)
        for name, text, says in (
                ("a.txt", "1 2\n1 3\n", "a.txt:2:1: user '1' had a line before"),
                ("b.txt", "1 0\n", "b.txt:1:3: item '0': expected a whole number"),
                ("c.txt", "", "c.txt: holds no event"),
                ("d.csv", "user_id,sku\n1,2\n", "d.csv:1:1: no column 'item_id'"),
                ("e.txt.gz", packed[:-4], "gzip data is cut off"),
                ("f.dat", "1 2\n", "the name does not tell the format")):
            said = self.refused("pack", self.put(name, text), out)
            self.assertIn(says, said)
            self.assertTrue(said.startswith("keel data pack: "), said)
            self.assertFalse(os.path.exists(out))
        self.assertIn("is no packed log", self.refused("stats", self.put("x", "1 2\n")))
        self.json("pack", self.put("t.txt", "1 2 3\n"), out)
        self.assertIn("has no times", self.refused("stats", out, "--split", "time"))
        with open(out, "rb") as f:
            whole = f.read()
        self.assertIn("its header says", self.refused("stats", self.put("y", whole[:-1])))

    def test_the_same_seed_makes_the_same_file(self):
        args = ("--users", "300", "--items", "200")
        for name, seed in (("a", 1), ("b", 1), ("c", 2)):
            self.json("synth", self.path(name), *args, "--seed", seed)
        a, b, c = (pathlib.Path(self.path(n)).read_bytes() for n in "abc")
        self.assertEqual(a, b)
        self.assertNotEqual(a, c)
        stats = self.json("stats", self.path("a"), "--split", "time")
        self.assertEqual(stats["users"], 300)
        self.assertGreater(stats["popularity"]["top_10_percent"], 0.2)
        self.assertGreater(stats["padding"][2]["waste"],
                           stats["padding"][2]["waste_bucketed"])

    def test_synth_tells_the_least_entropy_of_its_clicks(self):
        made = self.json("synth", self.path("a"), "--users", "2000")
        self.assertGreater(made["click_rate"], 0.2)
        self.assertLess(made["click_bayes_entropy"], 0.95 * made["click_entropy"])

    def test_the_drawing_has_lengths_popularity_and_the_waste_of_padding(self):
        import xml.dom.minidom
        self.json("synth", self.path("a"), "--users", "50")
        stats = self.json("stats", self.path("a"), "--max-length", 20, "--svg",
                          self.path("a.svg"))
        drawn = xml.dom.minidom.parse(self.path("a.svg"))
        texts = [t.firstChild.data for t in drawn.getElementsByTagName("text")]
        for head in ("Users by number of events", "Events of an item by its rank",
                     "Share of a padded batch that is wasted, lengths cut to 20"):
            self.assertIn(head, texts)
        bars = [t.firstChild.data for t in drawn.getElementsByTagName("title")]
        for batch in stats["padding"]:
            self.assertIn(f"{batch['batch']} users", texts)
            for kind in ("waste", "waste_bucketed"):
                self.assertIn(f"{100 * batch[kind]:.1f} %", bars)


if __name__ == "__main__":
    keelkit.need_keel()
    unittest.main()
