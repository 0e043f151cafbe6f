"""A proxy that changes while sessions go on: backends, listeners, certificates, limits by
SIGHUP and POST /reload; errors that change nothing; sessions that come and go meanwhile."""
import json
import os
import pathlib
import random
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from check_life import Frames, read_frame  # noqa: E402
from proxykit import (KEY, PATIENCE_S, Backend, Client, Keel, Sessions, answer,  # noqa: E402
                      echo_http, echo_tunnel, end_balanced, hold_port, wait_for)

NOWHERE = "a" * 64 + ".test"  # no label is so long: no server is asked


def start_activated(path, fd, stderr):
    """keel route on a listening socket, as systemd's activation gives it."""
    start = (f"import os; os.dup2({fd}, 3); os.set_inheritable(3, True); "
             "os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS='1'); "
             f"os.execv({os.environ['KEEL']!r}, ['keel', 'route', {str(path)!r}])")
    return subprocess.Popen([sys.executable, "-c", start], pass_fds=[fd], stderr=stderr)


def make_certificate(folder, file, name):
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                    "-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}",
                    "-keyout", f"{folder}/{file}.key", "-out", f"{folder}/{file}.pem"],
                   check=True, capture_output=True)


class Case(Sessions, unittest.TestCase):
    def backend(self, serve):
        b = Backend(serve)
        self.addCleanup(b.close)
        return b

    def keel(self, text, **kw):
        return end_balanced(self, Keel(text, **kw))

    def refused(self, k, path="/reload"):
        with self.assertRaises(urllib.error.HTTPError) as caught:
            k.post(path)
        self.assertEqual(caught.exception.code, 400)
        text = caught.exception.read().decode()
        caught.exception.close()
        return text


def config(backends, more="", listen="127.0.0.1:0"):
    rows = "\n".join(f"  - {{name: {n}, address: '127.0.0.1:{b.port}'{extra}}}"
                     for n, b, extra in backends)
    return (f"admin: 127.0.0.1:0\nhealth_interval: 100ms\n{more}\n"
            f"listeners:\n  - listen: {listen}\nbackends:\n{rows}\n")


