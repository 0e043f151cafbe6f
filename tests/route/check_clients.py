"""keel route between clients and servers that nobody here wrote: grpcio (a thousand streams,
deadlines, cancellation, metadata, compression, health), wsproto, curl, nghttp, h2load and
Chromium. check_proxy.py has `websockets`, check_grpc.py more of grpcio."""
import asyncio
import os
import pathlib
import random
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from proxykit import (PATIENCE_S, Backend, Proxy, dead_port, echo_http, end_balanced,  # noqa: E402
                      keelkit, need_probe, wait_for)

try:
    import grpc
    import wsproto
    import wsproto.events as ws
except ImportError:
    keelkit.skip("the Python packages grpcio and wsproto are not installed")
try:
    from grpc_health.v1 import health_pb2, health_pb2_grpc
    from grpc_health.v1._async import HealthServicer
except ImportError:
    health_pb2 = None

CODE = grpc.StatusCode


class Service:
    """/t.T/* of the server, in a process of its own: `check_clients.py serve NAME`."""

    def __init__(self, name):
        self.name, self.open = name, 0

    async def chat(self, it, ctx):
        self.open += 1
        try:
            await ctx.send_initial_metadata((("x-backend", self.name),))
            async for message in it:
                yield message
        finally:
            self.open -= 1

    async def counts(self, request, ctx):
        return str(self.open).encode()

    async def unary(self, request, ctx):
        ctx.set_trailing_metadata(tuple(
            (k if k.endswith("-bin") else f"{k}-back", v)
            for k, v in ctx.invocation_metadata() if k.startswith("x-our-")))
        if request == b"sleep":
            await asyncio.sleep(60)
        if request.startswith(b"fail "):
            await ctx.abort(CODE[request[5:].decode()], "as asked: 100% \u00fc")
        return request

    async def early(self, it, ctx):
        async for message in it:
            yield message
            return  # whatever the client still says

    async def left(self, request, ctx):
        """How much of its time the caller has left, as it was told."""
        return str(ctx.time_remaining()).encode()


async def serve(name):
    service = Service(name)
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    stream, unary = grpc.stream_stream_rpc_method_handler, \
        grpc.unary_unary_rpc_method_handler
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("t.T", {
        "Chat": stream(service.chat), "Early": stream(service.early),
        "Unary": unary(service.unary), "Counts": unary(service.counts),
        "Left": unary(service.left)}),))
    if health_pb2:
        health = HealthServicer()
        health_pb2_grpc.add_HealthServicer_to_server(health, server)
        await health.set("", health_pb2.HealthCheckResponse.SERVING)
        await health.set("closing", health_pb2.HealthCheckResponse.NOT_SERVING)
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await server.stop(0)


class Server:
    def __init__(self, name):
        self.process = subprocess.Popen([sys.executable, __file__, "serve", name],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True)
        self.port = int(self.process.stdout.readline())

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class Case(unittest.TestCase):
    def proxy(self, backends, *words, **settings):
        return end_balanced(self, Proxy(backends, *words, **settings))


