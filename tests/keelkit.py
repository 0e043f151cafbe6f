"""keelkit.py - what the Python tests share: finding things, starting and asking keel."""
import os
import re
import shutil
import subprocess
import tempfile
import time
import unittest
import urllib.request

# For what must come: it is here in milliseconds, and nothing is said by it that is late on
# a machine ten times slower, under a sanitizer, among other tests.
PATIENCE_S = 120


class Skip(unittest.SkipTest, SystemExit):
    """Inside a test it skips that one; anywhere else it ends the script with 77."""

    def __init__(self, why):
        super().__init__(why)
        self.code = 77


def skip(why):
    print("skipped:", why)
    raise Skip(why)


def need_model():
    """The default model's path; the test is skipped where it was not fetched."""
    path = os.environ.get("EK_MODEL", "")
    return path if os.path.exists(path) else skip("the default model is not fetched")


def need_program(name):
    return shutil.which(name) or skip(f"{name} is not installed")


def is_sanitized(binary):
    """Whether a sanitizer is in it: those keep what was freed, and memory says nothing."""
    with open(binary, "rb") as f:
        code = f.read()
    return b"__asan_init" in code or b"__tsan_init" in code


def need_keel():
    path = os.environ.get("KEEL", "")
    return path if os.path.exists(path) else skip("KEEL names no binary")


def keel(*args, **kwargs):
    """Runs keel to its end and returns the CompletedProcess (text, output captured)."""
    return subprocess.run([need_keel(), *map(str, args)], capture_output=True, text=True,
                          timeout=kwargs.pop("timeout", 1200), **kwargs)


class Server:
    """keel serve on a free port of 127.0.0.1, ready when the constructor returns."""

    def __init__(self, model, *args, env=None, tls=False):
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            [need_keel(), "serve", model, "--listen", "127.0.0.1:0", *map(str, args)],
            stdout=subprocess.DEVNULL, stderr=self.log, env={**os.environ, **(env or {})})
        scheme = "https" if tls else "http"
        deadline = time.monotonic() + PATIENCE_S
        while True:
            match = re.search(r"127\.0\.0\.1:(\d+)", self.output())
            if match and int(match.group(1)):
                break
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("keel serve did not start:\n" + self.output())
            time.sleep(0.02)
        self.port = int(match.group(1))
        self.url = f"{scheme}://127.0.0.1:{self.port}"

    def output(self):
        """What the server wrote on standard error so far."""
        # pread: the server shares this file's offset.
        return os.pread(self.log.fileno(), 1 << 20, 0).decode("utf-8", "replace")

    def get(self, path):
        with urllib.request.urlopen(self.url + path, timeout=240) as answer:
            return answer.read().decode()

    def metric(self, name):
        """The sum of a metric's samples, whatever their labels."""
        values = [float(line.rsplit(" ", 1)[1]) for line in self.get("/metrics").split("\n")
                  if re.match(re.escape(name) + r"[ {]", line)]
        if not values:
            raise KeyError(name)
        return sum(values)

    def stop(self):
        """Ends the server as a supervisor would; returns its exit code."""
        self.process.terminate()
        try:
            return self.process.wait(timeout=240)
        finally:
            self.process.kill()
            self.process.wait()
            self.log.close()
