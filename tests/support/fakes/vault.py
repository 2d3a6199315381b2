"""A fake of Vault's transit engine, since no package registry has Vault itself.

It answers `encrypt`, `decrypt` and `rotate` as
https://developer.hashicorp.com/vault/api-docs/secret/transit documents them: versions, associated
data, and 400 for a ciphertext of another key or with other associated data.
"""

import base64
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import httpx
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

# Vault itself takes no id of its own making that has a dot in it.
TOKEN = "test-token"
_NONCE = 12


@contextmanager
def running(port: int = 0) -> Iterator[str]:
    """Serves one key, `transit/windlass`, at the URL that it yields."""
    with _Server(("127.0.0.1", port), _Request) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def rotate(address: str, token: str = TOKEN) -> None:
    """Makes another version of the key, which encrypts from then on."""
    url, headers = f"{address}/v1/transit/keys/windlass/rotate", {"X-Vault-Token": token}
    httpx.post(url, headers=headers).raise_for_status()


class _Server(ThreadingHTTPServer):
    """Holds the versions of the key while it serves."""

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]):
        super().__init__(address, handler)
        self.versions = [AESGCM(AESGCM.generate_key(256))]


class _Request(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["content-length"] or 0))
        if self.headers.get("x-vault-token") != TOKEN:
            return self._answer(403, {"errors": ["permission denied"]})
        body = json.loads(content or b"{}")
        associated = base64.b64decode(body.get("associated_data", ""))
        match self.path:
            case "/v1/transit/encrypt/windlass":
                return self._encrypt(base64.b64decode(body["plaintext"]), associated)
            case "/v1/transit/decrypt/windlass":
                return self._decrypt(body["ciphertext"], associated)
            case "/v1/transit/keys/windlass/rotate":
                self.server.versions.append(AESGCM(AESGCM.generate_key(256)))
                return self._answer(200, {"data": {}})
        return self._answer(404, {"errors": []})

    def _encrypt(self, value: bytes, associated: bytes) -> None:
        nonce, versions = os.urandom(_NONCE), self.server.versions
        sealed = base64.b64encode(nonce + versions[-1].encrypt(nonce, value, associated)).decode()
        self._answer(200, {"data": {"ciphertext": f"vault:v{len(versions)}:{sealed}"}})

    def _decrypt(self, ciphertext: str, associated: bytes) -> None:
        try:
            _, version, encoded = ciphertext.split(":")
            sealed = base64.b64decode(encoded, validate=True)
            cipher = self.server.versions[int(version.removeprefix("v")) - 1]
            opened = cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], associated)
        except (InvalidTag, ValueError, LookupError):
            self._answer(400, {"errors": ["invalid ciphertext: unable to decrypt"]})
            return
        self._answer(200, {"data": {"plaintext": base64.b64encode(opened).decode()}})

    def _answer(self, status: int, document: dict[str, Any]) -> None:
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Logs nothing."""
