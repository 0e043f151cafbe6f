"""keel bench route: against servers that others wrote (websockets, h2), against scripted ones
that answer wrongly, and through keel route to its own backend; what one side counts the
other must have counted, too."""
import asyncio
import base64
import hashlib
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import threading
import time
import unittest

import keelkit

try:
    import h2.config
    import h2.connection
    import h2.events
    import h2.exceptions
    import h2.settings
    HAS_H2 = True
except ImportError:
    HAS_H2 = False

GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def bench(address, *args, code=0):
    """The report of a run that ends with `code`, and what it said on standard error."""
    done = keelkit.keel("bench", "route", address, "--json", *args)
    if done.returncode != code:
        raise AssertionError(f"{done.returncode}: {done.stderr}{done.stdout}")
    return json.loads(done.stdout), done.stderr


class Process:
    """keel with these words, listening; the port is read from what it prints."""

    def __init__(self, *words, stream="stdout"):
        self.process = subprocess.Popen(
            [keelkit.need_keel(), *map(str, words)], text=True,
            stdout=subprocess.PIPE if stream == "stdout" else subprocess.DEVNULL,
            stderr=subprocess.PIPE if stream == "stderr" else subprocess.DEVNULL)
        pipe = getattr(self.process, stream)
        line = pipe.readline()
        self.port = int(re.search(r"127\.0\.0\.1:(\d+)", line).group(1))
        # What follows must not fill the pipe.
        threading.Thread(target=pipe.read, daemon=True).start()
        self.address = f"127.0.0.1:{self.port}"

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(keelkit.PATIENCE_S)
        finally:
            self.process.kill()
            self.process.wait()


class Scripted:
    """A server of a function a connection (socket, number), each in its thread."""

    def __init__(self, serve):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        self.n = 0
        self.acceptor = threading.Thread(target=self.accept, args=(serve,), daemon=True)
        self.acceptor.start()

    def accept(self, serve):
        def guarded(sock, number):
            with sock:
                try:
                    serve(sock, number)
                except OSError:
                    pass
        while True:
            try:
                sock = self.listener.accept()[0]
            except OSError:
                return
            self.n += 1
            threading.Thread(target=guarded, args=(sock, self.n), daemon=True).start()

    def close(self):
        # Once nobody accepts: it would be from who has the descriptor's number next.
        self.listener.shutdown(socket.SHUT_RDWR)
        self.acceptor.join()
        self.listener.close()


def read_request(sock):
    text = b""
    while b"\r\n\r\n" not in text:
        data = sock.recv(4096)
        if not data:
            raise OSError("closed")
        text += data
    return text.decode()


def answer(sock, key, **changes):
    accept = base64.b64encode(hashlib.sha1((key + GUID).encode()).digest()).decode()
    fields = {"status": "101 Switching Protocols", "accept": accept, "upgrade": "websocket",
              "more": b""} | changes
    sock.sendall((f"HTTP/1.1 {fields['status']}\r\nUpgrade: {fields['upgrade']}\r\n"
                  f"Connection: Upgrade\r\nSec-WebSocket-Accept: {fields['accept']}\r\n\r\n"
                  ).encode() + fields["more"])


def handshake(sock, **changes):
    key = re.search(r"Sec-WebSocket-Key: (\S+)", read_request(sock)).group(1)
    answer(sock, key, **changes)


def read_frame(sock):
    """The unmasked payload of a client's frame below 64 KiB."""
    def exactly(n):
        data = b""
        while len(data) < n:
            more = sock.recv(n - len(data))
            if not more:
                raise OSError("closed")
            data += more
        return data
    n = exactly(2)[1] & 127
    if n == 126:
        n = int.from_bytes(exactly(2), "big")
    mask = exactly(4)
    return bytes(b ^ mask[i % 4] for i, b in enumerate(exactly(n)))


def frame(payload, opcode=2):
    n = len(payload)
    head = bytes([0x80 | opcode, n]) if n < 126 else bytes([0x80 | opcode, 126]) + n.to_bytes(2, "big")
    return head + payload


def until(fact):
    """Whether it comes true, however slow the threads of this process are."""
    end = time.monotonic() + keelkit.PATIENCE_S
    while not fact() and time.monotonic() < end:
        time.sleep(0.01)
    return fact()


def until_closed(sock):
    while sock.recv(4096):
        pass