class Backends(Case):
    def test_backends_are_added_removed_changed_and_kept_while_sessions_go_on(self):
        a, b, c = (self.backend(echo_tunnel) for _ in range(3))
        k = self.keel(config([("a", a, ""), ("b", b, ", weight: 2")]))
        clients = [self.open(k) for _ in range(6)]
        before = k.backends()
        self.assertEqual(sum(s["open_sessions"] for s in before.values()), 6)
        k.write(config([("b", b, ", weight: 5"), ("c", c, "")]))
        said = json.loads(k.post("/reload"))["backends"]
        self.assertEqual(said, {"added": ["c"], "changed": ["b"], "kept": [],
                                "removed": ["a"]})
        for client in clients:
            self.echo(client)
        now = k.backends()
        self.assertEqual(now["b"]["weight"], 5)
        self.assertEqual(now["b"]["placed_total"], before["b"]["placed_total"])
        self.assertEqual(now["b"]["open_sessions"], before["b"]["open_sessions"])
        for _ in range(8):
            self.open(k)
        now = k.backends()
        self.assertEqual(now["a"]["placed_total"], before["a"]["placed_total"])
        self.assertGreater(now["c"]["open_sessions"], 0)
        for client in clients:
            client.close()
        self.assertTrue(wait_for(lambda: set(k.backends()) == {"b", "c"}))
        self.assertNotIn('backend="a"', k.get("/metrics"))
        self.assertEqual(k.metric('reloads_total{result="applied"}'), 1)

    def test_one_whose_name_says_nothing_yet_gets_no_session(self):
        a = self.backend(echo_tunnel)
        k = self.keel(config([("a", a, "")]))
        k.write(config([("a", a, "")]) + f"  - {{name: d, address: '{NOWHERE}:80'}}\n")
        self.assertEqual(json.loads(k.post("/reload"))["backends"]["added"], ["d"])
        self.assertFalse(k.backends()["d"]["up"])
        for _ in range(4):
            self.echo(self.open(k))
        self.assertEqual(k.backends()["d"]["failures_total"], 0)

    def test_a_name_at_another_address_is_another_backend(self):
        a, b = self.backend(echo_tunnel), self.backend(echo_tunnel)
        k = self.keel(config([("a", a, "")]))
        old = self.open(k)
        k.write(config([("a", b, "")]))
        said = json.loads(k.post("/reload"))["backends"]
        self.assertEqual((said["added"], said["removed"]), (["a"], ["a"]))
        new = self.open(k)
        self.echo(old)
        self.echo(new)
        self.assertEqual(len(b.requests), 1)

    def test_sessions_of_a_removed_backend_end_at_its_drains_limit(self):
        a, b = self.backend(echo_tunnel), self.backend(echo_tunnel)
        more = "policy: round_robin\nbackend_drain: 300ms"
        k = self.keel(config([("a", a, ""), ("b", b, "")], more))
        clients = [self.open(k) for _ in range(4)]
        k.write(config([("b", b, "")], more))
        k.post("/reload")
        self.assertTrue(wait_for(lambda: set(k.backends()) == {"b"}))
        self.assertTrue(wait_for(lambda: k.metric("open_sessions") == 2))
        self.assertTrue(wait_for(lambda: len(k.records("session_end")) == 2))
        self.assertEqual({r["why"] for r in k.records("session_end")}, {"removed"})
        for client in clients:
            client.close()

    def test_both_sides_get_a_close_at_a_removed_backends_limit(self):
        frames = Frames()
        a, b = self.backend(frames), self.backend(echo_tunnel)
        k = self.keel(config([("a", a, "")], "backend_drain: 300ms"))
        client = self.open(k)
        k.write(config([("b", b, "")], "backend_drain: 300ms"))
        k.post("/reload")
        self.assertEqual(read_frame(client), (0x88, b"\x03\xe9", False))
        client.send(b"\x88\x82\0\0\0\0\x03\xe9")
        self.assertTrue(wait_for(lambda: frames.seen == [(0x88, b"\x03\xe9", True)]))
        self.assertTrue(wait_for(lambda: k.records("session_end")))
        self.assertEqual(k.records("session_end")[0]["why"], "removed")
        client.close()

    def test_a_drain_with_a_limit_ends_the_sessions_that_are_left(self):
        frames = Frames()
        a, b = self.backend(frames), self.backend(echo_tunnel)
        more = "policy: round_robin\nwebsocket_ping: 60s"
        k = self.keel(config([("a", a, ""), ("b", b, "")], more))
        clients = [self.open(k) for _ in range(4)]
        for bad in "within=soon", "within=5", "within=-1s", "within=99999999h":
            self.refused(k, f"/drain?backend=a&{bad}")
        k.post("/drain?backend=a&within=60s")
        k.post("/drain?backend=a&on=false")  # taken back, and with it the limit
        k.post("/drain?backend=a&within=200ms")
        self.assertTrue(wait_for(lambda: len(k.records("session_start")) == 4))
        starts = k.records("session_start")
        ended = [c for c, start in zip(clients, starts) if start["backend"] == "a"]
        self.assertEqual(len(ended), 2)
        for c in ended:
            self.assertEqual(read_frame(c), (0x88, b"\x03\xe9", False))
            c.send(b"\x88\x82\0\0\0\0\x03\xe9")
        self.assertTrue(wait_for(lambda: len(k.records("session_end")) == 2))
        self.assertEqual({r["why"] for r in k.records("session_end")}, {"backend_drain"})
        self.assertTrue(wait_for(lambda: k.backends()["a"]["open_sessions"] == 0))
        for c in clients:
            if c not in ended:
                self.echo(c)
        self.echo(self.open(k))
        self.assertEqual(k.backends()["a"]["open_sessions"], 0)
        k.post("/drain?backend=a&on=false")
        again = [self.open(k) for _ in range(2)]
        self.assertEqual(k.backends()["a"]["open_sessions"], 1)
        for c in clients + again:
            c.close()

    def test_a_name_that_nobody_knows_takes_no_backend_away(self):
        a = self.backend(echo_tunnel)
        k = self.keel(config([("a", a, "")]))
        old = self.open(k)
        text = config([("a", a, "")])
        gone = text.replace(f"'127.0.0.1:{a.port}'", f"'{NOWHERE}:80'")
        for name in "a", "d":
            k.write(gone.replace("name: a", f"name: {name}"))
            said = self.refused(k)
            self.assertIn(f"backend '{name}': address:", said)
            self.assertIn(NOWHERE, said)
            self.assertIn("backend 'a', which stays", said)
            self.assertEqual(k.backends()["a"]["address"], f"127.0.0.1:{a.port}")
            self.echo(self.open(k))
        self.assertEqual(k.metric('reloads_total{result="refused"}'), 2)
        self.echo(old)

    def test_a_name_that_is_known_serves_at_once(self):
        a, b = self.backend(echo_tunnel), self.backend(echo_tunnel)
        k = self.keel(config([("a", a, "")]))
        k.write(config([("b", b, "")]).replace("127.0.0.1:%d" % b.port,
                                               "localhost:%d" % b.port))
        said = json.loads(k.post("/reload"))["backends"]
        self.assertEqual((said["added"], said["removed"]), (["b"], ["a"]))
        self.echo(self.open(k))
        self.assertEqual(len(b.requests), 1)

    def test_who_waits_for_a_connection_that_is_let_go_of_is_sent_another_way(self):
        """Of HTTP/2, whose SETTINGS have not come; nothing is held against the backend."""
        prefaces = []

        def serve(client, backend):
            while len(client.buffer) < 3 and client.more():
                pass
            if not client.buffer.startswith(b"PRI"):
                echo_tunnel(client, backend)
                return
            prefaces.append(1)
            client.rest()

        a = self.backend(serve)
        k = self.keel(config([("a", a, ", protocol: http2")], "connect_timeout: 60s"))
        c = k.connect()
        self.addCleanup(c.close)
        c.send("GET /ws HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\nUpgrade: websocket"
               f"\r\nSec-WebSocket-Key: {KEY}\r\nSec-WebSocket-Version: 13\r\n\r\n")
        self.assertTrue(wait_for(lambda: prefaces))
        k.write(config([("a", a, "")], "connect_timeout: 60s"))
        self.assertEqual(json.loads(k.post("/reload"))["backends"]["changed"], ["a"])
        self.assertEqual(c.head()[0], 101)
        self.echo(c)
        self.assertEqual(k.backends()["a"]["failures_total"], 0)
        self.assertEqual(k.metric("connect_failures_total"), 0)

    def test_pooled_connections_to_a_removed_backend_serve_nobody_again(self):
        a, b = self.backend(echo_http("a")), self.backend(echo_http("b"))
        k = self.keel(config([("x", a, "")]))
        client = k.connect()
        self.addCleanup(client.close)
        self.assertTrue(client.get()[2].startswith(b"a|"))
        k.write(config([("x", b, "")]))
        k.post("/reload")
        self.assertTrue(wait_for(lambda: len(k.backends()) == 1 and
                                 k.backends()["x"]["address"].endswith(str(b.port))))
        for _ in range(5):
            self.assertTrue(client.get()[2].startswith(b"b|"))

    def test_limits_and_policy_hold_for_sessions_that_begin_later(self):
        a, b = self.backend(echo_tunnel), self.backend(echo_tunnel)
        k = self.keel(config([("a", a, ""), ("b", b, "")], "queue_timeout: 0s"))
        for _ in range(4):
            self.open(k)
        k.write(config([("a", a, ""), ("b", b, "")],
                       "queue_timeout: 0s\nmax_sessions: 2\npolicy: round_robin"))
        k.post("/reload")
        c = k.connect()
        self.addCleanup(c.close)
        self.assertEqual(c.upgrade()[0], 503)
        self.assertEqual(json.loads(k.get("/backends"))["policy"], "round_robin")

    def test_a_backend_that_was_down_is_so_after_its_settings_changed(self):
        a, b = self.backend(echo_tunnel), self.backend(echo_tunnel)
        k = self.keel(config([("a", a, ""), ("b", b, "")]))
        b.close()
        self.assertTrue(wait_for(lambda: not k.backends()["b"]["up"]))
        k.write(config([("a", a, ""), ("b", b, ", weight: 3")]))
        k.post("/reload")
        self.assertFalse(k.backends()["b"]["up"])


    def test_all_may_be_replaced_at_once_and_nobody_is_refused(self):
        halves = [[(f"{half}{i}", self.backend(echo_http("x")), "") for i in range(3)]
                  for half in "ab"]
        k = self.keel(config(halves[0]))
        stop, bad = threading.Event(), []

        def ask():
            while not stop.is_set():
                c = k.connect()
                status = c.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").head()[0]
                c.close()
                if status != 200:
                    bad.append(status)
        threads = [threading.Thread(target=ask) for _ in range(4)]
        for t in threads:
            t.start()
        for turn in range(12):
            k.write(config(halves[(turn + 1) % 2]))
            k.post("/reload")
        stop.set()
        for t in threads:
            t.join()
        self.assertEqual(bad, [])

    def test_records_of_long_sessions_can_be_ended(self):
        a = self.backend(echo_tunnel)
        k = self.keel(config([("a", a, "")], "log_interval: 100ms"))
        c = self.open(k)
        self.assertTrue(wait_for(lambda: k.records("session_open")))
        k.write(config([("a", a, "")], "log_interval: 0s"))
        k.post("/reload")

        def none_comes():
            n = len(k.records("session_open"))
            time.sleep(0.5)
            return len(k.records("session_open")) == n
        self.assertTrue(wait_for(none_comes))
        self.echo(c)