class Grpc(Case):
    @classmethod
    def setUpClass(cls):
        cls.servers = [Server(name) for name in ("a", "b")]

    @classmethod
    def tearDownClass(cls):
        for server in cls.servers:
            server.close()

    def start(self, **settings):
        return self.proxy([s.port for s in self.servers], "h2=1", logs_sessions=0, **settings)

    def channel(self, proxy):
        channel = grpc.insecure_channel(
            f"127.0.0.1:{proxy.port}", options=[("grpc.use_local_subchannel_pool", 1),
                                                ("grpc.enable_retries", 0)])
        self.addCleanup(channel.close)
        return channel

    def counts(self):
        """Streams open at each server, asked directly."""
        found = []
        for server in self.servers:
            with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
                found.append(int(channel.unary_unary("/t.T/Counts")(b"", timeout=PATIENCE_S)))
        return found

    def test_a_thousand_streams_of_aio_talk_at_once(self):
        proxy = self.start()

        async def one(channel, i, all_open):
            call = channel.stream_stream("/t.T/Chat")()
            said = [os.urandom(random.choice([0, 1, 640, 20000])) for _ in range(4)]
            await call.write(said[0])
            self.assertEqual(await call.read(), said[0])
            await all_open.wait()
            for message in said[1:]:
                await call.write(message)
                self.assertEqual(await call.read(), message)
            if i % 3 == 0:
                call.cancel()
                return "cancelled"
            await call.done_writing()
            self.assertEqual(await call.read(), grpc.aio.EOF)
            self.assertEqual(await call.code(), CODE.OK)
            return "done"

        async def main():
            options = [("grpc.use_local_subchannel_pool", 1)]
            channels = [grpc.aio.insecure_channel(f"127.0.0.1:{proxy.port}", options=options)
                        for _ in range(4)]
            all_open = asyncio.Event()
            tasks = [asyncio.create_task(one(channels[i % 4], i, all_open))
                     for i in range(1000)]
            while proxy.metric("placements") < 1000:
                failed = [t for t in tasks if t.done()]
                if failed:
                    failed[0].result()
                await asyncio.sleep(0.2)
            spread = [b["open_sessions"] for b in proxy.backends().values()]
            all_open.set()
            ends = await asyncio.gather(*tasks)
            for channel in channels:
                await channel.close()
            return spread, ends
        spread, ends = asyncio.run(main())
        self.assertEqual(sum(spread), 1000)
        self.assertLessEqual(abs(spread[0] - spread[1]), 10)
        self.assertEqual(ends.count("cancelled"), 334)
        self.assertTrue(wait_for(lambda: proxy.metric("placements") == 0))
        self.assertTrue(wait_for(lambda: not any(self.counts())))

    def test_hundreds_of_streams_of_threads_talk_at_once(self):
        proxy = self.start()
        channel = self.channel(proxy)
        hold, calls = threading.Event(), []

        def talk(i):
            yield str(i).encode()
            hold.wait(PATIENCE_S)
            yield b"last"
        for i in range(250):
            calls.append(channel.stream_stream("/t.T/Chat")(talk(i), timeout=PATIENCE_S))
        for i, call in enumerate(calls):
            self.assertEqual(next(call), str(i).encode())
        self.assertEqual(proxy.metric("placements"), 250)
        hold.set()
        for call in calls:
            self.assertEqual(list(call), [b"last"])
            self.assertEqual(call.code(), CODE.OK)

    def test_a_deadline_reaches_the_server_and_ends_at_the_client(self):
        channel = self.channel(self.start())
        left = float(channel.unary_unary("/t.T/Left")(b"", timeout=60))
        self.assertTrue(0 < left <= 62, left)  # grpcio rounds what it sends up
        with self.assertRaises(grpc.RpcError) as e:
            channel.unary_unary("/t.T/Unary")(b"sleep", timeout=0.5)
        self.assertEqual(e.exception.code(), CODE.DEADLINE_EXCEEDED)

    def test_cancellation_reaches_the_server(self):
        channel = self.channel(self.start())
        hold = threading.Event()
        self.addCleanup(hold.set)

        def talk():
            yield b"x"
            hold.wait(PATIENCE_S)
        calls = [channel.stream_stream("/t.T/Chat")(talk()) for _ in range(20)]
        for call in calls:
            next(call)
        self.assertEqual(sum(self.counts()), 20)
        for call in calls:
            call.cancel()  # what the client would still say never ends
        self.assertTrue(wait_for(lambda: not any(self.counts())))

    def test_metadata_of_text_and_bytes_crosses_both_ways(self):
        channel = self.channel(self.start())
        sent = (("x-our-text", "words, and more"), ("x-our-empty", ""), ("x-our-twice", "1"),
                ("x-our-twice", "2"), ("x-our-some-bin", bytes(range(256))), ("x-our-none-bin", b""))
        _, call = channel.unary_unary("/t.T/Unary").with_call(b"", metadata=sent, timeout=PATIENCE_S)
        got = sorted((k, v) for k, v in call.trailing_metadata() if k.startswith("x-our-"))
        self.assertEqual(got, sorted((k if k.endswith("-bin") else k + "-back", v)
                                     for k, v in sent))

    def test_every_status_and_its_words_come_through(self):
        channel = self.channel(self.start())
        for code in CODE:
            if code == CODE.OK:
                continue
            with self.assertRaises(grpc.RpcError) as e:
                channel.unary_unary("/t.T/Unary")(b"fail " + code.name.encode(), timeout=PATIENCE_S)
            self.assertEqual((e.exception.code(), e.exception.details()),
                             (code, "as asked: 100% \u00fc"))

    def test_compressed_messages_stay_what_they_are(self):
        channel = self.channel(self.start())
        for how in (grpc.Compression.Gzip, grpc.Compression.Deflate,
                    grpc.Compression.NoCompression):
            said = [b"again and again " * n for n in (0, 1, 1000, 50000)]
            got = channel.stream_stream("/t.T/Chat")(iter(said), compression=how, timeout=PATIENCE_S)
            self.assertEqual(list(got), said)

    def test_an_early_answer_is_whole_while_the_client_still_talks(self):
        channel = self.channel(self.start())

        def talk():
            for _ in range(200):
                yield b"x" * 30000
        got = channel.stream_stream("/t.T/Early")(talk(), timeout=PATIENCE_S)
        self.assertEqual(list(got), [b"x" * 30000])
        self.assertEqual(got.code(), CODE.OK)

    @unittest.skipUnless(health_pb2, "grpcio-health-checking is not installed")
    def test_the_health_service_is_asked_and_watched(self):
        stub = health_pb2_grpc.HealthStub(self.channel(self.start()))
        ask = health_pb2.HealthCheckRequest
        self.assertEqual(stub.Check(ask(), timeout=PATIENCE_S).status, 1)
        self.assertEqual(stub.Check(ask(service="closing"), timeout=PATIENCE_S).status, 2)
        with self.assertRaises(grpc.RpcError) as e:
            stub.Check(ask(service="nothing"), timeout=PATIENCE_S)
        self.assertEqual(e.exception.code(), CODE.NOT_FOUND)
        watch = stub.Watch(ask(service="closing"), timeout=PATIENCE_S)
        self.assertEqual(next(watch).status, 2)
        watch.cancel()


