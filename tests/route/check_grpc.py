"""keel route's HTTP/2: grpcio's clients and servers through it, streams balanced one by
one, codes and trailers unchanged, WebSockets across versions of HTTP."""
import asyncio
import pathlib
import struct
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from concurrent import futures

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "net"))
from proxykit import (PATIENCE_S, Backend, Proxy, dead_port, echo_tunnel,  # noqa: E402
                      need_probe, wait_for)
import keelkit  # noqa: E402

try:
    import grpc
    import h2.connection
except ImportError:
    keelkit.skip("the Python packages grpcio and h2 are not installed")
from check_h2 import Client as H2Client  # noqa: E402
from check_h2 import Probe, Raw, frame  # noqa: E402


class Echo:
    """A grpcio server: /t.T/* by name, without generated code."""

    def __init__(self, name, max_streams=None, credentials=None):
        self.name, self.open, self.total = name, 0, 0
        self.ended = []
        self.lock = threading.Lock()
        options = [("grpc.so_reuseport", 0)]
        if max_streams:
            options.append(("grpc.max_concurrent_streams", max_streams))
        self.server = grpc.server(futures.ThreadPoolExecutor(300), options=options)
        stream = grpc.stream_stream_rpc_method_handler
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.T", {
            "Unary": grpc.unary_unary_rpc_method_handler(self.unary),
            "Chat": stream(self.chat), "Fail": stream(self.fail),
            "Flood": stream(self.flood), "Swallow": stream(self.swallow),
            "Early": stream(self.early), "Mute": stream(self.mute), "Collect": stream(self.collect)}),))
        self.port = (self.server.add_secure_port("127.0.0.1:0", credentials) if credentials
                     else self.server.add_insecure_port("127.0.0.1:0"))
        self.server.start()

    def close(self):
        self.server.stop(0).wait(PATIENCE_S)

    def begin(self, ctx):
        with self.lock:
            self.open += 1
            self.total += 1

        def end():
            with self.lock:
                self.open -= 1
        ctx.add_callback(end)
        ctx.send_initial_metadata((("x-backend", self.name),))

    def unary(self, request, ctx):
        self.begin(ctx)
        md = dict(ctx.invocation_metadata())
        ctx.set_trailing_metadata((("x-said", md.get("x-say", "")),
                                   ("x-bytes-bin", b"\x00\xff")))
        if request == b"slow":
            time.sleep(3)
        if request == b"missing":
            ctx.abort(grpc.StatusCode.NOT_FOUND, "no such thing: 100% \u00fcber")
        return request

    def chat(self, it, ctx):
        self.begin(ctx)
        yield from it

    def fail(self, it, ctx):
        ctx.abort(grpc.StatusCode.PERMISSION_DENIED, "never")  # trailers alone
        yield b""

    def early(self, it, ctx):
        self.begin(ctx)
        yield b"enough"  # and the end, whatever the client still says

    def mute(self, it, ctx):
        """No head, no message, until the client goes."""
        gone = threading.Event()
        if ctx.add_callback(gone.set):
            gone.wait(PATIENCE_S)
        yield b""

    def flood(self, it, ctx):
        self.begin(ctx)
        for _ in range(2000):
            yield b"x" * 65536

    def swallow(self, it, ctx):
        self.begin(ctx)
        time.sleep(1.5)  # reads nothing meanwhile
        yield str(sum(len(m) for m in it)).encode()

    def collect(self, it, ctx):
        self.begin(ctx)
        yield b"|".join(it)


class Case(unittest.TestCase):
    def assert_flat(self, kb, limit):
        if not keelkit.is_sanitized(need_probe()):
            self.assertLess(kb, limit)

    def setup_proxy(self, n=1, max_streams=None, *words, **settings):
        self.servers = [Echo(f"s{i}", max_streams) for i in range(n)]
        for s in self.servers:
            self.addCleanup(s.close)
        return self.proxy([s.port for s in self.servers], "h2=1", *words, **settings)

    def proxy(self, backends, *words, **settings):
        proxy = Proxy(backends, *words, **settings)

        def end():
            with proxy:
                self.assertTrue(wait_for(lambda: proxy.metric("placements") == 0),
                                "placements were not given back:\n" + proxy.output())
        self.addCleanup(end)
        self.process, self.end = proxy, end
        return proxy

    def forget(self, proxy):
        """It has ended: there is nobody to ask for its ledger."""
        self._cleanups = [c for c in self._cleanups if c[0] is not self.end]

    def channel(self, proxy, **options):
        channel = grpc.insecure_channel(
            f"127.0.0.1:{proxy.port}", options=[("grpc.use_local_subchannel_pool", 1),
                                                ("grpc.enable_retries", 0),
                                                *options.items()])
        self.addCleanup(channel.close)
        return channel


