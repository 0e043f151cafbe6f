"""keel chat: answers once, converses on a terminal, obeys commands, Ctrl-C stops the
answer and not the program; the same against a server with --url."""
import http.server
import json
import os
import pty
import select
import signal
import subprocess
import tempfile
import threading
import time
import unittest

from keelkit import Server, keel, need_keel, need_model, skip

MODEL = need_model()


class Terminal:
    """keel chat on a pseudo-terminal."""

    def __init__(self, *args):
        try:
            self.pid, self.fd = pty.fork()
        except OSError as e:
            skip(f"no pseudo-terminal here ({e})")
        if self.pid == 0:
            os.environ["TERM"] = "dumb"
            os.execv(need_keel(), ["keel", "chat", *args])
        self.seen = ""

    def wait_for(self, text, seconds=240):
        """Reads until text appeared after what was waited for before; returns what came."""
        deadline = time.monotonic() + seconds
        while text not in self.seen:
            if time.monotonic() > deadline:
                raise AssertionError(f"{text!r} did not come; seen: {self.seen!r}")
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    self.seen += os.read(self.fd, 65536).decode("utf-8", "replace")
                except OSError:
                    raise AssertionError(f"ended without {text!r}: {self.seen!r}")
        before, self.seen = self.seen.split(text, 1)
        return before

    def type(self, text):
        os.write(self.fd, text.encode())

    def end(self):
        self.type("\x04")
        return self.wait_end()

    def wait_end(self):
        deadline = time.monotonic() + 240
        while time.monotonic() < deadline:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            if select.select([self.fd], [], [], 0.05)[0]:
                try:
                    os.read(self.fd, 65536)
                except OSError:
                    pass
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        raise AssertionError("keel chat did not end")


class Ask(unittest.TestCase):
    def test_ask_answers_once_on_standard_output(self):
        done = keel("chat", MODEL, "--ask", "What is the capital of France?",
                    "--temperature", 0, "-n", 30)
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertIn("Paris", done.stdout)
        self.assertTrue(done.stdout.endswith("\n"))

    def test_a_conversation_comes_line_by_line_when_input_is_no_terminal(self):
        done = keel("chat", MODEL, "--temperature", 0, "-n", 12,
                    input="Say yes.\n/reset\nSay no.\n")
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertGreaterEqual(len(done.stdout.strip().split("\n")), 2)
        self.assertIn("starts over", done.stderr)

    def test_neither_model_nor_url_is_a_usage_error(self):
        done = keel("chat")
        self.assertEqual(2, done.returncode)
        self.assertIn("MODEL or --url", done.stderr)

    def test_a_missing_file_is_an_input_error(self):
        done = keel("chat", "/nowhere/model.gguf")
        self.assertEqual(3, done.returncode)
        self.assertIn("/nowhere/model.gguf", done.stderr)
        self.assertEqual(1, done.stderr.count("\n"))

    def test_a_server_that_is_not_there_is_one_sentence(self):
        done = keel("chat", "--url", "http://127.0.0.1:9", "--ask", "Hi")
        self.assertEqual(1, done.returncode)
        self.assertEqual(1, done.stderr.count("\n"), done.stderr)


class OnATerminal(unittest.TestCase):
    def test_answers_stream_commands_are_obeyed_and_history_is_kept(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "talk.json")
            t = Terminal(MODEL, "--temperature", "0", "-n", "24", "--system", "Be brief.")
            t.wait_for("> ")
            t.type("What is the capital of France?\n")
            t.wait_for("tok/s")
            t.wait_for("> ")
            t.type("/system\n")
            t.wait_for("Be brief.")
            t.wait_for("> ")
            t.type("And of Italy?\n")
            t.wait_for("tok/s")
            t.wait_for("> ")
            t.type(f"/save {path}\n")
            t.wait_for("saved 5 messages")
            t.wait_for("> ")
            t.type("/reset\n")
            t.wait_for("starts over")
            t.wait_for("> ")
            self.assertEqual(0, t.end())
            with open(path, encoding="utf-8") as f:
                roles = [m["role"] for m in json.load(f)]
            self.assertEqual(["system", "user", "assistant", "user", "assistant"], roles)

    def test_ctrl_c_stops_the_answer_and_not_the_program(self):
        t = Terminal(MODEL, "--temperature", "0", "-n", "4000")
        t.wait_for("> ")
        t.type("Count from one to one thousand in words.\n")
        t.wait_for(" ")
        time.sleep(1)
        os.kill(t.pid, signal.SIGINT)
        t.wait_for("> ")
        t.type("/help\n")
        t.wait_for("/save FILE")
        t.wait_for("> ")
        self.assertEqual(0, t.end())

    def test_what_is_typed_during_an_answer_waits_for_the_next_line(self):
        for early in ("\x04", "/help\n\x04"):
            t = Terminal(MODEL, "--temperature", "0", "-n", "40")
            t.wait_for("> ")
            t.type("Count to twenty in words.\n")
            t.wait_for("\n")
            t.type(early)
            t.wait_for("tok/s")
            self.assertEqual(0, t.wait_end())

    def test_ctrl_c_at_the_prompt_throws_the_line_away(self):
        t = Terminal(MODEL, "-n", "8")
        t.wait_for("> ")
        t.type("half a question")
        t.wait_for("question")
        os.kill(t.pid, signal.SIGINT)
        t.wait_for("> ")
        t.type("/help\n")
        t.wait_for("/save FILE")
        t.wait_for("> ")
        self.assertEqual(0, t.end())

    def test_characters_of_several_bytes_are_taken_whole(self):
        t = Terminal(MODEL, "-n", "8")
        t.wait_for("> ")
        t.type("/caf\u00e9\u65e5\n")
        t.wait_for("\n")
        self.assertIn("/caf\u00e9\u65e5", t.wait_for("> "))
        self.assertEqual(0, t.end())


