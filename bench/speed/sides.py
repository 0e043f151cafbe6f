"""sides.py - the programs that are measured, each a process that does one repetition when
it is told to, so that several take turns in one run."""
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time


# The peer's memory in pages of 2 MiB, as ours is: 2 to 7 % for its decode, at no cost.
PEER_ENV = {**os.environ, "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


class Jobs:
    """A program that answers job lines by JSON lines; started when first asked."""

    def __init__(self, *command, env=None):
        self.command, self.env = [str(c) for c in command], env
        self.process = None
        self.says_ready = False

    def start(self):
        self.log = tempfile.TemporaryFile()  # progress lines, and why it failed
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.log, text=True,
                                        env=self.env)
        if self.says_ready:
            self.process.stdout.readline()

    def ask(self, *words):
        """The row that answers this job."""
        if not self.process:
            self.start()
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            code = self.process.wait()
            said = os.pread(self.log.fileno(), 1 << 20, 0).decode("utf-8", "replace")
            raise RuntimeError(f"{' '.join(self.command)}: ended with {code} at "
                               f"'{' '.join(map(str, words))}':\n{said[-1000:]}")
        return json.loads(line)

    def rest(self):
        """Frees what the next rows do not need."""

    def close(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait(60)
            self.process = None


class Keel(Jobs):
    def __init__(self, keel, model, threads, *options):
        super().__init__(keel, "bench", "model", model, "--jobs", "--threads", threads,
                         *options)

    def rest(self):
        self.close()


class Peer(Jobs):
    def __init__(self, python, script, model, threads, modes):
        super().__init__(python, script, model, "--threads", threads, "--modes", modes,
                         env=PEER_ENV)
        self.says_ready = True

    def rest(self):
        if self.process:
            self.ask("forget")


class Tools:
    """llama.cpp's own tools for the same jobs: a process for each repetition, in each of
    its modes; the fastest counts."""

    MODES = {"f16": ("0", "f16"), "f16 flash": ("1", "f16"), "q8_0 flash": ("1", "q8_0")}

    def __init__(self, folder, model, threads):
        self.folder, self.model, self.threads = folder, model, threads
        self.modes = {}

    def run(self, tool, flash, kv, *options):
        got = subprocess.run([os.path.join(self.folder, tool), "-m", self.model, "-t",
                              str(self.threads), "-fa", flash, "-ctk", kv, "-ctv", kv,
                              *map(str, options)], capture_output=True, text=True,
                             env=PEER_ENV)
        lines = [line for line in got.stdout.splitlines() if line.startswith("{")]
        if got.returncode or not lines:
            raise RuntimeError(f"{tool}: {got.stderr[-500:]}")
        return json.loads(lines[-1])

    def one(self, mode, kind, n):
        flash, kv = self.MODES[mode]
        if kind == "decode" and n[1] > 1:
            depth, batch, steps = n
            room = -(-(depth + steps) // 256) * 256
            return self.run("llama-batched-bench", "on" if flash == "1" else "off", kv, "-c",
                            batch * room, "-b", 2048, "-ub", 512, "-npp", depth,
                            "-ntg", steps, "-npl", batch, "--output-format",
                            "jsonl")["speed_tg"]
        what = ("-p", n[0], "-n", 0) if kind == "prefill" else (
            "-p", 0, "-n", n[2], "-d", n[0])
        return self.run("llama-bench", flash, kv, *what, "-r", 1, "-o", "jsonl")["avg_ts"]

    def ask(self, kind, *n):
        key = (kind, n)
        if key not in self.modes:
            found = {mode: self.one(mode, kind, n) for mode in self.MODES}
            self.modes[key] = max(found, key=found.get)
        mode = self.modes[key]
        tool = "batched-bench" if kind == "decode" and n[1] > 1 else "bench"
        return {"median": self.one(mode, kind, n), "mode": f"llama-{tool}, {mode}"}


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Server:
    """An HTTP server on 127.0.0.1 that answers /health with 200 when it is ready."""

    def __init__(self, command, port, limit_s=120, env=None):
        self.port = port
        self.log = tempfile.TemporaryFile()
        start = time.perf_counter()
        self.process = subprocess.Popen([str(c) for c in command],
                                        stdout=subprocess.DEVNULL, stderr=self.log,
                                        env=env)
        while not self.is_ready():
            if self.process.poll() is not None or time.perf_counter() - start > limit_s:
                self.close()
                raise RuntimeError(f"{' '.join(map(str, command))} did not start:\n"
                                   + self.said()[-2000:])
            time.sleep(0.002)
        self.start_s = time.perf_counter() - start

    def said(self):
        return os.pread(self.log.fileno(), 1 << 20, 0).decode("utf-8", "replace")

    def is_ready(self):
        try:
            c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=5)
            c.request("GET", "/health")
            return c.getresponse().status == 200
        except OSError:
            return False
        finally:
            c.close()

    def cpu_s(self):
        """Processor seconds of its threads so far, in nanosecond steps."""
        total = 0
        for task in os.scandir(f"/proc/{self.process.pid}/task"):
            with open(os.path.join(task.path, "schedstat")) as f:
                total += int(f.read().split()[0])
        return total / 1e9

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def keel_server(keel, model, threads, *options):
    port = free_port()
    return Server([keel, "serve", model, "--listen", f"127.0.0.1:{port}", "--threads",
                   threads, "--log-level", "error", *options], port)


LLAMA_MODES = {"f16": ("-fa", "off"), "f16 flash": ("-fa", "on"),
               "q8_0 flash": ("-fa", "on", "-ctk", "q8_0", "-ctv", "q8_0")}


def llama_server(folder, model, threads, n_streams, n_ctx, mode):
    port = free_port()
    return Server([os.path.join(folder, "llama-server"), "-m", model, "--host", "127.0.0.1",
                   "--port", port, "-t", threads, "-np", n_streams, "-c",
                   n_streams * n_ctx, "-b", 2048, "-ub", 512, "--no-webui",
                   *LLAMA_MODES[mode]], port, env=PEER_ENV)


def has_option(keel, verb, option):
    got = subprocess.run([keel, *verb.split(), "--help"], capture_output=True, text=True)
    return re.search(rf"^ .*{re.escape(option)}\b", got.stdout, re.M) is not None