class Grpc(Case):
    def test_unary_calls_carry_metadata_and_trailers(self):
        channel = self.channel(self.setup_proxy())
        unary = channel.unary_unary("/t.T/Unary")
        for body in (b"", b"hi", b"x" * 1000000):
            got, call = unary.with_call(body, metadata=(("x-say", "words"),), timeout=PATIENCE_S)
            self.assertEqual(got, body)
            self.assertEqual(dict(call.initial_metadata())["x-backend"], "s0")
            trailers = dict(call.trailing_metadata())
            self.assertEqual((trailers["x-said"], trailers["x-bytes-bin"]),
                             ("words", b"\x00\xff"))

    def test_errors_come_through_as_they_were(self):
        channel = self.channel(self.setup_proxy())
        with self.assertRaises(grpc.RpcError) as e:
            channel.unary_unary("/t.T/Unary")(b"missing", timeout=PATIENCE_S)
        self.assertEqual((e.exception.code(), e.exception.details()),
                         (grpc.StatusCode.NOT_FOUND, "no such thing: 100% \u00fcber"))
        with self.assertRaises(grpc.RpcError) as e:
            list(channel.stream_stream("/t.T/Fail")(iter(()), timeout=PATIENCE_S))
        self.assertEqual(e.exception.code(), grpc.StatusCode.PERMISSION_DENIED)
        with self.assertRaises(grpc.RpcError) as e:
            channel.unary_unary("/t.T/Nothing")(b"", timeout=PATIENCE_S)
        self.assertEqual(e.exception.code(), grpc.StatusCode.UNIMPLEMENTED)

    def test_a_bidirectional_stream_is_one_and_half_closes(self):
        channel = self.channel(self.setup_proxy())
        said = [str(i).encode() * (i * 50) for i in range(60)]
        got = list(channel.stream_stream("/t.T/Chat")(iter(said), timeout=PATIENCE_S))
        self.assertEqual(got, said)
        got = list(channel.stream_stream("/t.T/Collect")(iter([b"a", b"b"]), timeout=PATIENCE_S))
        self.assertEqual(got, [b"a|b"])

    def test_an_early_answer_ends_the_stream_with_ok(self):
        channel = self.channel(self.setup_proxy())
        hold = threading.Event()
        self.addCleanup(hold.set)

        def talk():
            yield b"one"
            hold.wait(PATIENCE_S)
        got = list(channel.stream_stream("/t.T/Early")(talk(), timeout=PATIENCE_S))
        self.assertEqual(got, [b"enough"])

    def test_deadlines_and_cancellations_reach_the_backend(self):
        channel = self.channel(self.setup_proxy())
        with self.assertRaises(grpc.RpcError) as e:
            channel.unary_unary("/t.T/Unary")(b"slow", timeout=0.5)
        self.assertEqual(e.exception.code(), grpc.StatusCode.DEADLINE_EXCEEDED)
        hold = threading.Event()

        def talk():
            yield b"one"
            hold.wait(PATIENCE_S)
        call = channel.stream_stream("/t.T/Chat")(talk(), timeout=PATIENCE_S)
        self.assertEqual(next(call), b"one")
        self.assertTrue(wait_for(lambda: self.servers[0].open == 1))
        call.cancel()
        hold.set()
        self.assertTrue(wait_for(lambda: self.servers[0].open == 0))

    def test_two_hundred_streams_of_one_connection_spread_evenly(self):
        proxy = self.setup_proxy(4)
        channel = self.channel(proxy)
        hold = threading.Event()
        self.addCleanup(hold.set)

        def talk():
            yield b"one"
            hold.wait(PATIENCE_S)
        calls = [channel.stream_stream("/t.T/Chat")(talk(), timeout=PATIENCE_S)
                 for _ in range(200)]
        for call in calls:
            self.assertEqual(next(call), b"one")
        self.assertEqual([s.open for s in self.servers], [50] * 4)
        for call in calls:
            call.cancel()
        hold.set()
        self.assertTrue(wait_for(lambda: sum(s.open for s in self.servers) == 0))

    def test_a_backends_stream_limit_opens_another_connection(self):
        proxy = self.setup_proxy(1, max_streams=5)
        channel = self.channel(proxy)
        hold = threading.Event()
        self.addCleanup(hold.set)
        # The limit is known once its SETTINGS came.
        channel.unary_unary("/t.T/Unary")(b"", timeout=PATIENCE_S)

        def talk():
            yield b"one"
            hold.wait(PATIENCE_S)
        calls = [channel.stream_stream("/t.T/Chat")(talk(), timeout=PATIENCE_S) for _ in range(23)]
        for call in calls:
            self.assertEqual(next(call), b"one")
        self.assertEqual(self.servers[0].open, 23)
        self.assertGreaterEqual(proxy.metric("connects_total"), 5)
        hold.set()

    def test_a_slow_reader_stops_its_writer_and_memory_stays(self):
        proxy = self.setup_proxy()
        channel = self.channel(proxy)
        before = proxy.anon_kb()
        call = channel.stream_stream("/t.T/Flood")(iter(()), timeout=PATIENCE_S)
        for _ in range(5):
            next(call)
        time.sleep(1)
        # 125 MiB wait at the backend; grpcio's client reads ahead a little.
        self.assert_flat(proxy.anon_kb() - before, 2500)
        call.cancel()

    def test_a_slow_backend_stops_its_client_and_memory_stays(self):
        proxy = self.setup_proxy()
        channel = self.channel(proxy)
        before, peak = proxy.anon_kb(), [0]
        pieces = iter([b"x" * 65536] * 800)
        call = channel.stream_stream("/t.T/Swallow")(pieces, timeout=PATIENCE_S)
        time.sleep(1)
        peak[0] = proxy.anon_kb() - before
        self.assertEqual(next(call), str(800 * 65536).encode())
        self.assert_flat(peak[0], 2500)

    def test_a_refusal_is_unavailable_with_pushback(self):
        proxy = self.setup_proxy(1, None, "max=1", queue_timeout_us=0)
        channel = self.channel(proxy)
        hold = threading.Event()
        self.addCleanup(hold.set)

        def talk():
            yield b"one"
            hold.wait(PATIENCE_S)
        call = channel.stream_stream("/t.T/Chat")(talk(), timeout=PATIENCE_S)
        next(call)
        with self.assertRaises(grpc.RpcError) as e:
            channel.unary_unary("/t.T/Unary")(b"x", timeout=PATIENCE_S)
        self.assertEqual(e.exception.code(), grpc.StatusCode.UNAVAILABLE)
        trailers = dict(e.exception.trailing_metadata() or ())
        self.assertGreater(int(trailers["grpc-retry-pushback-ms"]), 0)
        call.cancel()
        hold.set()

    def test_a_backend_that_is_not_there_is_unavailable(self):
        proxy = self.proxy([dead_port(self)], "h2=1")
        with self.assertRaises(grpc.RpcError) as e:
            self.channel(proxy).unary_unary("/t.T/Unary")(b"x", timeout=PATIENCE_S)
        self.assertEqual(e.exception.code(), grpc.StatusCode.UNAVAILABLE)

    def test_a_backend_that_dies_is_unavailable_and_others_take_over(self):
        proxy = self.setup_proxy(2)
        channel = self.channel(proxy)
        hold = threading.Event()
        self.addCleanup(hold.set)

        def talk():
            yield b"one"
            hold.wait(PATIENCE_S)
        calls = [channel.stream_stream("/t.T/Chat")(talk(), timeout=PATIENCE_S) for _ in range(6)]
        for call in calls:
            next(call)
        self.servers[0].close()
        codes = []
        for call in calls:
            if dict(call.initial_metadata())["x-backend"] == "s0":
                with self.assertRaises(grpc.RpcError) as e:
                    next(call)
                codes.append(e.exception.code())
        self.assertEqual(len(codes), 3)
        for _ in range(10):
            got, call = channel.unary_unary("/t.T/Unary").with_call(b"x", timeout=PATIENCE_S)
            self.assertEqual(dict(call.initial_metadata())["x-backend"], "s1")
        for call in calls:
            call.cancel()
        hold.set()

    def talk_and_hold(self, channel, method):
        hold = threading.Event()
        self.addCleanup(hold.set)

        def talk():
            yield b"one"
            hold.wait(PATIENCE_S)
        return channel.stream_stream(f"/t.T/{method}")(talk(), timeout=PATIENCE_S)

    def assert_unavailable(self, call, details):
        with self.assertRaises(grpc.RpcError) as e:
            next(call)
        self.assertEqual((e.exception.code(), e.exception.details()),
                         (grpc.StatusCode.UNAVAILABLE, details))

    def test_a_stream_at_its_greatest_age_is_unavailable(self):
        channel = self.channel(self.setup_proxy(max_age_us=3000000))
        call = self.talk_and_hold(channel, "Chat")
        self.assertEqual(next(call), b"one")
        self.assert_unavailable(call, "the stream reached its greatest age")
        self.assertTrue(wait_for(lambda: self.servers[0].open == 0))

    def test_a_stream_at_its_greatest_age_before_its_head_is_unavailable(self):
        call = self.talk_and_hold(self.channel(self.setup_proxy(max_age_us=3000000)),
                                  "Mute")
        self.assert_unavailable(call, "the session reached its greatest age")

    def test_streams_at_the_drains_deadline_are_unavailable(self):
        proxy = self.setup_proxy(drain_us=500000)
        channel = self.channel(proxy)
        calls = [self.talk_and_hold(channel, m) for m in ("Chat", "Mute")]
        self.assertEqual(next(calls[0]), b"one")
        self.assertTrue(wait_for(lambda: proxy.metric("open_sessions") == 2))
        proxy.process.terminate()
        for call in calls:
            self.assert_unavailable(call, "the proxy is shutting down")
        self.assertEqual(proxy.process.wait(PATIENCE_S), 0)
        self.forget(proxy)

    def test_aio_streams_idle_cost_little_memory(self):
        proxy = self.setup_proxy()

        async def main():
            async with grpc.aio.insecure_channel(f"127.0.0.1:{proxy.port}") as channel:
                async def one():
                    call = channel.stream_stream("/t.T/Chat")()
                    await call.write(b"x" * 640)
                    await call.read()
                    return call
                calls = [await one() for _ in range(40)]
                before = proxy.anon_kb()
                calls += [await one() for _ in range(200)]
                per_stream = (proxy.anon_kb() - before) / 200
                for call in calls:
                    call.cancel()
                return per_stream
        per_stream = asyncio.run(main())
        print(f"{per_stream:.2f} kB an idle stream")
        self.assert_flat(per_stream, 3.1)