class Errors(Case):
    def test_an_error_changes_nothing_and_is_said_with_its_place(self):
        a = self.backend(echo_tunnel)
        good = config([("a", a, "")])
        k = self.keel(good)
        client = self.open(k)
        for bad, words in [
                (good + "weights: 3\n", ["weights"]),
                (good.replace("name: a", "name: a, wieght: 2"), ["wieght", "weight"]),
                (config([("a", a, ", weight: -1")]), ["weight", "-1"]),
                (config([("a", a, ""), ("a", a, "")]), ["a", "twice"]),
                (config([("a", a, "")], "threads: 2"), ["threads", "restart"]),
                (good.replace("admin: 127.0.0.1:0", "admin: off"), ["admin", "restart"]),
                (config([("a", a, ", report_key_file: /nowhere/key")]),
                 ["backend 'a'", "/nowhere/key"]),
                ("backends: [\n", [])]:
            k.write(bad)
            text = self.refused(k)
            for word in words:
                self.assertIn(word, text)
            self.echo(client)
            self.assertEqual(set(k.backends()), {"a"})
        self.assertEqual(k.metric('reloads_total{result="refused"}'), 8)
        k.write(good)
        k.process.send_signal(signal.SIGHUP)
        self.assertTrue(wait_for(lambda: k.records("reloaded")))
        self.echo(client)

    def test_what_is_refused_leaves_the_level_of_the_log(self):
        a = self.backend(echo_tunnel)
        k = self.keel(config([("a", a, "")]))
        k.write(config([("a", a, "")], "log_level: error\nthreads: 2"))
        self.refused(k)
        self.open(k)
        self.assertTrue(wait_for(lambda: k.records("session_start")))
        k.write(config([("a", a, "")], "log_level: error"))
        k.post("/reload")
        n = len(k.records("session_start"))
        self.echo(self.open(k))
        self.assertEqual(len(k.records("session_start")), n)

    def test_a_sighup_that_is_refused_says_why_in_the_log(self):
        a = self.backend(echo_tunnel)
        k = self.keel(config([("a", a, "")]))
        k.write(config([("a", a, ", weight: x")]))
        k.process.send_signal(signal.SIGHUP)
        self.assertTrue(wait_for(lambda: k.records("reload_refused")))
        self.assertIn("weight", k.records("reload_refused")[0]["why"])

    def test_a_web_page_may_not_reload(self):
        a = self.backend(echo_tunnel)
        k = self.keel(config([("a", a, "")]))
        c = Client(k.admin)
        self.addCleanup(c.close)
        c.send("POST /reload HTTP/1.1\r\nHost: x\r\nOrigin: http://evil\r\n"
               "Content-Length: 0\r\n\r\n")
        self.assertEqual(c.head()[0], 403)


