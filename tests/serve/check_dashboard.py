"""docs/grafana-dashboard.json against the metrics of a running server: what a panel asks
for is there, with the labels it uses; and the names keep Prometheus' conventions."""
import json
import pathlib
import re
import unittest
import urllib.error
import urllib.request

import keelkit

ROOT = pathlib.Path(__file__).resolve().parents[2]
TINY = ROOT / "tests/lm/golden/llama.gguf"
SCRAPED = {"job", "instance"}  # labels that Prometheus adds


def scrape():
    """/metrics of a server that has answered once and refused once."""
    server = keelkit.Server(TINY, "--ctx", "64")
    try:
        body = json.dumps({"prompt": "abc", "max_tokens": 3, "ignore_eos": True}).encode()
        with urllib.request.urlopen(server.url + "/v1/completions", body, 240) as answer:
            answer.read()
        try:
            server.get("/nope")
        except urllib.error.HTTPError:
            pass
        return server.get("/metrics")
    finally:
        assert server.stop() == 0


class Metrics:
    def __init__(self, text):
        self.types, self.helps = {}, {}
        self.labels, self.values = {}, []  # labels by sample name
        for line in text.rstrip("\n").split("\n"):
            if line.startswith("# TYPE "):
                name, kind = line.split()[2:]
                self.types[name] = kind
            elif line.startswith("# HELP "):
                name, _, words = line[7:].partition(" ")
                self.helps[name] = words
            else:
                name, labels, value = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line).groups()
                names = set(re.findall(r'(\w+)="(?:[^"\\]|\\.)*"', labels or ""))
                self.labels.setdefault(name, set()).update(names)
                self.values.append((name, labels or "", float(value)))

    def family(self, sample):
        base = re.sub(r"_(bucket|sum|count)$", "", sample)
        return base if self.types.get(base) == "histogram" else sample


METRICS = Metrics(scrape())
BOARD = json.loads((ROOT / "docs/grafana-dashboard.json").read_text(encoding="utf-8"))
PANELS = [p for p in BOARD["panels"] if p["type"] != "row"]
EXPRS = [(p["title"], t["expr"]) for p in PANELS for t in p["targets"]]


class Dashboard(unittest.TestCase):
    def test_every_metric_of_a_panel_is_exported_with_its_labels(self):
        for title, expr in EXPRS:
            named = re.findall(r"(evenkeel_\w+)\{([^}]*)\}", expr)
            self.assertEqual(len(named), len(re.findall(r"evenkeel_\w+", expr)), expr)
            self.assertTrue(named, title)
            known = set(SCRAPED)
            for name, matchers in named:
                self.assertIn(name, METRICS.labels, title)
                known |= METRICS.labels[name]
                used = set(re.findall(r'(\w+)=~?"', matchers))
                self.assertLessEqual(used, METRICS.labels[name] | SCRAPED, expr)
            for names in re.findall(r"(?:by|on|group_left) \(([^)]*)\)", expr):
                self.assertLessEqual(set(re.findall(r"\w+", names)), known, expr)

    def test_what_an_operator_must_see_has_a_panel(self):
        shown = " ".join(expr for _, expr in EXPRS)
        for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_ratio",
                     "num_preemptions_total", "prefix_cache_hits_total",
                     "prefix_cache_evicted_pages_total", "page_check_failures_total",
                     "kv_pages_quarantined", "deadlines_missed_total",
                     "requests_refused_total", "time_to_first_token_seconds_bucket",
                     "inter_token_latency_seconds_bucket"):
            self.assertRegex(shown, rf"evenkeel_{name}\b")

    def test_variables_ask_for_metrics_that_are_exported(self):
        for variable in BOARD["templating"]["list"][1:]:
            for name in re.findall(r"evenkeel_\w+", variable["definition"]):
                self.assertIn(name, METRICS.labels)

    def test_rates_are_of_counters_and_quantiles_of_buckets(self):
        for title, expr in EXPRS:
            rated = re.findall(r"(?:rate|increase)\((evenkeel_\w+)\{", expr)
            for name in re.findall(r"evenkeel_\w+", expr):
                kind = METRICS.types[METRICS.family(name)]
                if name in rated:
                    self.assertIn(kind, ("counter", "histogram"), title)
                elif kind == "histogram":
                    self.fail(f"{title}: {name} without a rate")
            if "histogram_quantile" in expr:
                self.assertIn("sum by (le) (rate(evenkeel_", expr)
                self.assertTrue(all(n.endswith("_bucket") for n in rated), title)

    def test_panels_explain_themselves_have_a_unit_and_do_not_overlap(self):
        self.assertEqual(len({p["id"] for p in BOARD["panels"]}), len(BOARD["panels"]))
        cells = set()
        for panel in BOARD["panels"]:
            g = panel["gridPos"]
            mine = {(x, y) for x in range(g["x"], g["x"] + g["w"])
                    for y in range(g["y"], g["y"] + g["h"])}
            self.assertFalse(mine & cells, panel["title"])
            self.assertLessEqual(g["x"] + g["w"], 24)
            cells |= mine
        for panel in PANELS:
            self.assertTrue(panel["title"] and panel["description"], panel["id"])
            self.assertTrue(panel["fieldConfig"]["defaults"]["unit"])
            for target in panel["targets"]:
                self.assertEqual(target["datasource"]["uid"], "${datasource}")