class Wrong(unittest.TestCase):
    """What a server does wrong is seen and counted, each kind by its sentence."""

    def serve(self, function):
        server = Scripted(function)
        self.addCleanup(server.close)
        return server

    def refused(self, says, **changes):
        def serve(sock, _):
            handshake(sock, **changes)
            until_closed(sock)
        report, error = bench(self.serve(serve).address, "-n", 3, "-d", "50ms", code=1)
        self.assertEqual((report["opened"], report["failed"]), (0, 3))
        self.assertEqual(sum(e["count"] for e in report["errors"]), 3)
        for e in report["errors"]:
            self.assertIn(says, e["text"])
        self.assertIn("no session was opened", error)

    def test_a_wrong_accept_is_no_handshake(self):
        self.refused("Sec-WebSocket-Accept", accept="AAAAAAAAAAAAAAAAAAAAAAAAAAA=")

    def test_the_accept_of_another_key_is_no_handshake(self):
        self.refused("Sec-WebSocket-Accept", accept="s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")

    def test_another_status_is_told(self):
        self.refused("status 503", status="503 Service Unavailable")

    def test_an_upgrade_to_something_else_is_no_handshake(self):
        self.refused("not HTTP", upgrade="h2c")

    def test_bytes_that_nobody_asked_for_are_no_echo(self):
        self.refused("not what was sent", more=frame(bytes(640)))

    def test_a_server_that_says_nothing_is_given_up(self):
        report, _ = bench(self.serve(lambda sock, _: until_closed(sock)).address, "-n", 4,
                          "--timeout", "200ms", "-d", "50ms", code=1)
        self.assertEqual(report["errors"], [{"text": "not answered in time", "count": 4}])

    def test_nobody_there_is_told(self):
        held = socket.socket()  # bound, and it does not listen
        self.addCleanup(held.close)
        held.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{held.getsockname()[1]}"
        for mode in ("idle", "churn"):
            report, _ = bench(address, "-n", 4, "--mode", mode, "-d", "100ms", code=1)
            self.assertGreaterEqual(report["failed"], 4)
            self.assertIn("Connection refused", report["errors"][0]["text"])

    def speak(self, change, *args, code=0):
        """A server that gives each frame through change(payload, number of the frame)."""
        def serve(sock, number):
            handshake(sock)
            for k in range(1 << 30):
                sock.sendall(change(read_frame(sock), k, number))
        return bench(self.serve(serve).address, "--mode", "speaking", "-n", 4, "--settle",
                     "0ms", "-d", "2s", *args, code=code)[0]

    def test_a_changed_byte_a_lost_frame_and_a_swapped_one_are_wrong(self):
        def flip(payload, k, number):
            return frame(payload[:-1] + bytes([payload[-1] ^ (number == 1 and k == 3)]))
        kept = {}

        def lose(payload, k, number):
            return b"" if number == 1 and k == 3 else frame(payload)

        def swap(payload, k, number):
            if number != 1 or k not in (3, 4):
                return frame(payload)
            kept[k] = payload
            return b"" if k == 3 else frame(kept[4]) + frame(kept[3])
        for change in (flip, lose, swap):
            with self.subTest(change.__name__):
                report = self.speak(change)
                self.assertEqual((report["wrong"], report["dropped"], report["open"]), (1, 1, 3))
                self.assertLess(report["echoed"], report["sent"])

    def test_a_frame_that_is_masked_or_text_is_wrong(self):
        def masked(payload, _, number):
            if number != 2:
                return frame(payload)
            head = frame(payload)[:4]
            return bytes([head[0], head[1] | 128]) + head[2:] + bytes(4) + payload

        def text(payload, _, number):
            return frame(payload, opcode=1 if number == 2 else 2)
        for change in (masked, text):
            with self.subTest(change.__name__):
                self.assertEqual(self.speak(change)["dropped"], 1)

    def test_a_server_that_leaves_is_counted_and_others_go_on(self):
        def serve(sock, number):
            handshake(sock)
            if number <= 2:
                for _ in range(2):
                    sock.sendall(frame(read_frame(sock)))
                if number == 2:
                    sock.sendall(frame(b"\x03\xe9", opcode=8))
                return
            while True:
                sock.sendall(frame(read_frame(sock)))
        report, _ = bench(self.serve(serve).address, "--mode", "speaking", "-n", 5,
                          "-d", "2s")
        self.assertEqual((report["opened"], report["dropped"], report["open"]), (5, 2, 3))

    def test_all_sessions_lost_is_a_failure(self):
        def serve(sock, _):
            handshake(sock)
            time.sleep(1.5)  # behind the opening
        _, error = bench(self.serve(serve).address, "-n", 3, "-d", "6s", code=1)
        self.assertIn("all sessions were lost", error)

    def test_pings_are_answered(self):
        got = []

        def serve(sock, _):
            handshake(sock, more=frame(b"are you there", opcode=9))
            got.append(read_frame(sock))
            until_closed(sock)
        bench(self.serve(serve).address, "-n", 1, "-d", "1s")
        self.assertTrue(until(lambda: got))
        self.assertEqual(got, [b"are you there"])


