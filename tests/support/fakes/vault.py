"""A fake of Vault's transit engine, since no package registry has Vault itself.

It answers `encrypt` and `decrypt` as https://developer.hashicorp.com/vault/api-docs/secret/transit
documents them, 400 for a ciphertext of another key included.
"""

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from cryptography.fernet import Fernet, InvalidToken

TOKEN = "s.test"


@contextmanager
def running() -> Iterator[str]:
    """Serves one key, `transit/windlass`, at the URL that it yields."""
    with _Server(("127.0.0.1", 0), _Request) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


class _Server(ThreadingHTTPServer):
    """Holds the key while it serves."""

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]):
        super().__init__(address, handler)
        self.cipher = Fernet(Fernet.generate_key())


class _Request(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.headers.get("x-vault-token") != TOKEN:
            return self._answer(403, {"errors": ["permission denied"]})
        cipher = self.server.cipher
        match self.path:
            case "/v1/transit/encrypt/windlass":
                sealed = cipher.encrypt(base64.b64decode(body["plaintext"])).decode()
                return self._answer(200, {"data": {"ciphertext": f"vault:v1:{sealed}"}})
            case "/v1/transit/decrypt/windlass":
                try:
                    opened = cipher.decrypt(body["ciphertext"].removeprefix("vault:v1:").encode())
                except InvalidToken:
                    return self._answer(400, {"errors": ["invalid ciphertext"]})
                plain = base64.b64encode(opened).decode()
                return self._answer(200, {"data": {"plaintext": plain}})
        return self._answer(404, {"errors": []})

    def _answer(self, status: int, document: dict[str, Any]) -> None:
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Logs nothing."""