class Listeners(Case):
    def free_port(self):
        """Nobody else's until the test ends; the proxy names it, so that it may listen."""
        held = hold_port()
        self.addCleanup(held.close)
        return held.getsockname()[1]

    def test_listeners_are_added_and_removed(self):
        a = self.backend(echo_tunnel)
        k = self.keel(config([("a", a, "")]))
        client = self.open(k)
        more = self.free_port()
        text = config([("a", a, "")]).replace(
            "listeners:\n", f"listeners:\n  - listen: 127.0.0.1:{more}\n")
        k.write(text)
        k.post("/reload")
        with socket.create_connection(("127.0.0.1", more), timeout=10) as s:
            self.assertEqual(Client(sock=s).upgrade()[0], 101)
        self.open(k)
        k.write(config([("a", a, "")]))
        k.post("/reload")

        def is_shut():
            try:
                socket.create_connection(("127.0.0.1", more), timeout=5).close()
                return False
            except ConnectionError:
                return True
        self.assertTrue(wait_for(is_shut))
        self.echo(client)
        self.open(k)

    def test_a_listener_that_comes_back_at_once_is_the_one_that_went(self):
        a = self.backend(echo_tunnel)
        less = config([("a", a, "")], "threads: 2")
        k = self.keel(less)
        more = self.free_port()
        with_it = less.replace(
            "listeners:\n", f"listeners:\n  - listen: 127.0.0.1:{more}\n")
        for _ in range(10):
            k.write(with_it)
            k.post("/reload")
            self.echo_at(more)
            k.write(less)
            k.post("/reload")  # its socket is open for a grace period from now on
        k.write(with_it)
        k.post("/reload")
        time.sleep(0.3)  # and after that it is still there
        self.echo_at(more)

    def echo_at(self, port):
        c = Client(port)
        self.assertEqual(c.upgrade()[0], 101)
        self.echo(c)
        c.close()

    def test_who_connected_before_a_listener_went_is_answered(self):
        a = self.backend(echo_tunnel)
        less = config([("a", a, "")])
        k = self.keel(less)
        more = self.free_port()
        with_it = less.replace(
            "listeners:\n", f"listeners:\n  - listen: 127.0.0.1:{more}\n")
        unanswered, stop = [], threading.Event()

        def come():
            while not stop.is_set():
                try:
                    c = Client(more)
                except ConnectionError:
                    continue  # it is not there now
                except TimeoutError:
                    continue
                try:
                    if c.upgrade()[0] != 101:
                        unanswered.append("refused")
                except (OSError, TypeError) as e:
                    unanswered.append(repr(e))
                c.close()
        threads = [threading.Thread(target=come) for _ in range(3)]
        for t in threads:
            t.start()
        for _ in range(6):
            k.write(with_it)
            k.post("/reload")
            time.sleep(0.1)
            k.write(less)
            k.post("/reload")
            time.sleep(0.15)
        stop.set()
        for t in threads:
            t.join()
        self.assertEqual(unanswered, [])

    def test_a_port_that_is_taken_refuses_the_whole_reload(self):
        a, b = self.backend(echo_tunnel), self.backend(echo_tunnel)
        k = self.keel(config([("a", a, "")]))
        k.write(config([("b", b, "")]).replace(
            "listeners:\n", f"listeners:\n  - listen: 127.0.0.1:{a.port}\n"))
        self.assertIn(str(a.port), self.refused(k))
        self.assertEqual(set(k.backends()), {"a"})
        self.open(k)

    def test_a_renewed_certificate_is_for_the_next_connection(self):
        a = self.backend(echo_tunnel)
        with tempfile.TemporaryDirectory() as folder:
            make_certificate(folder, "x", "old.test")
            text = config([("a", a, "")]).replace(
                "listen: 127.0.0.1:0", "listen: 127.0.0.1:0\n    tls_cert: "
                f"{folder}/x.pem\n    tls_key: {folder}/x.key")
            k = self.keel(text)

            def connect():
                context = ssl.create_default_context()
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
                raw = socket.create_connection(("127.0.0.1", k.port), timeout=PATIENCE_S)
                s = context.wrap_socket(raw)
                self.addCleanup(s.close)
                return s, s.getpeercert(binary_form=True)

            def pem():
                return ssl.PEM_cert_to_DER_cert(
                    pathlib.Path(folder, "x.pem").read_text())
            old = pem()
            s, got = connect()
            self.assertEqual(got, old)
            session = Client(sock=s)
            self.assertEqual(session.upgrade()[0], 101)
            make_certificate(folder, "x", "new.test")
            k.post("/reload")
            self.assertEqual(connect()[1], pem())
            self.assertNotEqual(old, pem())
            self.echo(session)
            pathlib.Path(folder, "x.pem").write_text("no certificate")
            said = self.refused(k)
            self.assertIn("x.pem", said)
            self.assertIn("127.0.0.1:0", said)


