"""proxies.py - the proxies that bench/route.sh compares, each with one thread: how one is
configured and started, which processes are its own.

A proxy gets one listener of a kind: ws (HTTP/1.1 with Upgrade), tls (the same, TLS to the
client), h2 (HTTP/2 in clear, on both sides). All place by the fewest connections, over the
same backends; none logs sessions or requests; no timeout ends a silent one.
"""
import json
import os
import shutil
import signal
import socket
import subprocess
import time

NAMES = ("keel", "haproxy", "nginx", "nghttpx", "envoy")


def keel(b):
    protocol = "http2" if b.kind == "h2" else "http1"
    words = [b.programs["keel"], "route", "--listen", f"127.0.0.1:{b.port}", "--admin", "off",
             "--threads", "1", "--no-log-sessions"]
    for port in b.backends:
        words += ["--backend", f"127.0.0.1:{port},protocol={protocol}"]
    if b.kind == "tls":
        words += ["--tls-cert", b.cert, "--tls-key", b.key]
    return words


def haproxy(b):
    bind = {"ws": "", "tls": f" ssl crt {b.pem} alpn http/1.1", "h2": " proto h2"}[b.kind]
    proto = " proto h2" if b.kind == "h2" else ""
    servers = "\n".join(f"    server b{i} 127.0.0.1:{port}{proto}"
                        for i, port in enumerate(b.backends))
    path = b.write("haproxy.cfg", f"""
global
    nbthread 1
    maxconn {b.limit // 2 - 100}
defaults
    mode http
    timeout connect 5s
    timeout client 1h
    timeout server 1h
    timeout tunnel 1h
frontend front
    bind 127.0.0.1:{b.port}{bind}
    default_backend back
backend back
    balance leastconn
{servers}
""")
    return [b.programs["haproxy"], "-db", "-f", path]


def nginx(b):
    servers = " ".join(f"server 127.0.0.1:{port};" for port in b.backends)
    listen = {"ws": "", "tls": " ssl", "h2": " http2"}[b.kind]
    tls = f"ssl_certificate {b.cert}; ssl_certificate_key {b.key};" if b.kind == "tls" else ""
    upgrade = """proxy_pass http://back; proxy_http_version 1.1;
        proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $keep;
        proxy_read_timeout 1h; proxy_send_timeout 1h;"""
    h2 = """grpc_pass grpc://back; grpc_read_timeout 1h; grpc_send_timeout 1h;
        client_max_body_size 0;"""
    keep = "keepalive 64;" if b.kind == "h2" else ""
    temps = "\n".join(f"    {name}_temp_path {b.folder}/{name};"
                      for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    path = b.write("nginx.conf", f"""
daemon off;
worker_processes 1;
pid {b.folder}/nginx.pid;
error_log {b.folder}/nginx.log error;
worker_rlimit_nofile {b.limit};
events {{ worker_connections {b.limit - 100}; }}
http {{
    access_log off;
    keepalive_requests 1000000000;
{temps}
    map $http_upgrade $keep {{ default upgrade; '' ''; }}
    upstream back {{ zone back 128k; least_conn; {servers} {keep} }}
    server {{
        listen 127.0.0.1:{b.port}{listen} backlog=4096;
        {tls}
        location / {{ {h2 if b.kind == "h2" else upgrade} }}
    }}
}}
""")
    return [b.programs["nginx"], "-p", b.folder, "-c", path, "-e", f"{b.folder}/nginx.log"]


def nghttpx(b):
    proto = ";;proto=h2" if b.kind == "h2" else ""
    words = [b.programs["nghttpx"], "--conf=/dev/null", "--workers=1",
             f"--frontend=127.0.0.1,{b.port}{'' if b.kind == 'tls' else ';no-tls'}",
             *(f"--backend=127.0.0.1,{port}{proto}" for port in b.backends),
             "--accesslog-file=/dev/null", f"--errorlog-file={b.folder}/nghttpx.log",
             f"--rlimit-nofile={b.limit}", "--backend-connections-per-host=100000",
             "--frontend-http2-max-concurrent-streams=1000", "--no-ocsp"]
    words += [f"--{side}-timeout=1h" for side in (
        "frontend-read", "frontend-http2-read", "backend-read", "backend-write",
        "stream-read", "stream-write")]
    return words + ([b.key, b.cert] if b.kind == "tls" else [])


def envoy(b):
    types = "type.googleapis.com/envoy.extensions."
    is_h2 = b.kind == "h2"
    route = {"match": {"prefix": "/"},
             "route": {"cluster": "back", "timeout": "0s", "idle_timeout": "0s"}}
    manager = {
        "@type": types + "filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "front", "codec_type": "HTTP2" if is_h2 else "HTTP1",
        "stream_idle_timeout": "0s",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"],
                                            "routes": [route]}]},
        "http_filters": [{"name": "router", "typed_config": {
            "@type": types + "filters.http.router.v3.Router"}}]}
    if not is_h2:
        manager["upgrade_configs"] = [{"upgrade_type": "websocket"}]
    chain = {"filters": [{"name": "manager", "typed_config": manager}]}
    if b.kind == "tls":
        chain["transport_socket"] = {"name": "tls", "typed_config": {
            "@type": types + "transport_sockets.tls.v3.DownstreamTlsContext",
            "common_tls_context": {"tls_certificates": [{
                "certificate_chain": {"filename": b.cert},
                "private_key": {"filename": b.key}}]}}}

    def address(port):
        return {"socket_address": {"address": "127.0.0.1", "port_value": port}}
    cluster = {
        "name": "back", "type": "STATIC", "connect_timeout": "5s",
        "lb_policy": "LEAST_REQUEST",
        "circuit_breakers": {"thresholds": [{"max_connections": 1000000,
                                             "max_pending_requests": 1000000,
                                             "max_requests": 1000000}]},
        "load_assignment": {"cluster_name": "back", "endpoints": [{"lb_endpoints": [
            {"endpoint": {"address": address(port)}} for port in b.backends]}]}}
    if is_h2:
        name = types + "upstreams.http.v3.HttpProtocolOptions"
        cluster["typed_extension_protocol_options"] = {name.split("/")[1]: {
            "@type": name, "explicit_http_config": {"http2_protocol_options": {}}}}
    path = b.write("envoy.json", json.dumps({"static_resources": {
        "listeners": [{"name": "front", "address": address(b.port),
                       "filter_chains": [chain]}], "clusters": [cluster]}}))
    return [b.programs["envoy"], "-c", path, "--concurrency", "1", "--disable-hot-restart",
            "--use-dynamic-base-id", "-l", "error"]