class AgainstAServer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(MODEL, env={"EVENKEEL_API_KEY": "sesame"})
        cls.addClassCleanup(cls.server.stop)

    def chat(self, *args, key="sesame"):
        return keel("chat", "--url", self.server.url, *args,
                    env={**os.environ, "EVENKEEL_API_KEY": key})

    def test_the_answer_is_that_of_the_model_behind_the_server(self):
        args = ("--ask", "What is the capital of France?", "--temperature", 0, "-n", 30)
        there, here = self.chat(*args), keel("chat", MODEL, *args)
        self.assertEqual(0, there.returncode, there.stderr)
        self.assertEqual(here.stdout, there.stdout)

    def test_the_servers_own_sentence_is_shown(self):
        done = self.chat("--ask", "Hi", key="wrong")
        self.assertEqual(1, done.returncode)
        self.assertIn("key", done.stderr)
        done = self.chat("--ask", "Hi", "--model-name", "nobody")
        self.assertEqual(1, done.returncode)
        self.assertIn("nobody", done.stderr)


class HostileServer(unittest.TestCase):
    """A server whose model's name and words want to drive the terminal."""

    NAME = "m\x1b]0;title\x07"
    WORDS = "a\x1b]52;c;aGk=\x07b\x9b31mc\td\ne\x7f"

    @classmethod
    def setUpClass(cls):
        class Handler(http.server.BaseHTTPRequestHandler):
            def send(self, kind, text):
                data = text.encode()
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do_GET(self):
                self.send("application/json", json.dumps({"data": [{"id": cls.NAME}]}))

            def do_POST(self):
                event = json.dumps({"choices": [{"delta": {"content": cls.WORDS}}]})
                self.send("text/event-stream", f"data: {event}\n\ndata: [DONE]\n\n")

            def log_message(self, *args):
                pass

        server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        cls.addClassCleanup(server.server_close)
        cls.addClassCleanup(server.shutdown)
        cls.url = f"http://127.0.0.1:{server.server_port}"

    def test_a_terminal_sees_control_characters_written_out(self):
        t = Terminal("--url", self.url)
        seen = t.wait_for("> ")
        self.assertIn("m\\x1b]0;title\\x07", seen)
        t.type("hi\n")
        t.wait_for("a\\x1b]52;c;aGk=\\x07b\\x9b31mc\td\r\ne\\x7f")
        t.wait_for("> ")
        self.assertEqual(0, t.end())

    def test_a_file_gets_the_bytes_as_they_are(self):
        done = keel("chat", "--url", self.url, "--ask", "hi")
        self.assertEqual(0, done.returncode, done.stderr)
        self.assertEqual(self.WORDS + "\n", done.stdout)

    def test_output_that_takes_nothing_is_an_error(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            for args in (["--ask", "hi"], []):
                done = subprocess.run([need_keel(), "chat", "--url", self.url, *args],
                                      input="hi\nho\n", stdout=full, text=True, timeout=60,
                                      stderr=subprocess.PIPE)
                self.assertEqual(1, done.returncode, done.stderr)
                self.assertIn("standard output", done.stderr)
                self.assertEqual(1, done.stderr.count("\n"), done.stderr)


if __name__ == "__main__":
    unittest.main()
