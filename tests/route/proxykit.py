"""proxykit.py - what the tests of the proxy share: the proxy itself, backends made of a
function a connection, and raw clients."""
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import keelkit  # noqa: E402

KEY = "dGhlIHNhbXBsZSBub25jZQ=="
ACCEPT = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="  # of KEY: RFC 6455 1.3
PATIENCE_S = keelkit.PATIENCE_S


def need_probe():
    path = pathlib.Path(os.environ.get("EK_BIN", "")) / "tests" / "probe_proxy"
    return path if path.exists() else keelkit.skip("probe_proxy is not built")


def hold_port(host="127.0.0.1", port=0):
    """A socket that is bound and does not listen: who connects is refused, and whoever asks
    the kernel for any port gets another one. Who names the port may listen there."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((host, port))
    return sock


def dead_port(case):
    """A port of 127.0.0.1 where nobody is, and nobody comes until the test ends."""
    sock = hold_port()
    case.addCleanup(sock.close)
    return sock.getsockname()[1]


class Proxy:
    """The proxy on free ports; `backends` are ports or name=address words."""

    def __init__(self, backends, *words, **settings):
        names = [b if isinstance(b, str) else f"b{i}=127.0.0.1:{b}"
                 for i, b in enumerate(backends)]
        # A limit that only a test means to reach which sets it.
        settings = {"connect_timeout_us": PATIENCE_S * 1000000, **settings}
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [need_probe(), "listen=127.0.0.1:0", "admin=127.0.0.1:0",
             *(f"backend={n}" for n in names), *words,
             *(f"{k}={v}" for k, v in settings.items())],
            stdout=subprocess.PIPE, stderr=self.log, text=True)
        line = self.process.stdout.readline()
        match = re.match(r"listening [\d.]+:(\d+) admin 127\.0\.0\.1:(\d+)", line)
        if not match:
            raise RuntimeError("the proxy did not start:\n" + self.output())
        self.port, self.admin = int(match.group(1)), int(match.group(2))

    def output(self):
        return os.pread(self.log.fileno(), 1 << 22, 0).decode("utf-8", "replace")

    def records(self, event):
        # Without a last line that is being written.
        found = [json.loads(line) for line in self.output().split("\n")[:-1]
                 if line.startswith("{")]
        return [r for r in found if r["event"] == event]

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}{path}",
                                    timeout=PATIENCE_S) as answer:
            return answer.read().decode()

    def post(self, path):
        request = urllib.request.Request(f"http://127.0.0.1:{self.admin}{path}",
                                         data=b"", method="POST")
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            return answer.read().decode()

    def metric(self, name):
        for line in self.get("/metrics").splitlines():
            if line.startswith(f"evenkeel_route_{name} "):
                return float(line.rsplit(" ", 1)[1])
        raise KeyError(name)

    def backends(self):
        return {b["name"]: b for b in json.loads(self.get("/backends"))["backends"]}

    def anon_kb(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"RssAnon:\s+(\d+) kB", status).group(1))

    def connect(self):
        return Client(self.port)

    def stop(self, signal_number=signal.SIGTERM, timeout=PATIENCE_S):
        if self.process.poll() is None:
            self.process.send_signal(signal_number)
        try:
            return self.process.wait(timeout=timeout)
        finally:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        code = self.stop()
        text = self.output()
        self.log.close()
        if exc[0] is None:
            assert code == 0, f"the proxy ended with {code}:\n{text}"


class Sessions:
    """Of a test case: a WebSocket that ends with the test, and what it echoes."""

    def open(self, k):
        c = k.connect()
        self.addCleanup(c.close)
        self.assertEqual(c.upgrade()[0], 101)
        return c

    def echo(self, c, text=b"still here"):
        c.send(text)
        self.assertEqual(c.exactly(len(text)), text)


def end_balanced(case, proxy):
    """proxy ends with the test, once every placement was given back."""
    def end():
        with proxy:
            case.assertTrue(wait_for(lambda: proxy.metric("placements") == 0),
                            "placements were not given back:\n" + proxy.output())
    case.addCleanup(end)
    return proxy


def start_voice(case, *words):
    """The example backend, which counts its sessions with libevenkeel; its port."""
    path = pathlib.Path(os.environ["EK_BIN"]) / "bin" / "voice"
    # Part of every whole build: a skip inside a script would not be seen in ctest.
    case.assertTrue(path.exists(), f"{path} is not built (target voice)")
    process = subprocess.Popen([path, *map(str, words)], stdout=subprocess.PIPE, text=True)

    def end():
        process.kill()
        process.wait()
        process.stdout.close()
    case.addCleanup(end)
    return int(process.stdout.readline().rsplit(":", 1)[1])


def frame(payload):
    """A masked binary WebSocket frame; the mask is zero."""
    n = len(payload)
    head = bytes([0x82, 0x80 | n]) if n < 126 else bytes([0x82, 0xfe]) + n.to_bytes(2, "big")
    return head + bytes(4) + payload


class Keel(Proxy):
    """`keel route` with a configuration file, which may be written anew. program: what an
    upgrade starts, if not the same."""

    def __init__(self, text, *words, env=None, program=None):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name, "route.yaml")
        self.write(text)
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [program or os.environ["KEEL"], "route", self.path, *words],
            executable=os.environ["KEEL"], stdout=subprocess.PIPE, stderr=self.log,
            text=True, env={**os.environ, **(env or {})})
        if not wait_for(lambda: self.records("ready") or self.process.poll() is not None
                        ) or not self.records("ready"):
            raise RuntimeError("the proxy did not start:\n" + self.output())
        ready = self.records("ready")[0]
        self.port = int(ready["listen"].rsplit(":", 1)[1])
        self.admin = int(ready["admin"].rsplit(":", 1)[1])

    def write(self, text):
        self.path.write_text(text)

    def __exit__(self, *exc):
        super().__exit__(*exc)
        self.folder.cleanup()


class Client:
    """A socket with a buffer: reads heads, exact numbers of bytes, to the end."""

    def __init__(self, port=None, sock=None):
        self.sock = sock or socket.create_connection(("127.0.0.1", port),
                                                     timeout=PATIENCE_S)
        self.sock.settimeout(PATIENCE_S)
        self.buffer = b""

    def send(self, data):
        self.sock.sendall(data.encode() if isinstance(data, str) else data)
        return self

    def more(self):
        data = self.sock.recv(65536)
        self.buffer += data
        return bool(data)

    def until(self, mark):
        while mark not in self.buffer:
            if not self.more():
                return None
        head, _, self.buffer = self.buffer.partition(mark)
        return head + mark

    def head(self):
        """(status or method, headers in lower case) or None at the end."""
        text = self.until(b"\r\n\r\n")
        if text is None:
            return None
        lines = text.decode("latin-1").split("\r\n")
        fields = {}
        for line in lines[1:]:
            if line:
                name, _, value = line.partition(":")
                fields.setdefault(name.lower(), value.strip())
        first = lines[0].split(" ")
        return (int(first[1]) if first[0].startswith("HTTP/") else lines[0]), fields

    def exactly(self, n):
        while len(self.buffer) < n:
            if not self.more():
                break
        data, self.buffer = self.buffer[:n], self.buffer[n:]
        return data

    def rest(self):
        while self.more():
            pass
        data, self.buffer = self.buffer, b""
        return data

    def body(self, fields):
        if "content-length" in fields:
            return self.exactly(int(fields["content-length"]))
        if fields.get("transfer-encoding") != "chunked":
            return self.rest()
        body = b""
        while True:
            size = int(self.until(b"\r\n"), 16)
            data = self.exactly(size + 2)
            if size == 0:
                return body
            body += data[:-2]

    def get(self, path="/", extra=""):
        self.send(f"GET {path} HTTP/1.1\r\nHost: test\r\n{extra}\r\n")
        status, fields = self.head()
        return status, fields, self.body(fields)

    def upgrade(self, path="/ws", extra="", key=KEY):
        self.send(f"GET {path} HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\n"
                  f"Upgrade: websocket\r\nSec-WebSocket-Key: {key}\r\n"
                  f"Sec-WebSocket-Version: 13\r\n{extra}\r\n")
        return self.head()

    def close(self, reset=False):
        if reset:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER,
                                 b"\x01\x00\x00\x00\x00\x00\x00\x00")
        self.sock.close()

    def is_closed(self):
        """The peer ended or reset it."""
        try:
            return self.sock.recv(1) == b""
        except ConnectionError:
            return True


class Backend:
    """serve(client, backend) is called in a thread of its own for each connection."""

    def __init__(self, serve, port=0, path=None, host="127.0.0.1"):
        self.serve = serve
        if path:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.bind(path)
            self.sock.listen(128)
        else:
            # Kept behind close(): nobody else gets the port of a backend that is gone.
            self.held = hold_port(host, port)
            self.port = self.held.getsockname()[1]
            self.sock = socket.create_server((host, self.port), backlog=128)
        self.connections, self.requests, self.lock = 0, [], threading.Lock()
        self.clients = []
        self.acceptor = threading.Thread(target=self.run, daemon=True)
        self.acceptor.start()

    def run(self):
        while True:
            try:
                sock, _ = self.sock.accept()
            except OSError:
                return
            client = Client(sock=sock)
            with self.lock:
                self.connections += 1
                self.clients.append(client)
            threading.Thread(target=self.one, args=(client,), daemon=True).start()

    def one(self, client):
        try:
            self.serve(client, self)
        except (OSError, TypeError, ValueError):
            pass
        finally:
            client.sock.close()

    def note(self, head):
        with self.lock:
            self.requests.append(head)
        return head

    def close(self):
        try:
            self.sock.shutdown(socket.SHUT_RDWR)  # wakes accept, which holds the port
        except OSError:
            pass
        # A process that was stopped begins its accept anew: by the number, which may be
        # another backend's by then.
        self.acceptor.join()
        self.sock.close()
        with self.lock:
            for client in self.clients:
                try:
                    client.sock.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass


def answer(client, text, status="200 OK", extra=""):
    client.send(f"HTTP/1.1 {status}\r\nContent-Length: {len(text)}\r\n{extra}\r\n{text}")


def echo_http(name):
    """Answers every request with the backend's name, the request line and the body."""

    def serve(client, backend):
        while True:
            head = client.head()
            if head is None:
                return
            backend.note(head)
            body = b""
            if "content-length" in head[1] or "transfer-encoding" in head[1]:
                body = client.body(head[1])
            answer(client, f"{name}|{head[0]}|{body.decode('latin-1')}")

    return serve


def accept_websocket(client, backend, extra=""):
    """The handshake: returns the request's head."""
    import base64
    import hashlib
    head = client.head()
    if head is None:
        raise OSError  # a health check
    backend.note(head)
    key = head[1].get("sec-websocket-key", "")
    magic = key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
    accept = base64.b64encode(hashlib.sha1(magic.encode()).digest()).decode()
    client.send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                f"Connection: Upgrade\r\nSec-WebSocket-Accept: {accept}\r\n{extra}\r\n")
    return head


def echo_tunnel(client, backend):
    """A WebSocket whose bytes come back as they are."""
    accept_websocket(client, backend)
    while True:
        if client.buffer:
            client.send(client.buffer)
            client.buffer = b""
        if not client.more():
            client.sock.shutdown(socket.SHUT_WR)
            return


def wait_for(fact, seconds=PATIENCE_S):
    deadline = time.monotonic() + seconds
    while not fact():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