class Conventions(unittest.TestCase):
    def test_the_names_of_the_field_are_there_under_our_prefix(self):
        # As vLLM has them (base units; counters end in _total).
        for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_ratio",
                     "prefix_cache_queries_total", "prefix_cache_hits_total",
                     "num_preemptions_total", "prompt_tokens_total", "generation_tokens_total",
                     "request_success_total", "iteration_tokens", "request_prompt_tokens",
                     "request_generation_tokens", "request_params_n",
                     "request_params_max_tokens", "time_to_first_token_seconds",
                     "inter_token_latency_seconds", "request_time_per_output_token_seconds",
                     "e2e_request_latency_seconds", "request_queue_time_seconds",
                     "request_inference_time_seconds", "request_prefill_time_seconds",
                     "request_decode_time_seconds", "cache_config_info",
                     "corrupted_requests_total"):
            self.assertIn("evenkeel_" + name, METRICS.types)

    def test_names_follow_prometheus(self):
        for name, kind in METRICS.types.items():
            self.assertRegex(name, r"^evenkeel_[a-z][a-z0-9]*(_[a-z0-9]+)*$")
            self.assertEqual(name.endswith("_total"), kind == "counter", name)
            self.assertNotRegex(name, r"_(ms|us|milliseconds|microseconds|minutes|perc|percent"
                                r"|kb|mb|kib|mib|kilobytes)(_|$)")
            self.assertTrue(METRICS.helps[name], name)
            if re.search(r"_(time|latency|duration)", name):
                self.assertTrue(name.endswith("_seconds") or "_seconds_" in name, name)

    def test_every_sample_has_a_type_and_ratios_lie_from_0_to_1(self):
        seen = set()
        for name, labels, value in METRICS.values:
            self.assertIn(METRICS.family(name), METRICS.types)
            self.assertNotIn((name, labels), seen)
            seen.add((name, labels))
            if name.endswith("_ratio"):
                self.assertTrue(0 <= value <= 1, name)

    def test_buckets_add_up_to_the_count(self):
        for name in (n for n, kind in METRICS.types.items() if kind == "histogram"):
            buckets = [v for n, _, v in METRICS.values if n == name + "_bucket"]
            self.assertEqual(buckets, sorted(buckets), name)
            self.assertEqual([v for n, _, v in METRICS.values if n == name + "_count"],
                             buckets[-1:], name)


if __name__ == "__main__":
    unittest.main()
