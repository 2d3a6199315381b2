"""A receiver of webhooks that answers as a test says, and remembers what it was sent."""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any

import openai

# An operator's settings that let it be told: it listens on loopback, without TLS.
ALLOWED = {"allowed_networks": ["127.0.0.0/8"], "allow_http": True}


@dataclass
class Receiver:
    """Requests to a path, and how they are answered."""

    url: str
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    # Statuses of the next answers; 200 beyond.
    statuses: list[int] = field(default_factory=list)
    # Where an answer of 3xx leads.
    location: str = ""
    # Whether an answer's body never ends.
    endless: bool = False
    # Answers wait until it is set.
    released: Event = field(default_factory=Event)

    @property
    def ids(self) -> list[str]:
        """The `webhook-id` of each request."""
        return [headers["webhook-id"] for headers, _ in self.requests]

    def unwrapped(self, secret: str) -> list[Any]:
        """The events as openai-python takes them; raises where a signature is wrong."""
        webhooks = openai.OpenAI(api_key="none").webhooks
        return [webhooks.unwrap(body, headers, secret=secret) for headers, body in self.requests]


@contextmanager
def receiving(certificate: tuple[Path, Path] | None = None) -> Iterator[Receiver]:
    """Listens on loopback until the end of the block; by TLS with a certificate and its key."""
    with _Server(("127.0.0.1", 0), _Request) as server:
        scheme = "http"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
            scheme = "https"
        url = f"{scheme}://127.0.0.1:{server.server_address[1]}/hook?of=windlass"
        server.receiver = Receiver(url)
        server.receiver.released.set()
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.receiver
        finally:
            server.receiver.endless = False
            server.receiver.released.set()
            server.shutdown()
            thread.join()


class _Server(ThreadingHTTPServer):
    receiver: Receiver
    daemon_threads = True


class _Request(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        receiver = self.server.receiver
        body = self.rfile.read(int(self.headers["Content-Length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        receiver.requests.append((headers, body))
        receiver.released.wait()
        with suppress(OSError):
            self._answer(receiver)

    def _answer(self, receiver: Receiver) -> None:
        self.send_response(receiver.statuses.pop(0) if receiver.statuses else 200)
        if receiver.location:
            self.send_header("Location", receiver.location)
        self.end_headers()
        while receiver.endless:
            self.wfile.write(b"x" * 65536)

    def log_message(self, *_: Any) -> None:
        """Says nothing."""