def find(keel_path, envoy_path):
    """Name -> program, for those that are there."""
    found = {"keel": keel_path, "envoy": envoy_path}
    for name in ("haproxy", "nginx", "nghttpx"):
        found[name] = shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin")
    return {name: path for name, path in found.items() if path}


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as s:
        return s.getsockname()[1]


def family(pid):
    """The process and its descendants."""
    pids = [pid]
    for p in pids:
        for task in os.listdir(f"/proc/{p}/task"):
            with open(f"/proc/{p}/task/{task}/children") as f:
                pids += [int(x) for x in f.read().split()]
    return pids


class Proxy:
    """One that runs, its command behind the words `before`, ready when the constructor returns."""

    def __init__(self, name, kind, programs, backends, folder, limit, before):
        self.name, self.kind, self.programs = name, kind, programs
        self.backends, self.folder, self.limit = backends, folder, limit
        self.cert, self.key, self.pem = (f"{folder}/{n}" for n in
                                         ("cert.pem", "key.pem", "both.pem"))
        self.port = free_port()
        self.log = open(f"{folder}/{name}.log", "wb")
        # As its own group, so that what it starts ends with it.
        self.process = subprocess.Popen([*before, *globals()[name](self)],
                                        stdout=self.log, stderr=self.log, cwd=folder,
                                        start_new_session=True)
        self.wait()

    def write(self, name, text):
        path = f"{self.folder}/{name}"
        with open(path, "w") as f:
            f.write(text.lstrip())
        return path

    def wait(self):
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), 0.5).close()
                time.sleep(0.3)
                return
            except OSError:
                time.sleep(0.02)
        self.close()
        with open(f"{self.folder}/{self.name}.log", errors="replace") as f:
            raise RuntimeError(f"{self.name} did not start: {f.read()[-800:]}")

    def pids(self):
        return ",".join(map(str, family(self.process.pid)))

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(3)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self.log.close()