class Keys(Case):
    def test_reports_are_asked_for_with_the_key_and_it_is_never_logged(self):
        heads = []

        def serve(client, backend):
            head = client.head()
            heads.append(head[1].get("authorization"))
            if head[1].get("authorization") != "Bearer s3cret":
                answer(client, "{}", "401 Unauthorized", "Connection: close\r\n")
            else:
                answer(client, '{"active_sessions": 1, "effective_capacity": 7}',
                       extra="Connection: close\r\n")

        a = self.backend(serve)
        with tempfile.TemporaryDirectory() as folder:
            key = pathlib.Path(folder, "key")
            key.write_text("wrong\n")
            k = self.keel(config([("a", a, f", report_key_file: {key}")],
                                 "report_path: /load\nreport_interval: 50ms\n"
                                 "log_level: debug"))
            self.assertTrue(wait_for(lambda: "Bearer wrong" in heads))
            self.assertFalse(k.backends()["a"]["has_report"])
            key.write_text("s3cret\n")
            k.post("/reload")
            self.assertTrue(wait_for(lambda: k.backends()["a"]["has_report"]))
            self.assertNotIn("s3cret", k.output() + k.get("/backends"))
            key.write_text("\n")
            self.assertIn("its first line is empty", self.refused(k))

    def test_check_opens_certificates_and_keys_and_names_the_file(self):
        a = self.backend(echo_tunnel)
        with tempfile.TemporaryDirectory() as folder:
            make_certificate(folder, "x", "a.test")
            make_certificate(folder, "y", "b.test")
            good = config([("a", a, "")]).replace(
                "listen: 127.0.0.1:0", "listen: 127.0.0.1:0\n    tls_cert: "
                f"{folder}/x.pem\n    tls_key: {folder}/x.key")
            for text, code, words in [
                    (good, 0, ""),
                    (good.replace("x.key", "y.key"), 2, "y.key"),
                    (good.replace("x.pem", "z.pem"), 1, "z.pem"),
                    (config([("a", a, f", report_key_file: {folder}/none")]), 1, "none"),
                    (config([("a", a, f", tls: true, tls_ca: {folder}/x.key")]).replace(
                        "tls: true", "tls: on"), 1, "x.key")]:
                path = pathlib.Path(folder, "c.yaml")
                path.write_text(text)
                run = subprocess.run([os.environ["KEEL"], "route", "--check", path],
                                     capture_output=True, text=True, timeout=PATIENCE_S)
                self.assertIn(words, run.stderr)
                self.assertEqual(run.returncode == 0, code == 0, run.stderr)


