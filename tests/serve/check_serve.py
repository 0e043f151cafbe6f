"""keel serve as a program: options, exit codes, signals, TLS, sockets, silence."""
import http.client
import json
import os
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import unittest
import urllib.request

import keelkit

MODEL = keelkit.need_model()
LONG = {"messages": [{"role": "user", "content": "Tell a very long story."}],
        "max_tokens": 200, "ignore_eos": True, "stream": True}


def connect(server):
    return http.client.HTTPConnection("127.0.0.1", server.port, timeout=240)


def ask(c, body):
    c.request("POST", "/v1/chat/completions", json.dumps(body))
    return c.getresponse()


class Options(unittest.TestCase):
    def run_serve(self, *args, code):
        r = keelkit.keel("serve", *args)
        self.assertEqual(r.returncode, code, r.stderr)
        return r.stderr

    def test_check_loads_everything_and_binds_nothing(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            listen = f"127.0.0.1:{taken.getsockname()[1]}"
            self.run_serve(MODEL, "--ctx", "256", "--check", "--listen", listen, code=0)
            message = self.run_serve(MODEL, "--ctx", "256", "--listen", listen, code=1)
            self.assertIn(listen, message)

    def test_bad_options_end_with_2_and_say_why(self):
        for args, words in ((["--ctx", "99999999"], ["ctx"]), (["--ctx", "100000"], ["100000"]),
                            (["--kv-memory", "1000"], ["kv_memory", "1000"]),
                            (["--kv-dtype", "int3"], ["int3", "bf16"]),
                            (["--max-seq", "3"], ["--max-seqs"]),
                            (["--tls-cert", "x.pem"], ["--tls-key"]),
                            (["--api-key-file", "/nonexistent"], ["/nonexistent"])):
            message = self.run_serve(MODEL, *args, code=2)
            for word in words:
                self.assertIn(word, message)
        self.run_serve(code=2)

    def test_a_bad_file_ends_with_3_and_names_it(self):
        self.assertIn(__file__, self.run_serve(__file__, code=3))
        self.assertIn("nonexistent.gguf", self.run_serve("nonexistent.gguf", code=3))

    def test_a_configuration_file_gives_defaults(self):
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as f:
            f.write("ctx: 128\nmodel_name: configured\nmax_seqs: 2\n")
            f.flush()
            server = keelkit.Server(MODEL, "--config", f.name, "--max-seqs", "3")
        try:
            model = json.loads(server.get("/v1/models"))["data"][0]
            self.assertEqual((model["id"], model["max_model_len"]), ("configured", 128))
            self.assertIn('max_seqs="3"', server.get("/metrics"))
        finally:
            server.stop()


class Signals(unittest.TestCase):
    def test_sigint_ends_with_130(self):
        server = keelkit.Server(MODEL, "--ctx", "256")
        server.process.send_signal(signal.SIGINT)
        self.assertEqual(server.process.wait(240), 130)
        server.stop()

    def test_a_second_signal_cancels_what_is_under_way(self):
        server = keelkit.Server(MODEL, "--ctx", "4096")
        c = connect(server)
        r = ask(c, {**LONG, "max_tokens": 3000})
        r.read(10)
        server.process.terminate()
        time.sleep(0.3)
        self.assertIsNone(server.process.poll())
        server.process.terminate()
        self.assertEqual(server.process.wait(240), 0)
        text = r.read().decode()
        self.assertIn('"finish_reason":"abort"', text)
        server.stop()

    def test_while_draining_new_requests_are_refused(self):
        server = keelkit.Server(MODEL, "--ctx", "2048")
        kept = connect(server)
        kept.request("GET", "/health")
        kept.getresponse().read()
        c = connect(server)
        r = ask(c, {**LONG, "max_tokens": 300})
        r.read(10)
        server.process.terminate()
        time.sleep(0.2)
        with self.assertRaises(OSError):
            ask(connect(server), LONG).read()
        self.assertIn(b"[DONE]", r.read())
        self.assertEqual(server.process.wait(240), 0)
        server.stop()


class Transport(unittest.TestCase):
    def test_a_silent_stream_gets_comments(self):
        server = keelkit.Server(MODEL, "--ctx", "2048", "--max-seqs", "1", "--keep-alive", "250ms")
        try:
            first, second = connect(server), connect(server)
            running = ask(first, {**LONG, "max_tokens": 1500})
            running.read(10)
            waiting = ask(second, {**LONG, "max_tokens": 1})
            self.assertEqual(waiting.status, 200)
            self.assertTrue(waiting.read(14).startswith(b": keep-alive\n\n"))
            first.close()
            running.close()
            text = waiting.read().decode()
            self.assertTrue(text.rstrip().endswith("[DONE]"))
        finally:
            self.assertEqual(server.stop(), 0)

    def test_tls_is_served(self):
        openssl = keelkit.need_program("openssl")
        with tempfile.TemporaryDirectory() as d:
            cert, key = os.path.join(d, "cert.pem"), os.path.join(d, "key.pem")
            subprocess.run([openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt",
                            "ec_paramgen_curve:P-256", "-nodes", "-keyout", key, "-out", cert,
                            "-days", "2", "-subj", "/CN=localhost",
                            "-addext", "subjectAltName=IP:127.0.0.1"],
                           check=True, capture_output=True)
            server = keelkit.Server(MODEL, "--ctx", "256", "--tls-cert", cert, "--tls-key", key,
                                    tls=True)
            try:
                context = ssl.create_default_context(cafile=cert)
                body = json.dumps({**LONG, "max_tokens": 3}).encode()
                with urllib.request.urlopen(urllib.request.Request(
                        server.url + "/v1/chat/completions", body), context=context) as r:
                    self.assertIn(b"[DONE]", r.read())
            finally:
                self.assertEqual(server.stop(), 0)

    def test_the_page_and_its_parts_are_embedded(self):
        server = keelkit.Server(MODEL, "--ctx", "256")
        try:
            page = server.get("/")
            self.assertIn("<!doctype html>", page.lower())
            with urllib.request.urlopen(server.url + "/chat.js") as r:
                self.assertIn("text/javascript", r.headers["Content-Type"])
                self.assertIn("default-src 'self'", r.headers["Content-Security-Policy"])
        finally:
            self.assertEqual(server.stop(), 0)

    def test_a_client_that_does_not_read_is_dropped_and_others_go_on(self):
        server = keelkit.Server(MODEL, "--ctx", "512")
        try:
            lazy = socket.create_connection(("127.0.0.1", server.port))
            lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            body = json.dumps({**LONG, "n": 4, "logprobs": True, "top_logprobs": 20}).encode()
            lazy.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d"
                         b"\r\n\r\n%s" % (len(body), body))
            text = ask(connect(server), {**LONG, "max_tokens": 30}).read()
            self.assertIn(b"[DONE]", text)
            lazy.close()
        finally:
            self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main()
