"""fake_server.py - an OpenAI-compatible server that behaves as a script tells it: what a
load generator must measure rightly, and every way to misbehave."""
import http.server
import json
import socket
import threading
import time


def chunk(**choice):
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, **choice}]}


ROLE = chunk(delta={"role": "assistant", "content": ""}, finish_reason=None)
LAST = chunk(delta={}, finish_reason="length")


def token(text="tok "):
    return chunk(delta={"content": text}, finish_reason=None)


def usage(prompt, completion, cached=0):
    return {"choices": [], "usage": {
        "prompt_tokens": prompt, "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached}}}


class Request:
    """One request and its answer. Times are seconds since the server began."""

    def __init__(self, handler, body, number):
        self.handler, self.body, self.number = handler, body, number
        self.path, self.headers = handler.path, handler.headers
        self.at = time.monotonic() - handler.server.began
        self.is_begun = self.has_left = False

    @property
    def prompt(self):
        return self.body.get("prompt") or self.body["messages"][0]["content"]

    @property
    def n_words(self):
        return len(self.prompt.split())

    def begin(self, status=200, kind="text/event-stream"):
        self.is_begun = True
        self.raw(b"HTTP/1.1 %d X\r\nContent-Type: %s\r\nTransfer-Encoding: chunked\r\n\r\n"
                 % (status, kind.encode()))

    def raw(self, data):
        self.handler.wfile.write(data)
        self.handler.wfile.flush()

    def send(self, data):
        if not self.is_begun:
            self.begin()
        self.raw(b"%x\r\n%s\r\n" % (len(data), data))

    def event(self, value):
        text = value if isinstance(value, str) else json.dumps(value)
        self.send(f"data: {text}\n\n".encode())

    def end(self):
        self.leave()
        self.raw(b"0\r\n\r\n")

    def leave(self):
        """Under way no more: told before the client can know, which then sends the next."""
        server = self.handler.server
        with server.lock:
            server.n_running -= not self.has_left
            self.has_left = True

    def refuse(self, status, message):
        data = json.dumps({"error": {"message": message, "code": status}}).encode()
        self.raw(b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\n"
                 b"Content-Length: %d\r\n\r\n%s" % (status, len(data), data))

    def hang_up(self):
        """Ends the connection in the middle of the answer."""
        self.handler.close_connection = True
        self.handler.connection.shutdown(socket.SHUT_RDWR)

    def answer(self, n=None, before=0.0, between=0.0, prompt=None):
        """A proper answer: role, n tokens, the end, usage."""
        n = self.body["max_tokens"] if n is None else n
        self.event(ROLE)
        time.sleep(before)
        for i in range(n):
            if i:
                time.sleep(between)
            self.event(token())
        self.event(LAST)
        self.event(usage(self.n_words if prompt is None else prompt, n))
        self.event("[DONE]")
        self.end()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *args):
        pass

    def do_GET(self):
        data = json.dumps({"object": "list", "data": self.server.models}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_POST(self):
        text = self.rfile.read(int(self.headers["Content-Length"]))
        request = Request(self, json.loads(text), 0)
        server = self.server
        with server.lock:
            request.number = len(server.requests)
            server.requests.append(request)
            server.n_running += 1
            server.peak = max(server.peak, server.n_running)
        try:
            server.script(request)
        except OSError:
            self.close_connection = True
        finally:
            request.leave()


class FakeServer(http.server.ThreadingHTTPServer):
    """script(request) answers each POST; requests are kept."""
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, script, models=({"id": "fake"},)):
        super().__init__(("127.0.0.1", 0), Handler)
        self.script, self.models = script, list(models)
        self.lock = threading.Lock()
        self.requests, self.n_running, self.peak = [], 0, 0
        self.began = time.monotonic()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.thread = threading.Thread(target=self.serve_forever, args=(0.05,))
        self.thread.start()

    def die(self):
        """No connection is taken any more."""
        self.shutdown()
        self.socket.close()

    def handle_error(self, *args):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *args):
        self.shutdown()
        self.server_close()
        self.thread.join()
