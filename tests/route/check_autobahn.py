"""The Autobahn suite's WebSocket cases (PyPI autobahntestsuite) against an echo server of
`websockets`, without and with keel route in between: every verdict must be the same.

usage: check_autobahn.py               the cases that take no minute (as in the test run)
       EK_AUTOBAHN=all                 all 301: two or three minutes
       check_autobahn.py run URL [PATTERN...]   one side alone: a line a case

The suite is of Python 2. `run` converts a copy by lib2to3 (Python 3.12 at most), and stands
in for what its libraries have renamed since. Text is bytes as latin-1 there.
"""
import asyncio
import fnmatch
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import types
import unittest

QUICK = ["1.*", "2.*", "3.*", "4.*", "5.*", "6.*", "7.*", "10.*"]
ALL = ["1.*", "2.*", "3.*", "4.*", "5.*", "6.*", "7.*", "9.*", "10.*"]
NEEDED = ("autobahntestsuite", "autobahn", "twisted", "OpenSSL", "jinja2", "lib2to3",
          "websockets")


# The suite on Python 3 ------------------------------------------------------------------

def wire(text):
    """What Python 2's str is to a socket."""
    if not isinstance(text, str):
        return text
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode()


def as_str(data):
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data).decode("latin-1")
    return tuple(map(as_str, data)) if isinstance(data, (list, tuple)) else data


def converted(folder):
    """A copy of the suite in folder, in Python 3."""
    # Not imported: that needs Python 2.
    source = pathlib.Path(importlib.util.find_spec("autobahntestsuite").origin).parent
    copy = pathlib.Path(folder) / source.name
    shutil.copytree(source, copy)
    subprocess.run([sys.executable, "-W", "ignore", "-m", "lib2to3", "-w", "-n", folder],
                   check=True, capture_output=True)
    for file in (copy / "case").glob("*.py"):
        text = file.read_text(encoding="utf-8")
        # Bases in an order that Python 3 refuses.
        file.write_text(re.sub(r"\(\s*object\s*,\s*Case\b", "(Case", text), encoding="utf-8")
    sys.path.insert(0, folder)
    return copy


def snake(name):
    return re.sub("[A-Z]", lambda m: "_" + m.group().lower(), name)


def rename_options(cls):
    """camelCase arguments and attributes for a class that has snake_case ones."""
    old = cls.__init__

    def init(self, *args, **words):
        old(self, *args, **{snake(k): v for k, v in words.items()})

    def get(self, name):
        if snake(name) == name:
            raise AttributeError(name)
        return getattr(self, snake(name))
    cls.__init__, cls.__getattr__ = init, get


def stand_in(copy):
    """For names that the suite imports and today's libraries lack."""
    import binascii

    import autobahn.websocket.compress as compress
    import autobahn.websocket.utf8validator as validator
    import zope.interface
    hexlify = binascii.b2a_hex
    binascii.b2a_hex = lambda data, *rest: hexlify(wire(data), *rest).decode() \
        if isinstance(data, str) else hexlify(data, *rest)
    zope.interface.implements = lambda *interfaces: None

    class Validator(validator.Utf8Validator):
        def validate(self, data):
            return super().validate(wire(data))
    validator.Utf8Validator = Validator
    for name in ("Offer", "OfferAccept", "Response", "ResponseAccept"):
        rename_options(getattr(compress, "PerMessageDeflate" + name))
    resources = types.ModuleType("pkg_resources")
    resources.resource_filename = lambda package, name: str(copy / name)
    sys.modules["pkg_resources"] = resources
    for name in ("serializer", "massconnect", "broadcast", "echo", "testee"):
        sys.modules["autobahntestsuite." + name] = types.ModuleType(name)  # not used here


def load_suite():
    """(module of the fuzzing client, list of cases, their set)"""
    from autobahntestsuite import case, caseset, fuzzing
    for one in case.Cases:
        for name in ("PAYLOAD", "PAYLOAD1", "PAYLOAD2"):
            text = getattr(one, name, None)
            if one.__name__.startswith("Case6_2_") and isinstance(text, str):
                setattr(one, name, text.encode().decode("latin-1"))
    case.case.Case.compare = lambda self, a, b: as_str(a) == as_str(b)
    return fuzzing, case.Cases, caseset.CaseSet(
        case.CaseSetname, case.CaseBasename, case.Cases, case.CaseCategories,
        case.CaseSubCategories)


def make_protocol(fuzzing):
    class Protocol(fuzzing.FuzzingClientProtocol):
        def nothing(self, *args, **words):
            pass
        logRxOctets = logTxOctets = logRxFrame = logTxFrame = nothing
        enableWirelog = onConnect = nothing

        def sendFrame(self, opcode, payload=b"", **words):
            return super().sendFrame(opcode, wire(payload), **words)

        def sendMessage(self, payload, isBinary=False, *args, **words):
            return super().sendMessage(wire(payload), isBinary, *args, **words)

        def sendMessageFrameData(self, payload, **words):
            return super().sendMessageFrameData(wire(payload), **words)

        def sendCloseFrame(self, code=None, reasonUtf8=None, isReply=False):
            return super().sendCloseFrame(code, wire(reasonUtf8), isReply)

        def failConnection(self, *args):
            return self._fail_connection()

        def onPong(self, payload):
            self.runCase.onPong(as_str(payload))

        def onMessage(self, payload, isBinary):
            self.runCase.onMessage(as_str(payload), isBinary)

        def onClose(self, clean, code, reason):
            if self.runCase:
                self.runCase.onClose(clean, code, reason)

        def connectionLost(self, reason):
            try:
                super().connectionLost(reason)
            except Exception:  # what writes reports is of Python 2's age
                self.factory.tell(self.runCase.behavior, self.runCase.behaviorClose)
    return Protocol