class Wsproto(Case):
    """A server and a client of wsproto, which checks every frame."""

    @staticmethod
    def echo(client, backend):
        conn = wsproto.WSConnection(wsproto.ConnectionType.SERVER)
        while True:
            data = client.sock.recv(65536)
            conn.receive_data(data or None)
            for event in conn.events():
                if isinstance(event, ws.Request):
                    client.send(conn.send(ws.AcceptConnection(
                        subprotocol="chat" if "chat" in event.subprotocols else None)))
                elif isinstance(event, ws.Message):
                    client.send(conn.send(type(event)(
                        data=event.data, message_finished=event.message_finished)))
                elif isinstance(event, ws.Ping):
                    client.send(conn.send(event.response()))
                elif isinstance(event, ws.CloseConnection):
                    if conn.state is not wsproto.connection.ConnectionState.CLOSED:
                        client.send(conn.send(event.response()))
                    return
            if not data:
                return

    def test_messages_fragments_pings_and_close_codes_cross(self):
        backend = Backend(self.echo)
        self.addCleanup(backend.close)
        proxy = self.proxy([backend.port])
        conn = wsproto.WSConnection(wsproto.ConnectionType.CLIENT)
        sock = socket.create_connection(("127.0.0.1", proxy.port), timeout=PATIENCE_S)
        self.addCleanup(sock.close)
        events = []

        def until(kind):
            while True:
                for event in conn.events():
                    events.append(event)
                if any(isinstance(e, kind) for e in events):
                    found = [e for e in events if isinstance(e, kind)]
                    events[:] = [e for e in events if not isinstance(e, kind)]
                    return found
                data = sock.recv(65536)
                conn.receive_data(data or None)
        sock.sendall(conn.send(ws.Request(host="h", target="/chat", subprotocols=["chat"])))
        self.assertEqual(until(ws.AcceptConnection)[0].subprotocol, "chat")
        for data in ("words \u00fc", b"\0\1" * 40000, ""):
            kind = ws.TextMessage if isinstance(data, str) else ws.BytesMessage
            half = len(data) // 2
            sock.sendall(conn.send(kind(data=data[:half], message_finished=False)) +
                         conn.send(ws.Ping(payload=b"between")) +
                         conn.send(kind(data=data[half:])))
            self.assertEqual(bytes(until(ws.Pong)[0].payload), b"between")
            got = []
            while not got or not got[-1].message_finished:
                got += until(kind)
            empty = "" if isinstance(data, str) else b""
            self.assertEqual(empty.join(bytes(g.data) if empty == b"" else g.data
                                        for g in got), data)
        sock.sendall(conn.send(ws.CloseConnection(code=3456, reason="enough")))
        closed = until(ws.CloseConnection)[0]
        self.assertEqual((closed.code, closed.reason), (3456, "enough"))


