"""An S3 server on loopback, and before it a proxy that is slow, busy, or breaks off.

The server is moto's; by hand it starts with `moto_server -p 5000`.
"""

from __future__ import annotations

import http.client
import threading
import time
from collections import Counter
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BUSY = (
    b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Reduce your rate</Message></Error>"
)
KEYS = {"key": "AKIAPLANTEDKEY00", "secret": "planted/secret+value"}


class Faults:
    """What the proxy does to requests of objects; each may be changed while it runs."""

    def __init__(self):
        self.latency_s = 0.0
        self.busy_first = 0  # answers with 503 to the first requests of each range
        self.broken_first = 0  # then breaks off that many answers half-way
        self.silent = False  # never answers
        self.num_requests = 0
        self.most_at_once = 0
        self.seen = Counter()
        self.lock = threading.Lock()
        self.at_once = 0


class Proxy(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def handle_any(self):
        faults, key = self.server.faults, (self.command, self.path, self.headers.get("Range"))
        with faults.lock:
            faults.num_requests += 1
            faults.seen[key] += 1
            num = faults.seen[key]
            faults.at_once += 1
            faults.most_at_once = max(faults.most_at_once, faults.at_once)
        try:
            time.sleep(faults.latency_s)
            while faults.silent:
                time.sleep(0.05)
            if num <= faults.busy_first:
                self.answer(503, {"Content-Type": "application/xml"}, BUSY)
            else:
                self.forward(is_broken=num <= faults.busy_first + faults.broken_first)
        finally:
            with faults.lock:
                faults.at_once -= 1

    def forward(self, *, is_broken):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        beyond = http.client.HTTPConnection("127.0.0.1", self.server.port_beyond, timeout=30)
        beyond.request(self.command, self.path, body, dict(self.headers))
        found = beyond.getresponse()
        data = found.read()
        headers = {k: v for k, v in found.getheaders() if k.lower() not in HOP}
        length = int(found.headers.get("Content-Length") or len(data))
        beyond.close()
        if is_broken and self.command == "GET":
            self.answer(found.status, headers, data[: len(data) // 2], length=length)
            self.close_connection = True
        else:
            self.answer(found.status, headers, data, length=length)

    def answer(self, status, headers, data, length=None):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data) if length is None else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = handle_any  # noqa: N815


HOP = {"content-length", "transfer-encoding", "connection", "server", "date"}


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        pass  # a client that went away


@contextmanager
def faulty_store(objects):
    """Yield (options for the store, faults); the bucket `samples` holds the objects by name."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    port = server.get_host_and_port()[1]
    client = boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{port}",
        region_name="us-east-1",
        aws_access_key_id=KEYS["key"],
        aws_secret_access_key=KEYS["secret"],
    )
    client.create_bucket(Bucket="samples")
    for name, data in objects.items():
        client.put_object(Bucket="samples", Key=name, Body=data)
    client.close()
    proxy = _Server(("127.0.0.1", 0), Proxy)
    proxy.faults, proxy.port_beyond = Faults(), port
    thread = threading.Thread(
        target=proxy.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
    )
    thread.start()
    try:
        url = f"http://127.0.0.1:{proxy.server_port}"
        yield {**KEYS, "endpoint_url": url}, proxy.faults
    finally:
        proxy.faults.silent = False
        proxy.shutdown()
        proxy.server_close()
        server.stop()