def run(url, patterns):
    with tempfile.TemporaryDirectory() as folder:
        stand_in(converted(folder))
        fuzzing, cases, case_set = load_suite()
        from autobahn.twisted.websocket import WebSocketClientFactory
        from twisted.internet import reactor
        protocol = make_protocol(fuzzing)

        class Factory(WebSocketClientFactory):
            specExcludeAgentCases = []
            CaseSet = case_set
            todo = [i for i in case_set.CasesIndices
                    if any(fnmatch.fnmatch(i, p) for p in patterns)]
            current, is_told = None, True

            def go_on(self):
                if not self.is_told:
                    self.tell("UNTOLD", "UNTOLD")
                if not self.todo:
                    reactor.stop()
                    return
                self.current, self.is_told = self.todo.pop(0), False
                reactor.connectTCP(self.host, self.port, self, timeout=10)

            def buildProtocol(self, address):
                p = protocol()
                p.factory, p.caseAgent = self, "x"
                p.case = self.CaseSet.CasesIndices[self.current]
                p.Case = cases[p.case - 1]
                p.runCase = p.Case(p)
                return p

            def logCase(self, result):
                self.tell(result["behavior"], result["behaviorClose"])

            def tell(self, behavior, close):
                if not self.is_told:
                    self.is_told = True
                    print(f"{self.current}\t{behavior}\t{close}", flush=True)

            def clientConnectionLost(self, connector, reason):
                reactor.callLater(0, self.go_on)

            def clientConnectionFailed(self, connector, reason):
                self.tell("NO CONNECTION", "")
                reactor.callLater(0, self.go_on)
        factory = Factory(url)
        factory.setProtocolOptions(failByDrop=False, openHandshakeTimeout=30,
                                   closeHandshakeTimeout=2)
        reactor.callWhenRunning(factory.go_on)
        reactor.run()


async def echo():
    """The server of both sides; prints its port."""
    from websockets.asyncio.server import serve
    from websockets.exceptions import ConnectionClosed

    async def handler(ws):
        try:
            async for message in ws:
                await ws.send(message)
        except ConnectionClosed:
            pass
    async with serve(handler, "127.0.0.1", 0, max_size=64 << 20, compression=None,
                     ping_interval=None) as server:
        print(server.sockets[0].getsockname()[1], flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


# The test -------------------------------------------------------------------------------

class Autobahn(unittest.TestCase):
    def verdicts(self, port, patterns, at_least=200):
        got = subprocess.run(
            [sys.executable, "-W", "ignore", __file__, "run", f"ws://127.0.0.1:{port}/",
             *patterns], capture_output=True, text=True, timeout=540, check=False,
            env={**os.environ, "AUTOBAHN_USE_NVX": "0"})
        found = dict(line.split("\t", 1) for line in got.stdout.splitlines()
                     if line.count("\t") == 2)
        self.assertGreater(len(found), at_least, got.stderr[-2000:])
        return found

    def test_every_verdict_is_the_same_with_the_proxy_between(self):
        from proxykit import Proxy, wait_for
        patterns = ALL if os.environ.get("EK_AUTOBAHN") == "all" else QUICK
        server = subprocess.Popen([sys.executable, __file__, "echo"], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)
        try:
            port = int(server.stdout.readline())
            without = self.verdicts(port, patterns)
            with Proxy([port], logs_sessions=0) as proxy:
                behind = self.verdicts(proxy.port, patterns)
                # Some cases hang on a second's passing: what differs is asked for again.
                for _ in range(4):
                    differ = [k for k, v in without.items() if behind.get(k) != v]
                    if not differ:
                        break
                    without |= self.verdicts(port, differ, 0)
                    behind |= self.verdicts(proxy.port, differ, 0)
                self.assertTrue(wait_for(lambda: proxy.metric("placements") == 0))
        finally:
            server.kill()
            server.wait()
            server.stdin.close()
            server.stdout.close()
        print(f"{len(behind)} cases: {sum(v.startswith('OK') for v in behind.values())} OK, "
              f"{sum(v.startswith('NON-STRICT') for v in behind.values())} not strict, "
              f"{len(behind) - sum(v.startswith(('OK', 'NON-STRICT')) for v in behind.values())}"
              " others")
        self.assertEqual({k: (v, behind.get(k)) for k, v in without.items()
                          if behind.get(k) != v}, {})


if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        run(sys.argv[2], sys.argv[3:] or ALL)
    elif sys.argv[1:2] == ["echo"]:
        asyncio.run(echo())
    else:
        sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
        from proxykit import keelkit, need_probe
        need_probe()
        for module in NEEDED:
            if importlib.util.find_spec(module) is None:
                keelkit.skip(f"the Python module {module} is not installed")
        unittest.main(warnings="ignore")