class Codes(Case):
    """Frames against HTTP/2 ends of which every byte is known."""

    def start(self):
        self.probe = Probe()
        self.addCleanup(self.probe.close)
        return self.proxy([self.probe.port], "h2=1")

    def test_codes_of_resets_pass_unchanged_both_ways(self):
        proxy = self.start()
        c = H2Client(proxy.port)
        self.addCleanup(c.close)
        self.assertEqual(c.wait(c.request("/reset", end=False))["reset"], 11)
        stream = c.request("/hold", b"x", method="POST", end=False)
        self.assertTrue(wait_for(lambda: self.probe.counts()["held"] == 1))
        c.conn.reset_stream(stream, 8)
        c.flush()
        self.assertTrue(wait_for(lambda: self.probe.counts()["held"] == 0))

    def test_an_early_answer_is_whole_and_then_reset_no_error(self):
        c = H2Client(self.start().port)
        self.addCleanup(c.close)
        stream = c.request("/early", method="POST", end=False)
        c.until(lambda: c.streams[stream]["reset"] is not None)
        s = c.streams[stream]
        self.assertEqual((s["head"][":status"], s["ended"], s["reset"]), ("200", True, 0))

    def test_trailers_alone_stay_one_head_and_bodies_are_whole(self):
        c = H2Client(self.start().port)
        self.addCleanup(c.close)
        s = c.wait(c.request("/only"))
        self.assertEqual((s["data"], s["trailers"], s["ended"]), (b"", None, True))
        s = c.wait(c.request("/trailers"))
        self.assertEqual((s["data"], s["trailers"]["grpc-status"]), (b"body", "0"))
        self.assertEqual(len(c.wait(c.request("/big"))["data"]), 8 << 20)
        body = bytes(range(256)) * 2000
        self.assertEqual(c.wait(c.request("/", body, method="POST"))["data"], body)

    def test_a_stream_that_a_goaway_refused_goes_to_another_connection(self):
        """A backend that says GOAWAY(0) to its first connection's first stream."""
        seen = []

        def serve(client, backend):
            seen.append(1)
            client.exactly(24)
            client.send(frame(4))
            conn = h2.connection.H2Connection(
                h2.config.H2Configuration(client_side=False))
            while True:
                head = client.exactly(9)
                if len(head) < 9:
                    return
                n = int.from_bytes(head[:3], "big")
                client.exactly(n)
                if head[3] == 4 and not head[4] & 1:
                    client.send(frame(4, 1))
                if head[3] == 1:
                    stream = int.from_bytes(head[5:9], "big")
                    if len(seen) == 1:
                        client.send(frame(7, 0, 0, struct.pack(">II", 0, 0)))
                    else:
                        client.send(frame(1, 5, stream, b"\x88"))
            del conn
        backend = Backend(serve)
        self.addCleanup(backend.close)
        c = H2Client(self.proxy([backend.port], "h2=1").port)
        self.addCleanup(c.close)
        # Without a body: what was sent of one is not kept, where it is not gRPC.
        s = c.wait(c.request("/", method="POST"))
        self.assertEqual(s["head"][":status"], "200")
        self.assertGreaterEqual(len(seen), 2)

    def test_metrics_count_streams_and_peers_that_break_http_2_on_each_side(self):
        proxy = self.start()

        def counts(name):
            return [proxy.metric(f'h2_{name}_total{{side="{side}"}}')
                    for side in ("client", "backend")]
        c = H2Client(proxy.port)
        self.addCleanup(c.close)
        for _ in range(3):
            c.wait(c.request("/"))
        self.assertEqual((counts("connections"), counts("streams")), ([1, 1], [3, 3]))
        self.assertEqual(counts("protocol_errors"), [0, 0])
        raw = Raw(proxy.port)
        self.addCleanup(raw.sock.close)
        raw.send(frame(0, 0, 0, b"x"))  # DATA of no stream
        self.assertTrue(wait_for(lambda: counts("protocol_errors") == [1, 0]))
        self.assertEqual(counts("connections"), [2, 1])

    def test_a_new_connection_gets_no_more_streams_than_the_full_one_holds(self):
        """Its SETTINGS come late: what was sent over the limit would be refused."""
        taken, most, ready = [], [], threading.Event()

        def serve(client, backend):
            if len(client.exactly(24)) < 24:
                return  # a health check
            at = len(taken)
            taken.append(0)

            def tell(wait):
                try:
                    if not wait or ready.wait(PATIENCE_S):
                        client.send(frame(4, 0, 0, struct.pack(">HI", 3, 2)))  # two
                except OSError:
                    pass  # the test is over
            if at == 0:
                tell(False)
            else:
                threading.Thread(target=tell, args=(True,), daemon=True).start()
            while len(head := client.exactly(9)) == 9:
                client.exactly(int.from_bytes(head[:3], "big"))
                if head[3] == 4 and not head[4] & 1:
                    client.send(frame(4, 1))
                taken[at] += head[3] == 1
                most.append(taken[at])
        backend, = self.backends(1, serve)
        proxy = self.proxy([backend.port], "h2=1")
        c = H2Client(proxy.port)
        self.addCleanup(c.close)
        for n in (1, 2):
            c.request("/", method="POST", end=False)
            self.assertTrue(wait_for(lambda n=n: sum(taken) == n))
        for _ in range(5):
            c.request("/", method="POST", end=False)
        self.assertTrue(wait_for(lambda: sum(taken) == 7))
        ready.set()
        self.assertEqual(max(most), 2)

    def test_a_connection_without_settings_is_one_failure_however_many_wait(self):
        silent, = self.backends(1, lambda client, backend: client.rest())
        proxy = self.proxy([silent.port], "h2=1", connect_timeout_us=3000000)
        c = H2Client(proxy.port)
        self.addCleanup(c.close)
        streams = [c.request("/") for _ in range(8)]
        for s in streams:
            self.assertEqual(c.wait(s)["head"][":status"], "502")
        self.assertEqual(proxy.backends()["b0"]["failures_total"], 1)
        self.assertEqual(proxy.metric("connect_failures_total"), 1)

    def test_a_connection_that_fails_is_told_of_when_its_first_client_has_left(self):
        silent, = self.backends(1, lambda client, backend: client.rest())
        proxy = self.proxy([silent.port], "h2=1", connect_timeout_us=5000000)
        first, c = H2Client(proxy.port), H2Client(proxy.port)
        self.addCleanup(c.close)
        first.request("/")
        self.assertTrue(wait_for(lambda: proxy.metric("sessions_total") == 1))
        streams = [c.request("/") for _ in range(3)]
        self.assertTrue(wait_for(lambda: proxy.metric("sessions_total") == 4))
        first.close()
        for s in streams:
            self.assertEqual(c.wait(s)["head"][":status"], "502")
        # Where the machine is slow the connection may have failed before it left.
        self.assertEqual(proxy.backends()["b0"]["failures_total"], 1)
        self.assertEqual(proxy.metric("connect_failures_total"), 1)

    def refuser(self, refusal, after):
        """Backends (a function) of which the first to hear `after` bytes of a body
        answers with the frame of refusal(stream); all others send the body back."""
        self.refused, self.heard = [], []

        def serve(client, backend):
            client.exactly(24)
            client.send(frame(4))
            bodies = {}
            while len(head := client.exactly(9)) == 9:
                payload = client.exactly(int.from_bytes(head[:3], "big"))
                kind, flags = head[3], head[4]
                stream = int.from_bytes(head[5:9], "big")
                if kind == 4 and not flags & 1:
                    client.send(frame(4, 1))
                if kind == 1:
                    bodies[stream] = b""
                if kind != 0 or stream not in bodies:
                    continue
                bodies[stream] += payload
                if not self.refused:
                    if len(bodies[stream]) >= after:
                        self.refused.append(bodies.pop(stream))
                        client.send(refusal(stream))
                elif flags & 1:
                    self.heard.append(bodies[stream])
                    client.send(frame(1, 4, stream, b"\x88") +
                                frame(0, 1, stream, bodies[stream]))
        return serve

    def say(self, backends, body, end=True):
        c = H2Client(self.proxy([b.port for b in backends], "h2=1").port)
        self.addCleanup(c.close)
        stream = c.request("/t.T/Chat", body, method="POST", end=end,
                           headers=[("content-type", "application/grpc")])
        return c, stream

    def backends(self, n, serve):
        found = [Backend(serve) for _ in range(n)]
        for b in found:
            self.addCleanup(b.close)
        return found

    def test_a_grpc_stream_that_a_goaway_refused_is_said_again_with_its_body(self):
        body = bytes(range(256)) * 60
        serve = self.refuser(lambda s: frame(7, 0, 0, struct.pack(">II", 0, 0)), len(body))
        c, stream = self.say(self.backends(1, serve), body)
        self.assertEqual(c.wait(stream)["data"], body)
        self.assertEqual((self.refused, self.heard), ([body], [body]))

    def test_a_grpc_stream_that_one_backend_refused_goes_to_another_with_its_body(self):
        body = bytes(range(256)) * 60
        serve = self.refuser(lambda s: frame(3, 0, s, struct.pack(">I", 7)), len(body))
        c, stream = self.say(self.backends(2, serve), body, end=False)
        self.assertTrue(wait_for(lambda: self.refused))
        time.sleep(0.2)
        c.send(stream, b"and more", end=True)
        self.assertEqual(c.wait(stream)["data"], body + b"and more")
        self.assertEqual(self.process.metric("retries_total"), 1)

    def test_a_grpc_stream_of_which_too_much_was_said_is_unavailable(self):
        body = bytes(range(256)) * 80  # past what is kept
        serve = self.refuser(lambda s: frame(3, 0, s, struct.pack(">I", 7)), len(body))
        c, stream = self.say(self.backends(2, serve), body, end=False)
        s = c.wait(stream)
        self.assertEqual((s["head"][":status"], s["head"]["grpc-status"], self.heard),
                         ("200", "14", []))

    def test_what_a_backend_may_have_looked_at_is_not_said_again(self):
        """CANCEL does not say that nothing was looked at."""
        serve = self.refuser(lambda s: frame(3, 0, s, struct.pack(">I", 8)), 4)
        c, stream = self.say(self.backends(2, serve), b"once")
        c.wait(stream)
        self.assertEqual((self.refused, self.heard), ([b"once"], []))

    def test_a_drained_proxy_says_goaway_and_streams_end(self):
        proxy = self.start()
        r = Raw(proxy.port)
        r.send(frame(4, 1) + frame(1, 4, 1, b"\x83\x86\x84\x01\x01a"))
        self.assertTrue(wait_for(lambda: proxy.metric("open_sessions") == 1))
        proxy.process.terminate()
        r.frames(lambda f: f[0] == 7)
        r.send(frame(0, 1, 1, b"late"))
        got = r.frames()
        self.assertIn((0, 1, b"late"), [(f[0], f[2], f[3]) for f in got])
        r.sock.close()
        self.assertEqual(proxy.process.wait(PATIENCE_S), 0)
        proxy.process.terminate = lambda: None
        self._cleanups.pop()  # its metrics are gone with it

    def test_a_client_of_http_2_has_five_seconds_to_ask_in_at_a_stop(self):
        """As one of HTTP/1.1 has; then it is told which stream was the last."""
        proxy = self.start()
        r = Raw(proxy.port)
        r.send(frame(4, 1))
        r.frames(lambda f: f[0] == 4)
        begun = time.monotonic()
        proxy.process.terminate()
        r.frames(lambda f: f[0] == 7)
        got = r.frames(lambda f: f[0] == 7)
        self.assertGreaterEqual(time.monotonic() - begun, 4.9)
        self.assertEqual(got[-1][3][:8], struct.pack(">II", 0, 0))
        r.frames()
        r.sock.close()
        self.assertEqual(proxy.process.wait(20), 0)
        proxy.process.terminate = lambda: None
        self._cleanups.pop()