class Upgrades(Case):
    def upgraded(self, k, n=1):
        """Asks for a new process; its pid once the old one has heard that it is ready."""
        k.process.send_signal(signal.SIGUSR2)
        self.assertTrue(wait_for(lambda: len(k.records("upgraded")) == n or
                                 k.records("upgrade_failed")), k.output())
        pid = int(k.records("upgraded")[-1]["pid"])
        self.addCleanup(self.end, pid)
        return pid

    def end(self, pid):
        try:
            os.kill(pid, signal.SIGTERM)
            os.kill(pid, signal.SIGTERM)
        except ProcessLookupError:
            pass

    def test_a_new_process_takes_over_and_sessions_of_the_old_one_go_on(self):
        a = self.backend(echo_tunnel)
        k = Keel(config([("a", a, "")]))
        self.addCleanup(k.log.close)
        old = self.open(k)
        lost, stop = [], threading.Event()

        def connect():
            while not stop.is_set():
                try:
                    c = k.connect()
                    if c.upgrade()[0] != 101:
                        lost.append("refused")
                    c.close()
                except (OSError, TypeError) as e:
                    lost.append(repr(e))
        thread = threading.Thread(target=connect)
        thread.start()
        self.upgraded(k)
        self.assertTrue(wait_for(lambda: len(k.records("ready")) == 2))
        self.echo(old)
        self.assertIsNone(k.process.poll())
        stop.set()
        thread.join()
        self.assertEqual(lost, [])
        # The old one may have taken the last that came before its threads heard of it.
        self.assertTrue(wait_for(lambda: k.metric("open_sessions") == 0))
        new = self.open(k)
        self.echo(new)
        self.assertEqual(k.metric("open_sessions"), 1)
        old.close()
        self.assertEqual(k.process.wait(timeout=PATIENCE_S), 0)
        self.echo(new)
        k.process.stdout.close()

    def test_a_new_process_that_cannot_start_leaves_the_old_one_as_it_was(self):
        a = self.backend(echo_tunnel)
        k = self.keel(config([("a", a, "")]))
        old = self.open(k)
        k.write(config([("a", a, ", weight: none")]))
        k.process.send_signal(signal.SIGUSR2)
        self.assertTrue(wait_for(lambda: k.records("upgrade_failed")))
        self.echo(old)
        self.echo(self.open(k))
        k.write(config([("a", a, ", report_key_file: /nowhere/key")]))
        k.process.send_signal(signal.SIGUSR2)
        self.assertTrue(wait_for(lambda: len(k.records("upgrade_failed")) == 2))
        self.assertIn("/nowhere/key", k.records("upgrade_failed")[1]["why"])
        self.echo(self.open(k))

    def test_a_stop_that_comes_with_an_upgrade_ends_no_session(self):
        a = self.backend(echo_tunnel)
        k = Keel(config([("a", a, "")]))
        self.addCleanup(k.log.close)
        old = self.open(k)
        self.upgraded(k)
        k.process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        self.echo(old)
        self.assertEqual(k.records("drain_timeout"), [])
        old.close()
        self.assertEqual(k.process.wait(timeout=PATIENCE_S), 0)
        k.process.stdout.close()

    def test_a_socket_file_stays_when_the_new_process_fails(self):
        a = self.backend(echo_tunnel)
        with tempfile.TemporaryDirectory() as folder, socket.socket() as taken:
            path = f"{folder}/s"
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            text = config([("a", a, "")]).replace(
                "listeners:\n", "listeners:\n  - listen: 127.0.0.1:0\n"
                f"  - listen: 'unix:{path}'\n")
            k = self.keel(text)
            k.write(text.replace("admin: 127.0.0.1:0",
                                 f"admin: 127.0.0.1:{taken.getsockname()[1]}"))
            k.process.send_signal(signal.SIGUSR2)
            self.assertTrue(wait_for(lambda: k.records("upgrade_failed")))
            with socket.socket(socket.AF_UNIX) as s:
                s.settimeout(PATIENCE_S)
                s.connect(path)
                self.assertEqual(Client(sock=s).upgrade()[0], 101)

    def test_a_socket_file_stays_through_an_upgrade(self):
        a = self.backend(echo_tunnel)
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/s"
            k = Keel(config([("a", a, "")]).replace(
                "listeners:\n", "listeners:\n  - listen: 127.0.0.1:0\n"
                f"  - listen: 'unix:{path}'\n"))
            self.addCleanup(k.log.close)
            self.upgraded(k)
            self.assertEqual(k.process.wait(timeout=PATIENCE_S), 0)
            with socket.socket(socket.AF_UNIX) as s:
                s.settimeout(PATIENCE_S)
                s.connect(path)
                self.assertEqual(Client(sock=s).upgrade()[0], 101)
            k.process.stdout.close()

    def test_sockets_of_systemds_activation_are_taken_by_their_address(self):
        a = self.backend(echo_tunnel)
        with socket.create_server(("127.0.0.1", 0)) as s, \
                tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as log:
            port = s.getsockname()[1]
            path = pathlib.Path(folder, "c.yaml")
            path.write_text(config([("a", a, "")], listen=f"127.0.0.1:{port}"))
            process = start_activated(path, s.fileno(), log)
            try:
                c = Client(port)
                self.assertEqual(c.upgrade()[0], 101)
                c.close()
            finally:
                process.terminate()
                self.assertEqual(process.wait(timeout=PATIENCE_S), 0)


