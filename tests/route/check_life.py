"""The life of a session: which certificate its client gets, what keeps it alive, what ends
it and what is said then."""
import pathlib
import socket
import ssl
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from proxykit import Backend, Client, Proxy, echo_http, need_probe, wait_for  # noqa: E402


class Case(unittest.TestCase):
    def proxy(self, serves, *words, **settings):
        """A proxy in front of backends, one a function; everything ends with the test."""
        self.backends = [Backend(serve) for serve in serves]
        for backend in self.backends:
            self.addCleanup(backend.close)
        return self.proxy_of([b.port for b in self.backends], *words, **settings)

    def proxy_of(self, names, *words, **settings):
        proxy = Proxy(names, *words, **settings)

        def end():
            with proxy:
                self.assertTrue(wait_for(lambda: proxy.metric("placements") == 0),
                                "placements were not given back:\n" + proxy.output())
        self.addCleanup(end)
        return proxy

    def last_end(self, proxy):
        self.assertTrue(wait_for(lambda: proxy.records("session_end")))
        return proxy.records("session_end")[-1]


class Certificates(Case):
    NAMES = {"first": "a.test", "wild": "*.voice.test", "own": "b.voice.test"}

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        for file, name in cls.NAMES.items():
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                            "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                            "-subj", "/CN=t", "-addext", f"subjectAltName=DNS:{name}",
                            "-keyout", f"{cls.folder.name}/{file}.key",
                            "-out", f"{cls.folder.name}/{file}.pem"],
                           check=True, capture_output=True)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def words(self):
        return [w for f in self.NAMES for w in (f"cert={self.folder.name}/{f}.pem",
                                                f"key={self.folder.name}/{f}.key")]

    def meet(self, proxy, name, version=None, alpn=()):
        """The names of the certificate that a client gets who asks for this one."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(cadata="".join(
            pathlib.Path(f"{self.folder.name}/{f}.pem").read_text() for f in self.NAMES))
        if version:
            context.maximum_version = version
        if alpn:
            context.set_alpn_protocols(alpn)
        sock = socket.create_connection(("127.0.0.1", proxy.port), timeout=20)
        with context.wrap_socket(sock, server_hostname=name) as tls:
            self.assertEqual(tls.selected_alpn_protocol(), alpn[0] if alpn else None)
            if not alpn:
                self.assertEqual(Client(sock=tls).get()[0], 200)
            return tls.getpeercert()["subjectAltName"][0][1]

    def test_each_name_gets_its_certificate_and_others_the_first(self):
        proxy = self.proxy([echo_http("a")], *self.words())
        for name, want in (("a.test", "a.test"), ("A.Test", "a.test"),
                           ("x.voice.test", "*.voice.test"),
                           ("b.voice.test", "b.voice.test"),
                           ("x.y.voice.test", "a.test"), ("voice.test", "a.test"),
                           ("other.test", "a.test"), (None, "a.test")):
            for version in (None, ssl.TLSVersion.TLSv1_2):
                self.assertEqual(self.meet(proxy, name, version), want, name)

    def test_protocols_are_agreed_on_with_every_certificate(self):
        proxy = self.proxy([echo_http("a")], *self.words())
        for name in ("a.test", "x.voice.test"):
            for alpn in (["h2"], ["http/1.1"]):
                self.meet(proxy, name, alpn=alpn)

    def test_a_further_certificate_that_cannot_be_used_is_named(self):
        words = self.words()
        words[3], words[5] = words[5], words[3]
        out = subprocess.run([need_probe(), "backend=a=127.0.0.1:1", *words],
                             capture_output=True, text=True, timeout=60)
        self.assertIn("own.key: the key does not belong to the certificate", out.stderr)

    def test_tls_to_a_socket_file_needs_a_name(self):
        out = subprocess.run([need_probe(), "backend=a=unix:/run/a", "tls=1"],
                             capture_output=True, text=True, timeout=60)
        self.assertIn("backend 'a': TLS to a socket file", out.stderr)
        self.assertIn("expected tls_name", out.stderr)

    def test_a_socket_file_is_spoken_to_over_tls_by_name(self):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(f"{self.folder.name}/first.pem",
                                f"{self.folder.name}/first.key")

        def wrapped(client, backend):
            inner = Client(sock=context.wrap_socket(client.sock, server_side=True))
            echo_http("a")(inner, backend)
        path = f"{self.folder.name}/socket"
        backend = Backend(wrapped, path=path)
        self.addCleanup(backend.close)
        proxy = self.proxy_of([f"a=unix:{path}"], "tls=1", "tls_name=a.test",
                              f"ca={self.folder.name}/first.pem")
        client = proxy.connect()
        self.assertEqual(client.get()[0], 200)
        client.close()


if __name__ == "__main__":
    unittest.main(verbosity=2)