class Tls(Case):
    def test_grpc_over_tls_on_both_sides_is_agreed_on_by_alpn_and_verified(self):
        with tempfile.TemporaryDirectory() as folder:
            cert, key = f"{folder}/c.pem", f"{folder}/k.pem"
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                            "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
                            "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
                            "-keyout", key, "-out", cert], check=True, capture_output=True)
            pem = [pathlib.Path(p).read_bytes() for p in (key, cert)]
            echo = Echo("s", credentials=grpc.ssl_server_credentials([pem]))
            self.addCleanup(echo.close)
            words = ["h2=1", "tls=1", "tls_name=localhost", f"cert={cert}", f"key={key}"]
            client = grpc.ssl_channel_credentials(pem[1])
            names = (("grpc.ssl_target_name_override", "localhost"),)

            def call(proxy):
                with grpc.secure_channel(f"127.0.0.1:{proxy.port}", client, names) as channel:
                    return list(channel.stream_stream("/t.T/Chat")(
                        iter([b"over", b"tls"]), timeout=PATIENCE_S))
            trusted = self.proxy([f"a=127.0.0.1:{echo.port}"], *words, f"ca={cert}")
            self.assertEqual(call(trusted), [b"over", b"tls"])
            self.assertEqual(trusted.metric('h2_streams_total{side="backend"}'), 1)
            # Signed by nobody that the system knows.
            with self.assertRaises(grpc.RpcError) as raised:
                call(self.proxy([f"a=127.0.0.1:{echo.port}"], *words))
            self.assertEqual(raised.exception.code(), grpc.StatusCode.UNAVAILABLE)