class Services(Case):
    """What a service manager hears: the datagrams of sd_notify(3)."""

    def manager(self, name):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(s.close)
        s.settimeout(PATIENCE_S)
        s.bind("\0" + name[1:] if name[0] == "@" else name)
        return s

    def hear(self, s):
        return dict(line.split("=", 1) for line in s.recv(4096).decode().split("\n"))

    def end_well(self, process):
        self.assertEqual(process.wait(timeout=PATIENCE_S), 0)

    def test_a_manager_hears_of_the_start_reloads_upgrades_and_the_end(self):
        a = self.backend(echo_tunnel)
        with tempfile.TemporaryDirectory() as folder:
            s = self.manager(f"{folder}/notify")
            k = Keel(config([("a", a, "")]), env={"NOTIFY_SOCKET": f"{folder}/notify"})
            self.addCleanup(k.log.close)
            self.addCleanup(k.process.stdout.close)
            self.assertEqual(self.hear(s), {"READY": "1", "STATUS": "1 backends"})
            before = time.clock_gettime(time.CLOCK_MONOTONIC)
            k.post("/reload")
            said = self.hear(s)
            self.assertEqual(said["RELOADING"], "1")
            self.assertGreaterEqual(int(said["MONOTONIC_USEC"]), int(before * 1e6))
            self.assertEqual(self.hear(s)["READY"], "1")
            k.write(config([("a", a, ", weight: none")]))
            self.refused(k)
            self.assertEqual(self.hear(s)["RELOADING"], "1")
            said = self.hear(s)
            self.assertEqual(said["READY"], "1")
            self.assertIn("reload refused", said["STATUS"])
            self.assertIn("weight", said["STATUS"])
            k.write(config([("a", a, "")]))
            old = self.open(k)
            k.process.send_signal(signal.SIGUSR2)
            said = self.hear(s)
            self.assertTrue(wait_for(lambda: k.records("upgraded")), k.output())
            new = k.records("upgraded")[0]["pid"]
            self.assertEqual((said["READY"], said["MAINPID"]), ("1", str(new)))
            # The old process ends, and the service does not.
            old.close()
            self.end_well(k.process)
            self.echo(self.open(k))
            os.kill(int(new), signal.SIGTERM)
            self.assertEqual(self.hear(s)["STOPPING"], "1")
            s.settimeout(0.2)
            with self.assertRaises(TimeoutError):
                s.recv(1)

    def test_signals_right_behind_ready_are_caught(self):
        a = self.backend(echo_tunnel)
        name = f"@evenkeel-check-reload-{os.getpid()}"
        s = self.manager(name)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "c.yaml")
            path.write_text(config([("a", a, "")]))
            for _ in range(5):
                # As an old process that waits for this one: it hears of it on a pipe.
                read, write = os.pipe()
                process = subprocess.Popen(
                    [os.environ["KEEL"], "route", path], pass_fds=[write],
                    stderr=subprocess.DEVNULL,
                    env={**os.environ, "NOTIFY_SOCKET": name,
                         "EVENKEEL_READY_FD": str(write)})
                os.close(write)
                try:
                    self.assertEqual(self.hear(s)["MAINPID"], str(process.pid))
                    process.send_signal(signal.SIGHUP)
                    self.assertEqual(os.read(read, 100), b"ready")
                    process.send_signal(signal.SIGHUP)
                    self.assertEqual(self.hear(s)["RELOADING"], "1")
                    process.send_signal(signal.SIGTERM)
                    self.end_well(process)
                finally:
                    os.close(read)
                    process.kill()
                    process.wait()
                while self.hear(s).get("STOPPING") != "1":
                    pass