class Use(unittest.TestCase):
    def usage(self, *args):
        done = keelkit.keel("bench", "route", *args)
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        return done.stderr

    def test_settings_that_mean_nothing_are_refused(self):
        self.assertIn("--mode churn", self.usage("127.0.0.1:1", "-p", "http2"))
        self.assertIn("--warm-up", self.usage("127.0.0.1:1", "-n", 3, "--warm-up", 4))
        self.assertIn("--path", self.usage("127.0.0.1:1", "--path", "x"))
        self.assertIn("--pid", self.usage("127.0.0.1:1", "--pid", "1,x"))
        self.assertIn("HOST:PORT", self.usage("nowhere"))

    def test_too_few_descriptors_are_told_before_anything_is_opened(self):
        done = subprocess.run(["bash", "-c", 'ulimit -n 200; exec "$0" bench route 127.0.0.1:1 -n 500',
                               keelkit.need_keel()], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("564 descriptors, the limit is 200", done.stderr)

    def test_a_process_that_is_not_there_is_told(self):
        backend = Process("bench", "route", "--backend", "127.0.0.1:0")
        self.addCleanup(backend.stop)
        done = keelkit.keel("bench", "route", backend.address, "--pid", 1 << 22)
        self.assertEqual(done.returncode, 1)
        self.assertIn("has ended", done.stderr)

    def test_ctrl_c_ends_a_run_and_prints_it(self):
        backend = Process("bench", "route", "--backend", "127.0.0.1:0")
        self.addCleanup(backend.stop)
        run = subprocess.Popen([keelkit.need_keel(), "bench", "route", backend.address, "--json",
                                "-m", "speaking", "-d", "10min"], stdout=subprocess.PIPE, text=True)
        self.addCleanup(run.kill)
        # It has caught the signal by the time its connections are there.
        while f":{backend.port:04X}" not in pathlib.Path("/proc/net/tcp").read_text() or \
                os.readlink(f"/proc/{run.pid}/exe") != os.path.realpath(keelkit.need_keel()) or \
                len(os.listdir(f"/proc/{run.pid}/fd")) < 50:
            time.sleep(0.05)
        run.send_signal(signal.SIGINT)
        report = json.loads(run.communicate(timeout=keelkit.PATIENCE_S)[0])
        self.assertEqual(run.returncode, 130)
        self.assertEqual(report["mode"], "speaking")


class WebSockets(unittest.TestCase):
    """Python's websockets on the other side."""

    @classmethod
    def setUpClass(cls):
        try:
            from websockets.asyncio.server import serve
            from websockets.exceptions import ConnectionClosed
        except ImportError:
            raise unittest.SkipTest("the Python package websockets is not installed")
        cls.n_sessions = cls.n_frames = 0

        async def echo(ws):
            cls.n_sessions += 1
            try:
                async for message in ws:
                    cls.n_frames += 1
                    await ws.send(message)
            except ConnectionClosed:
                pass  # it leaves without a close frame

        async def main():
            async with serve(echo, "127.0.0.1", 0) as server:
                cls.address = "127.0.0.1:%d" % server.sockets[0].getsockname()[1]
                cls.loop = asyncio.get_running_loop()
                cls.stop = cls.loop.create_future()
                ready.set()
                await cls.stop
        ready = threading.Event()
        cls.thread = threading.Thread(target=asyncio.run, args=(main(),))
        cls.thread.start()
        ready.wait(keelkit.PATIENCE_S)

    @classmethod
    def tearDownClass(cls):
        cls.loop.call_soon_threadsafe(cls.stop.set_result, None)
        cls.thread.join()

    def setUp(self):
        type(self).n_sessions = type(self).n_frames = 0

    def test_idle_sessions_are_held(self):
        report, _ = bench(self.address, "-n", 40, "-d", "100ms")
        self.assertEqual((report["opened"], report["open"], report["failed"]), (40, 40, 0))
        # A handler begins behind the answer that the client counts.
        self.assertTrue(until(lambda: self.n_sessions >= 40))
        self.assertEqual(self.n_sessions, 40)
        self.assertEqual(report["opening_us"]["count"], 40)

    def test_frames_of_any_size_come_back(self):
        for size in (24, 125, 126, 640, 65535, 65536):
            report, _ = bench(self.address, "-m", "speaking", "-n", 3, "-b", size, "-d", "1s",
                              "--settle", "50ms", "-i", "50ms")
            self.assertEqual((report["wrong"], report["dropped"]), (0, 0), size)
            self.assertGreater(report["echoed"], 0)

    def test_the_frames_that_are_counted_are_those_that_were_due(self):
        report, _ = bench(self.address, "-m", "speaking", "-n", 10, "-d", "1s", "--settle", "0ms")
        # 10 sessions, 50 a second each; the clock of the span is in milliseconds
        self.assertAlmostEqual(report["sent"] + report["blocked"], 500 * report["span_s"], delta=12)
        self.assertTrue(until(lambda: self.n_frames >= report["sent"]))
        self.assertEqual(report["late_us"]["count"], report["sent"])

    def test_in_a_closed_loop_each_echo_sends_the_next_frame(self):
        report, _ = bench(self.address, "-m", "speaking", "-n", 5, "-d", "2s", "-i", "0ms",
                          "--settle", "0ms")
        self.assertGreater(report["echoed"], 5)
        self.assertLessEqual(report["sent"] - report["echoed"], 5)

    def test_churn_opens_what_the_server_saw(self):
        report, _ = bench(self.address, "-m", "churn", "-n", 4, "-d", "2s", "--settle", "0ms")
        self.assertGreater(report["opened"], 4)
        self.assertTrue(until(lambda: self.n_sessions >= report["opened"]))
        self.assertEqual(report["failed"], 0)


@unittest.skipUnless(HAS_H2, "the Python package h2 is not installed")
class Http2(unittest.TestCase):
    """A server of Python's h2, which answers as each test says."""

    def serve(self, on_request):
        def one(sock, _):
            conn = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
            conn.initiate_connection()
            sock.sendall(conn.data_to_send())
            while data := sock.recv(65536):
                for event in conn.receive_data(data):
                    if isinstance(event, h2.events.DataReceived):
                        conn.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                    try:
                        on_request(conn, event, h2.events)
                    except h2.exceptions.StreamClosedError:
                        pass  # reset by what came in the same read
                sock.sendall(conn.data_to_send())
        server = Scripted(one)
        self.addCleanup(server.close)
        return server.address

    @staticmethod
    def grpc(conn, event, events, status="0", cut=None):
        if isinstance(event, events.RequestReceived):
            conn.send_headers(event.stream_id, [(":status", "200"), ("content-type", "application/grpc")])
        elif isinstance(event, events.DataReceived) and event.data:
            data = event.data if cut is None else cut(event.data)
            for i in range(0, len(data), 100):  # in parts
                conn.send_data(event.stream_id, data[i:i + 100])
        if isinstance(event, events.StreamEnded):
            conn.send_headers(event.stream_id, [("grpc-status", status)], end_stream=True)

    def test_grpc_streams_speak_and_end(self):
        address = self.serve(self.grpc)
        idle, _ = bench(address, "-p", "grpc", "-n", 20, "-c", 2, "-d", "50ms")
        self.assertEqual((idle["opened"], idle["open"]), (20, 20))
        speaking, _ = bench(address, "-p", "grpc", "-m", "speaking", "-n", 6, "-c", 2, "-d", "1s",
                            "-i", "50ms")
        self.assertEqual((speaking["wrong"], speaking["dropped"]), (0, 0))
        self.assertGreater(speaking["echoed"], 0)
        churn, _ = bench(address, "-p", "grpc", "-m", "churn", "-n", 4, "-c", 2, "-d", "2s",
                         "--settle", "0ms")
        self.assertGreater(churn["opened"], 4)
        self.assertEqual(churn["failed"] + churn["dropped"], 0)

    def test_a_changed_message_is_wrong(self):
        address = self.serve(lambda c, e, t: self.grpc(c, e, t, cut=lambda d: d[:-1] + b"?"))
        report, _ = bench(address, "-p", "grpc", "-n", 3, "-c", 1, "-d", "50ms", code=1)
        self.assertEqual((report["wrong"], report["failed"]), (3, 3))

    def test_a_status_of_grpc_is_told(self):
        address = self.serve(lambda c, e, t: self.grpc(c, e, t, status="8"))
        report, _ = bench(address, "-p", "grpc", "-m", "churn", "-n", 2, "-c", 1, "-d", "2s",
                          "--settle", "0ms", code=1)
        self.assertEqual(report["opened"], 0)
        self.assertEqual(report["errors"][0]["text"], "ended with grpc-status 8")

    def test_requests_are_counted_by_their_status(self):
        for status in ("200", "404"):
            def on_request(conn, event, events, status=status):
                if isinstance(event, events.RequestReceived):
                    conn.send_headers(event.stream_id, [(":status", status)])
                    conn.send_data(event.stream_id, b"x" * 128, end_stream=True)
            good = status == "200"
            report, _ = bench(self.serve(on_request), "-p", "http2", "-m", "churn", "-n", 8, "-c", 2,
                              "-d", "2s", "--settle", "0ms", code=0 if good else 1)
            self.assertEqual(report["opened"] > 8, good)
            self.assertEqual(report["failed"] == 0, good)

    def test_streams_over_the_servers_limit_wait_and_then_fail(self):
        def on_request(conn, event, events):
            if isinstance(event, events.RemoteSettingsChanged):
                conn.update_settings({h2.settings.SettingCodes.MAX_CONCURRENT_STREAMS: 3})
            self.grpc(conn, event, events)
        report, _ = bench(self.serve(on_request), "-p", "grpc", "-n", 6, "-c", 1, "-r", 2,
                          "--timeout", "3s", "-d", "50ms")
        self.assertEqual((report["opened"], report["failed"]), (3, 3))
        self.assertIn("no more streams", report["errors"][0]["text"])


class Route(unittest.TestCase):
    """Through keel route to keel bench route --backend."""

    @classmethod
    def setUpClass(cls):
        cls.backend = Process("bench", "route", "--backend", "127.0.0.1:0")
        cls.proxies = {
            protocol: Process("route", "--listen", "127.0.0.1:0", "--admin", "off", "--backend",
                              f"{cls.backend.address},protocol={protocol}", stream="stderr")
            for protocol in ("http1", "http2")}

    @classmethod
    def tearDownClass(cls):
        codes = [p.stop() for p in (*cls.proxies.values(), cls.backend)]
        assert codes == [0, 0, 0], codes

    def test_websockets_speak_through_it_and_memory_and_cpu_are_told(self):
        proxy = self.proxies["http1"]
        report, _ = bench(proxy.address, "-m", "speaking", "-n", 30, "-d", "500ms",
                          "--pid", proxy.process.pid)
        self.assertEqual((report["opened"], report["wrong"], report["dropped"]), (30, 0, 0))
        self.assertEqual(report["sent"], report["echoed"])
        self.assertEqual(report["processes"]["count"], 1)
        self.assertGreater(report["processes"]["opened_bytes"], 1 << 18)

    def test_memory_before_is_that_with_the_warm_sessions_open(self):
        proxy = self.proxies["http1"]
        report, _ = bench(proxy.address, "-n", 60, "--warm-up", 20, "-d", "50ms", "--pid",
                          proxy.process.pid)
        self.assertEqual(report["opened"], 60)
        use = report["processes"]
        self.assertGreater(use["before_bytes"], 1 << 18)
        self.assertAlmostEqual(use["opened_bytes_each"] * 40,
                               use["opened_bytes"] - use["before_bytes"], delta=40)

    def test_every_protocol_and_mode_runs_through_it(self):
        for protocol, mode in (("websocket", "churn"), ("grpc", "idle"), ("grpc", "speaking"),
                               ("grpc", "churn"), ("http2", "churn")):
            proxy = self.proxies["http1" if protocol == "websocket" else "http2"]
            report, _ = bench(proxy.address, "-p", protocol, "-m", mode, "-n", 20, "-c", 4,
                              "-d", "1s", "--settle", "50ms")
            with self.subTest(f"{protocol} {mode}"):
                self.assertGreaterEqual(report["opened"], 20 if mode != "churn" else 1)
                self.assertEqual(report["failed"] + report["dropped"] + report["wrong"], 0)

    def test_a_pace_that_nobody_can_keep_ends_with_its_time(self):
        report, _ = bench(self.backend.address, "-m", "speaking", "-n", 300, "-b", 65536, "-i",
                          "1ms", "-d", "100ms", "--settle", "0ms")
        self.assertEqual((report["opened"], report["wrong"], report["dropped"]), (300, 0, 0))

    def test_the_table_names_what_was_measured(self):
        done = keelkit.keel("bench", "route", self.backend.address, "-m", "speaking", "-n", 5,
                            "-d", "200ms", "--settle", "0ms")
        self.assertEqual(done.returncode, 0, done.stderr)
        for word in ("opened      5 in", "0 wrong", "round trip", "lateness", "generator"):
            self.assertIn(word, done.stdout)

    def test_the_backend_answers_curl_in_both_versions(self):
        curl = keelkit.need_program("curl")
        for version in ("--http1.1", "--http2-prior-knowledge"):
            done = subprocess.run([curl, "-s", version, f"http://{self.backend.address}/"],
                                  capture_output=True)
            self.assertEqual(len(done.stdout), 128, version)


if __name__ == "__main__":
    unittest.main()