class Versions(Case):
    def test_http_2_clients_reach_http_1_backends(self):
        def serve(client, backend):
            while head := client.head():
                body = client.body(head[1]) if "content-length" in head[1] or \
                    "transfer-encoding" in head[1] else b""
                client.send(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n")
                client.send(body)
        backend = Backend(serve)
        self.addCleanup(backend.close)
        c = H2Client(self.proxy([backend.port]).port)
        self.addCleanup(c.close)
        for n in (0, 5, 200000):
            s = c.wait(c.request("/", b"x" * n, method="POST"))
            self.assertEqual((s["head"][":status"], len(s["data"])), ("200", n))

    def test_http_1_clients_reach_http_2_backends(self):
        probe = Probe()
        self.addCleanup(probe.close)
        proxy = self.proxy([probe.port], "h2=1")
        for n in (0, 5, 200000):
            # The backend answers before the body is whole: then the connection ends.
            client = proxy.connect()
            self.addCleanup(client.close)
            client.send(f"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: {n}\r\n\r\n")
            client.send(b"y" * n)
            status, fields = client.head()
            self.assertEqual((status, len(client.body(fields))), (200, n))

    def test_full_heads_cross_versions(self):
        """100 fields are a head's most; what the proxy adds comes on top."""
        many = "".join(f"X-{i}: {i}\r\n" for i in range(99))

        def serve(client, backend):
            while client.head():
                client.send(f"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{many}\r\n")
        backend = Backend(serve)
        self.addCleanup(backend.close)
        c = H2Client(self.proxy([backend.port]).port)
        self.addCleanup(c.close)
        head = c.wait(c.request("/"))["head"]
        self.assertEqual((head[":status"], head["x-98"]), ("200", "98"))
        probe = Probe()
        self.addCleanup(probe.close)
        client = self.proxy([probe.port], "h2=1").connect()
        self.addCleanup(client.close)
        # The backend of this test takes no more than 100 itself.
        self.assertEqual(client.get("/", many)[0], 431)
        self.assertEqual(client.get("/")[0], 200)

    def test_an_answer_without_body_stays_one_when_its_stream_ends_later(self):
        def serve(client, backend):
            """Heads without END_STREAM, the end in an empty DATA frame."""
            client.exactly(24)
            client.send(frame(4))
            while len(head := client.exactly(9)) == 9:
                client.exactly(int.from_bytes(head[:3], "big"))
                if head[3] == 4 and not head[4] & 1:
                    client.send(frame(4, 1))
                if head[3] == 1:
                    stream = int.from_bytes(head[5:9], "big")
                    backend.note(stream)
                    block = (b"\x88", b"\x89", b"\x8b")[len(backend.requests) - 1]
                    client.send(frame(1, 4, stream, block))
                    time.sleep(0.1)
                    client.send(frame(0, 1, stream))
        backend = Backend(serve)
        self.addCleanup(backend.close)
        client = self.proxy([backend.port], "h2=1").connect()
        self.addCleanup(client.close)
        for method, status in (("HEAD", 200), ("GET", 204), ("GET", 304)):
            client.send(f"{method} / HTTP/1.1\r\nHost: h\r\n\r\n")
            got, fields = client.head()
            self.assertEqual(got, status)
            self.assertNotIn("transfer-encoding", fields)
        time.sleep(0.3)
        client.sock.setblocking(False)
        with self.assertRaises(BlockingIOError):
            client.sock.recv(1)  # nothing behind the last head

    def test_a_websocket_of_rfc_8441_reaches_one_of_rfc_6455(self):
        backend = Backend(echo_tunnel)
        self.addCleanup(backend.close)
        c = H2Client(self.proxy([backend.port]).port)
        self.addCleanup(c.close)
        c.until(lambda: c.conn.remote_settings.enable_connect_protocol == 1)
        stream = c.request("/chat", method="CONNECT", end=False, headers=[
            (":protocol", "websocket"), ("sec-websocket-version", "13")])
        c.until(lambda: c.streams[stream]["head"])
        self.assertEqual(c.streams[stream]["head"][":status"], "200")
        c.send(stream, b"\x81\x85abcdefghi", end=False)
        c.until(lambda: c.streams[stream]["data"] == b"\x81\x85abcdefghi")

    def test_a_websocket_on_http_2_at_its_greatest_age_is_reset_without_error(self):
        backend = Backend(echo_tunnel)
        self.addCleanup(backend.close)
        c = H2Client(self.proxy([backend.port], max_age_us=3000000).port)
        self.addCleanup(c.close)
        c.until(lambda: c.conn.remote_settings.enable_connect_protocol == 1)
        stream = c.request("/chat", method="CONNECT", end=False, headers=[
            (":protocol", "websocket"), ("sec-websocket-version", "13")])
        c.until(lambda: c.streams[stream]["reset"] is not None)
        s = c.streams[stream]
        self.assertEqual((s["head"][":status"], s["trailers"], s["reset"]),
                         ("200", None, 0))

    def test_a_websocket_of_rfc_6455_reaches_one_of_rfc_8441(self):
        probe = Probe()
        self.addCleanup(probe.close)
        client = self.proxy([probe.port], "h2=1").connect()
        self.addCleanup(client.close)
        status, fields = client.upgrade()
        self.assertEqual(status, 101)
        self.assertIn("sec-websocket-accept", fields)
        client.send(b"\x81\x85abcdefghi")
        self.assertEqual(client.exactly(11), b"\x81\x85abcdefghi")

    def test_curl_reaches_both_by_both(self):
        curl = keelkit.need_program("curl")
        probe = Probe()
        self.addCleanup(probe.close)
        proxy = self.proxy([probe.port], "h2=1")
        for flag, version in (("--http1.1", "1.1"), ("--http2-prior-knowledge", "2")):
            got = subprocess.run([curl, "-s", flag, "-w", "%{http_version} %{size_download}",
                                  "-o", "/dev/null", f"http://127.0.0.1:{proxy.port}/big"],
                                 capture_output=True, text=True, timeout=PATIENCE_S)
            self.assertEqual(got.stdout, f"{version} {8 << 20}")


if __name__ == "__main__":
    unittest.main(verbosity=2)
