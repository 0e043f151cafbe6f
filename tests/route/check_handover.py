"""What a proxy does while another program takes over (SIGUSR2): connections that end at
the worst moment, listeners that its configuration has no more."""
import contextlib
import fcntl
import os
import pathlib
import signal
import socket
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from proxykit import Backend, Client, Keel, Sessions, echo_tunnel, wait_for  # noqa: E402


def config(backend, more="", listen="127.0.0.1:0"):
    return (f"admin: 127.0.0.1:0\nhealth_interval: 100ms\n{more}\n"
            f"listeners:\n  - listen: {listen}\n"
            f"backends:\n  - {{name: a, address: '127.0.0.1:{backend.port}'}}\n")


@contextlib.contextmanager
def held_back(path):
    """Whoever opens the file waits, as its lease is asked back, until the end; is_met()
    says that one does."""
    met = []
    before = signal.signal(signal.SIGIO, lambda *_: met.append(1))
    file = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError as e:
            raise unittest.SkipTest(f"no leases on this file system: {e}") from e
        yield lambda: bool(met)
    finally:
        os.close(file)  # and with it goes the lease
        signal.signal(signal.SIGIO, before)


class Case(Sessions, unittest.TestCase):
    def setUp(self):
        self.backend = Backend(echo_tunnel)
        self.addCleanup(self.backend.close)

    def keel(self, text, **kw):
        """Its end is the test's matter; what took over ends with the test."""
        k = Keel(text, **kw)

        def end():
            for r in k.records("upgraded"):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(r["pid"]), signal.SIGKILL)
            k.process.kill()
            k.process.wait()
            k.process.stdout.close()
            k.log.close()
            k.folder.cleanup()
        self.addCleanup(end)
        return k

    def ended(self, k):
        self.assertEqual(k.process.wait(timeout=60), 0, k.output())


class Descriptors(Case):
    def test_a_connection_that_ends_while_the_program_starts_is_watched_no_more(self):
        """Until it is executed, the child has every descriptor: a socket that is closed in
        that moment lives on, and so would its events."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        program = pathlib.Path(folder.name, "keel")
        program.write_text(f"#!/bin/sh\nexec '{os.environ['KEEL']}' \"$@\"\n")
        program.chmod(0o755)
        k = self.keel(config(self.backend), program=str(program))
        clients = [self.open(k) for _ in range(3)]
        with held_back(program) as is_met:
            k.process.send_signal(signal.SIGUSR2)
            self.assertTrue(wait_for(is_met, 30), k.output())
            for c in clients:
                c.close()  # readable in what watches it, for as long as the child waits
            self.assertTrue(wait_for(lambda: len(k.records("session_end")) == 3),
                            k.output())
            for _ in range(3):
                c = self.open(k)  # turns of the same loop
                self.echo(c)
                c.close()
            self.assertEqual(k.records("upgrading"), [], "the child did not wait")
        self.assertTrue(wait_for(lambda: k.records("upgraded"), 60), k.output())
        self.ended(k)


class Reloads(Case):
    def test_a_reload_waits_for_a_program_that_fails(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        program = pathlib.Path(folder.name, "keel")
        program.write_text("#!/bin/sh\nexit 1\n")
        program.chmod(0o755)
        k = self.keel(config(self.backend), program=str(program))
        with held_back(program) as is_met:
            k.process.send_signal(signal.SIGUSR2)
            self.assertTrue(wait_for(is_met, 30), k.output())
            k.process.send_signal(signal.SIGHUP)
        self.assertTrue(wait_for(lambda: k.records("reloaded")), k.output())
        self.assertTrue(k.records("upgrade_failed"), k.output())
        self.open(k)


class Listeners(Case):
    def come(self, connect, bad, n):
        """One client after another, until nobody listens there."""
        while True:
            try:
                c = Client(sock=connect())
            except OSError:
                return
            try:
                if c.upgrade()[0] not in (101, 503):
                    bad.append("what?")
                n[0] += 1
            except (OSError, TypeError) as e:
                bad.append(repr(e))
            c.close()

    def upgraded_without(self, listen, connect):
        """Clients come to `listen` while a program takes over that has it no more."""
        less = config(self.backend, "threads: 2\nlog_sessions: off")
        k = self.keel(less.replace("backends:", f"  - listen: {listen}\nbackends:"))
        k.write(less)
        bad, n = [], [0]
        threads = [threading.Thread(target=self.come, args=(connect, bad, n))
                   for _ in range(3)]
        for t in threads:
            t.start()
        self.assertTrue(wait_for(lambda: n[0] > 10))
        k.process.send_signal(signal.SIGUSR2)
        for t in threads:
            t.join()
        self.assertEqual(bad, [], k.output())
        self.ended(k)
        self.open(k)

    def test_who_connected_before_a_listener_went_with_an_upgrade_is_answered(self):
        with socket.create_server(("127.0.0.1", 0)) as s:
            port = s.getsockname()[1]
        self.upgraded_without(f"127.0.0.1:{port}", lambda: socket.create_connection(
            ("127.0.0.1", port), timeout=20))

    def test_a_reload_in_the_middle_loses_nobody_and_is_the_new_programs(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        program = pathlib.Path(folder.name, "keel")
        program.write_text(f"#!/bin/sh\nexec '{os.environ['KEEL']}' \"$@\"\n")
        program.chmod(0o755)
        with socket.create_server(("127.0.0.1", 0)) as s:
            port = s.getsockname()[1]
        less = config(self.backend, "log_sessions: off")
        k = self.keel(less.replace("backends:", f"  - listen: 127.0.0.1:{port}\nbackends:"),
                      program=str(program))
        bad, n = [], [0]
        thread = threading.Thread(target=self.come, args=(lambda: socket.create_connection(
            ("127.0.0.1", port), timeout=20), bad, n))
        with held_back(program) as is_met:
            k.process.send_signal(signal.SIGUSR2)
            self.assertTrue(wait_for(is_met, 30), k.output())
            k.write(less)
            k.process.send_signal(signal.SIGHUP)
            thread.start()
            self.assertTrue(wait_for(lambda: n[0] > 10 or bad), k.output())
        thread.join()
        self.assertEqual(bad, [], k.output())
        self.ended(k)
        self.assertTrue(wait_for(lambda: k.records("reloaded")), k.output())
        self.open(k)

    def test_a_socket_file_goes_with_its_listener(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = f"{folder.name}/s"

        def connect():
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(20)
            try:
                s.connect(path)
            except OSError:
                s.close()
                raise
            return s
        self.upgraded_without(f"'unix:{path}'", connect)
        self.assertFalse(os.path.exists(path))


if __name__ == "__main__":
    unittest.main(verbosity=2)