class Stops(Case):
    def test_who_connected_before_the_end_is_answered(self):
        """A stop at any moment: a client whose connection was made gets an answer."""
        a = self.backend(echo_tunnel)
        rng = random.Random(5)
        for turn in range(int(os.environ.get("EK_STOPS", "6"))):
            k = Keel(config([("a", a, "")], "threads: 2\nlog_sessions: off"))
            self.addCleanup(k.log.close)
            unanswered, begun = [], threading.Barrier(5)

            def come(port, unanswered, begun):
                begun.wait()
                while True:
                    try:
                        c = Client(port)
                    except OSError:
                        return
                    try:
                        if c.upgrade()[0] not in (101, 503):
                            unanswered.append("what?")
                    except (OSError, TypeError) as e:
                        unanswered.append(repr(e))
                    c.close()
            threads = [threading.Thread(target=come, args=(k.port, unanswered, begun))
                       for _ in range(4)]
            for t in threads:
                t.start()
            begun.wait()
            time.sleep(rng.random() * 0.2)
            k.process.send_signal(signal.SIGTERM)
            for t in threads:
                t.join()
            self.assertEqual(unanswered, [], f"turn {turn}:\n" + k.output())
            self.assertEqual(k.process.wait(timeout=PATIENCE_S), 0)
            k.process.stdout.close()

    def test_a_stop_does_not_reach_a_socket_that_another_process_keeps(self):
        """systemd's: who comes while this service is down is the next one's."""
        a = self.backend(echo_tunnel)
        with socket.create_server(("127.0.0.1", 0)) as s, \
                tempfile.TemporaryDirectory() as folder:
            port = s.getsockname()[1]
            path = pathlib.Path(folder, "c.yaml")
            path.write_text(config([("a", a, "")], listen=f"127.0.0.1:{port}"))
            waits = None
            for _ in range(2):
                process = start_activated(path, s.fileno(), subprocess.DEVNULL)
                c = Client(port)
                self.assertEqual(c.upgrade()[0], 101)
                c.close()
                if waits:
                    self.assertEqual(waits.head()[0], 101)
                    waits.close()
                process.terminate()
                self.assertEqual(process.wait(timeout=PATIENCE_S), 0)
                if not waits:
                    waits = Client(port)
                    waits.send("GET /ws HTTP/1.1\r\nHost: t\r\nConnection: Upgrade\r\n"
                               "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                               f"Sec-WebSocket-Key: {KEY}\r\n\r\n")


class Churn(Case):
    def test_reloads_in_a_loop_drop_no_session_and_leave_nothing(self):
        seconds = float(os.environ.get("EK_RELOAD_SECONDS", "4"))
        backends = [self.backend(echo_tunnel) for _ in range(5)]
        rng = random.Random(7)
        kept = ("k", backends[0], "")
        k = self.keel(config([kept], "threads: 2"))
        stop, failures, opened = threading.Event(), [], [0]

        def come_and_go(seed):
            r = random.Random(seed)
            while not stop.is_set():
                try:
                    c = k.connect()
                    status = c.upgrade()
                    if not status or status[0] != 101:
                        failures.append(status)
                        c.close()
                        continue
                    for _ in range(r.randrange(1, 4)):
                        c.send(b"x" * 100)
                        if c.exactly(100) != b"x" * 100:
                            failures.append("lost")
                    opened[0] += 1
                    c.close(reset=r.random() < 0.3)
                except OSError as e:
                    failures.append(repr(e))

        lasting = [self.open(k) for _ in range(8)]
        threads = [threading.Thread(target=come_and_go, args=(i,)) for i in range(4)]
        for t in threads:
            t.start()
        end, n = time.monotonic() + seconds, 0
        while time.monotonic() < end or n < 10:
            some = [(f"n{rng.randrange(4)}x{i}", b, f", weight: {rng.randrange(1, 5)}")
                    for i, b in enumerate(backends[1:]) if rng.random() < 0.5]
            policy = rng.choice(["effective_capacity", "hash", "round_robin"])
            k.write(config([kept] + some, f"threads: 2\npolicy: {policy}"))
            k.post("/reload")
            n += 1
        stop.set()
        for t in threads:
            t.join()
        self.assertEqual(failures, [])
        for client in lasting:
            self.echo(client)
        self.assertGreater(opened[0], 0)
        k.write(config([kept], "threads: 2"))
        k.post("/reload")
        self.assertTrue(wait_for(lambda: set(k.backends()) == {"k"}))


if __name__ == "__main__":
    unittest.main(verbosity=2)
