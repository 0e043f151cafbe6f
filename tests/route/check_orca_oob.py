"""keel route hears reports out of band: OpenRcaService of grpcio's servers, of one that
has none, of one that comes back."""
import pathlib
import struct
import sys
import tempfile
import threading
import time
import unittest
from concurrent import futures

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from proxykit import Keel, Proxy, hold_port, wait_for  # noqa: E402
import keelkit  # noqa: E402

try:
    import grpc
except ImportError:
    keelkit.skip("the Python package grpcio is not installed")


def named(key, value):
    entry = b"\x0a" + bytes([len(key)]) + key.encode() + b"\x11" + struct.pack("<d", value)
    return b"\x42" + bytes([len(entry)]) + entry


def report(capacity, active):
    """An OrcaLoadReport, by hand."""
    return (b"\x09" + struct.pack("<d", 0.25) + named("effective_capacity", capacity) +
            named("active_sessions", active))


class Reporter:
    def __init__(self, port=0, has_service=True, data=None, key=None):
        self.requests, self.n_calls, self.stops = [], 0, threading.Event()
        self.data, self.key, self.said = data, key, []
        self.server = grpc.server(futures.ThreadPoolExecutor(8),
                                  options=[("grpc.so_reuseport", 0)])
        if has_service:
            self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(
                "xds.service.orca.v3.OpenRcaService", {
                    "StreamCoreMetrics": grpc.unary_stream_rpc_method_handler(
                        self.reports)}),))
        else:
            self.server.add_generic_rpc_handlers((self,))
        self.port = self.server.add_insecure_port(f"127.0.0.1:{port}")
        self.server.start()

    def service(self, details):
        self.n_calls += 1  # and none is found: UNIMPLEMENTED
        return None

    def reports(self, request, ctx):
        self.requests.append(request)
        self.said.append(dict(ctx.invocation_metadata()).get("authorization"))
        if self.key and self.said[-1] != f"Bearer {self.key}":
            ctx.abort(grpc.StatusCode.UNAUTHENTICATED, "who are you?")
        n = 0
        while ctx.is_active() and not self.stops.is_set():
            n += 1
            yield self.data or report(40.0 + n, 3.0)
            time.sleep(0.1)

    def close(self):
        self.stops.set()
        self.server.stop(0).wait()


class Oob(unittest.TestCase):
    def start(self, *reporters, **settings):
        for r in reporters:
            self.addCleanup(r.close)
        proxy = Proxy([r.port for r in reporters], "h2=1", "orca=1", **settings)
        self.addCleanup(proxy.__exit__, None)
        return proxy

    def test_reports_of_each_backend_become_its_capacity(self):
        reporters = [Reporter(), Reporter()]
        proxy = self.start(*reporters, report_interval_us=1500000)
        for name in ("b0", "b1"):
            self.assertTrue(wait_for(
                lambda: (proxy.backends()[name].get("effective_capacity") or 0) > 42),
                proxy.backends())
        # The interval asked for: 1 s and 500,000,000 ns.
        self.assertEqual(reporters[0].requests,
                         [b"\x0a\x08\x08\x01\x10\x80\xca\xb5\xee\x01"])

    def test_one_that_has_no_service_is_asked_once(self):
        reporter = Reporter(has_service=False)
        proxy = self.start(reporter)
        self.assertTrue(wait_for(lambda: "no_orca" in proxy.output()))
        time.sleep(2.5)
        self.assertEqual(reporter.n_calls, 1)

    def test_one_that_went_and_came_is_heard_again(self):
        held = hold_port()  # nobody else gets it meanwhile
        self.addCleanup(held.close)
        first = Reporter(port=held.getsockname()[1])
        proxy = self.start(first)
        self.assertTrue(wait_for(lambda: proxy.backends()["b0"]["effective_capacity"]))
        first.close()
        second = Reporter(port=first.port, data=report(77.0, 1.0))
        self.addCleanup(second.close)
        self.assertTrue(wait_for(
            lambda: proxy.backends()["b0"]["effective_capacity"] == 77.0),
            proxy.backends())

    def test_a_key_is_shown_and_read_again_with_the_configuration(self):
        reporter = Reporter(key="s3cret")
        self.addCleanup(reporter.close)
        with tempfile.TemporaryDirectory() as folder:
            key = pathlib.Path(folder, "key")
            key.write_text("wrong\n")
            k = Keel("admin: 127.0.0.1:0\nlisteners:\n  - listen: 127.0.0.1:0\n"
                     "log_level: debug\nreport_interval: 100ms\nbackends:\n"
                     f"  - {{name: a, address: '127.0.0.1:{reporter.port}', "
                     f"protocol: http2, reports: orca, report_key_file: {key}}}\n")
            self.addCleanup(k.__exit__, None)
            self.assertTrue(wait_for(lambda: "Bearer wrong" in reporter.said))
            self.assertFalse(k.backends()["a"]["has_report"])
            key.write_text("s3cret\n")
            k.post("/reload")
            self.assertTrue(wait_for(lambda: k.backends()["a"]["has_report"]),
                            k.backends())
            self.assertGreater(k.backends()["a"]["effective_capacity"], 40)
            self.assertNotIn("s3cret", k.output() + k.get("/backends"))

    def test_nonsense_is_refused_and_harms_nobody(self):
        reporter = Reporter(data=b"\x09\x01")
        proxy = self.start(reporter)
        self.assertTrue(wait_for(lambda: reporter.requests))
        time.sleep(0.5)
        self.assertFalse(proxy.backends()["b0"].get("effective_capacity"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