class Tools(Case):
    def http_proxy(self):
        backend = Backend(echo_http("a"))
        self.addCleanup(backend.close)
        return self.proxy([backend.port], logs_sessions=0)

    def run_tool(self, *words):
        keelkit.need_program(words[0])
        return subprocess.run(list(map(str, words)), capture_output=True, text=True,
                              timeout=PATIENCE_S)

    def test_curl_gets_posts_and_streams_by_both_versions(self):
        url = f"http://127.0.0.1:{self.http_proxy().port}/x"
        for flag, version in (("--http1.1", "1.1"), ("--http2-prior-knowledge", "2")):
            got = self.run_tool("curl", "-sS", flag, "-w", "|%{http_version} %{http_code}",
                                "--data", "words", url)
            self.assertEqual(got.stdout, f"a|POST /x HTTP/1.1|words|{version} 200")
            got = self.run_tool("curl", "-sS", flag, "-T", pathlib.Path(__file__), "-o",
                                "/dev/null", "-w", "%{http_code} %{size_upload}", url)
            self.assertEqual(got.stdout, f"200 {pathlib.Path(__file__).stat().st_size}")
        # An upgrade to h2c is offered, and declined by an ordinary answer.
        got = self.run_tool("curl", "-sS", "--http2", "-w", "|%{http_version}", url)
        self.assertEqual(got.stdout, "a|GET /x HTTP/1.1||1.1")

    def certificate(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        cert, key = folder.name + "/c.pem", folder.name + "/k.pem"
        got = self.run_tool("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                            "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
                            "/CN=localhost", "-keyout", key, "-out", cert)
        self.assertEqual(got.returncode, 0, got.stderr)
        return f"cert={cert}", f"key={key}"

    def load(self, url, n, *words, codes, protocol="h2"):
        """h2load's n requests are all answered, by `codes`: how many of 2xx to 5xx."""
        got = self.run_tool("h2load", f"-n{n}", "-c10", "-m20", *words, url)
        well = sum(codes[:3])
        self.assertIn(f"requests: {n} total, {n} started, {n} done, {well} succeeded, "
                      f"{n - well} failed, 0 errored, 0 timeout", got.stdout)
        self.assertIn("status codes: {} 2xx, {} 3xx, {} 4xx, {} 5xx".format(*codes),
                      got.stdout)
        self.assertIn(f"Application protocol: {protocol}", got.stdout)

    def test_nghttp_reads_it_and_h2load_gets_every_answer(self):
        proxy = self.http_proxy()
        url = f"http://127.0.0.1:{proxy.port}/x"
        got = self.run_tool("nghttp", "-v", url)
        self.assertIn("a|GET /x HTTP/1.1|", got.stdout)
        self.load(url, 2000, codes=(2000, 0, 0, 0), protocol="h2c")
        self.load(url, 500, "--h1", "-m1", codes=(500, 0, 0, 0), protocol="http/1.1")
        self.load(url, 200, "-d", __file__, codes=(200, 0, 0, 0), protocol="h2c")
        self.assertEqual(proxy.metric("sessions_total"), 2701)
        self.assertEqual(proxy.metric("bad_requests_total"), 0)

    def test_nghttp_and_h2load_agree_on_a_protocol_by_tls(self):
        backend = Backend(echo_http("a"))
        self.addCleanup(backend.close)
        proxy = self.proxy([backend.port], *self.certificate(), logs_sessions=0)
        url = f"https://127.0.0.1:{proxy.port}/x"
        got = self.run_tool("nghttp", "-vy", url)
        self.assertIn("The negotiated protocol: h2", got.stdout)
        self.assertIn("a|GET /x HTTP/1.1|", got.stdout)
        self.load(url, 1000, codes=(1000, 0, 0, 0))
        self.load(url, 200, "--h1", "-m1", codes=(200, 0, 0, 0), protocol="http/1.1")
        self.assertEqual(proxy.metric("sessions_total"), 1201)

    def test_h2load_counts_the_refusals_that_the_proxy_counts(self):
        proxy = self.proxy([dead_port(self)], logs_sessions=0)
        self.load(f"http://127.0.0.1:{proxy.port}/x", 300, codes=(0, 0, 0, 300),
                  protocol="h2c")
        self.assertEqual(proxy.metric("sessions_total"), 300)
        self.assertEqual(proxy.metric("open_sessions"), 0)


PAGE = """<!doctype html><title>t</title><script>
const said = [];
async function run() {
  const r = await fetch("/stream");
  const reader = r.body.getReader(), text = new TextDecoder();
  for (;;) {
    const {done, value} = await reader.read();
    if (done) break;
    said.push("chunk " + text.decode(value));
    if (said.length == 1) await fetch("/go");
  }
  const ws = new WebSocket("ws://" + location.host + "/ws", ["chat"]);
  ws.binaryType = "arraybuffer";
  ws.onopen = () => { ws.send("words \\u00fc"); ws.send(new Uint8Array(100000).buffer); };
  ws.onmessage = e => {
    said.push(typeof e.data == "string" ? "text " + e.data : "bytes " + e.data.byteLength);
    if (said.length == 4) ws.close(3456, "enough");
  };
  ws.onclose = e => { said.push("closed " + e.code + " " + e.reason + " " + e.wasClean);
                      document.title = said.join(";"); };
}
run().catch(e => { document.title = "failed: " + e; });
</script>"""


class Chromium(Case):
    def test_fetch_streams_and_a_websocket_talks(self):
        import browserkit  # skips where it is absent
        go = threading.Event()

        def serve_page(client, backend):
            head = client.head()
            if head is None:
                return
            if "upgrade" in head[1]:
                import hashlib
                import base64
                magic = head[1]["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
                accept = base64.b64encode(hashlib.sha1(magic.encode()).digest()).decode()
                client.send("HTTP/1.1 101 x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                            f"Sec-WebSocket-Protocol: chat\r\nSec-WebSocket-Accept: {accept}"
                            "\r\n\r\n")
                conn = wsproto.Connection(wsproto.ConnectionType.SERVER)
                while True:
                    data = client.buffer or client.sock.recv(65536)
                    client.buffer = b""
                    conn.receive_data(data or None)
                    for event in conn.events():
                        if isinstance(event, ws.Message):
                            client.send(conn.send(type(event)(
                                data=event.data, message_finished=event.message_finished)))
                        elif isinstance(event, ws.CloseConnection):
                            client.send(conn.send(event.response()))
                            return
            extra = "Connection: close\r\n"
            if " /stream " in head[0]:
                client.send("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
                            f"Transfer-Encoding: chunked\r\n{extra}\r\n3\r\none\r\n")
                go.wait(PATIENCE_S)
                client.send("3\r\ntwo\r\n0\r\n\r\n")
                return
            if " /go " in head[0]:
                go.set()
            text = PAGE if " / " in head[0] else ""
            client.send(f"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n{extra}"
                        f"Content-Length: {len(text)}\r\n\r\n{text}")
        backend = Backend(serve_page)
        self.addCleanup(backend.close)
        proxy = self.proxy([backend.port])
        browser = browserkit.open_browser()
        try:
            browser.get(f"http://127.0.0.1:{proxy.port}/")
            browserkit.until(browser, lambda: browser.title != "t")
            self.assertEqual(browser.title,
                             "chunk one;chunk two;text words \u00fc;bytes 100000;"
                             "closed 3456 enough true")
        finally:
            browser.quit()


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        asyncio.run(serve(sys.argv[2]))
    else:
        need_probe()
        unittest.main(warnings="ignore")
