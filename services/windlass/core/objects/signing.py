"""Signs URLs of objects, and checks them."""

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from windlass.core import clock
from windlass.core.objects.port import Sha256, SignatureInvalid, validate_key


@dataclass(frozen=True)
class SignedRequest:
    """Request that a signed URL permits, until `expires` (Unix seconds)."""

    method: str
    key: str
    expires: int
    bytes: int | None = None
    sha256: Sha256 | None = None
    filename: str | None = None
    # The API key whose bearer had it signed: it ends with that key. Empty: with its time alone.
    holder: str = ""
    # Whether what it names is sealed, as the signer's secret says it, not the URL.
    is_sealed: bool = False

    def parameters(self) -> dict[str, str]:
        """The query of its URL, but for the signature."""
        values = {
            "method": self.method,
            "expires": str(self.expires),
            "bytes": None if self.bytes is None else str(self.bytes),
            "sha256": None if self.sha256 is None else self.sha256.hex(),
            "filename": self.filename,
            "holder": self.holder or None,
        }
        return {name: value for name, value in values.items() if value is not None}


class UrlSigner:
    """HMAC-SHA256 over everything that the URL says, under one secret."""

    def __init__(self, public_url: str, secret: bytes):
        self._base = f"{public_url.rstrip('/')}/objects/"
        # The secret may serve elsewhere too; a key of its own keeps the uses apart.
        self._secret = hmac.digest(secret, b"windlass object urls v1", hashlib.sha256)

    def url(self, request: SignedRequest) -> str:
        """The URL that permits `request`."""
        query = {**request.parameters(), "signature": self._sign(request)}
        return f"{self._base}{quote(request.key)}?{urlencode(query)}"

    def verify(self, method: str, key: str, query: Mapping[str, str]) -> SignedRequest:
        """The signed request; raises SignatureInvalid for another method, key or time."""
        request = _parse(key, query)
        if not hmac.compare_digest(self._sign(request).encode(), query["signature"].encode()):
            raise SignatureInvalid("The URL's signature is not valid.")
        if request.expires < clock.now():
            raise SignatureInvalid("The URL has expired.")
        if method != request.method and (method, request.method) != ("HEAD", "GET"):
            raise SignatureInvalid(f"The URL is for {request.method}, not for {method}.")
        return request

    def _sign(self, request: SignedRequest) -> str:
        message = json.dumps([request.key, sorted(request.parameters().items())])
        return hmac.new(self._secret, message.encode(), hashlib.sha256).hexdigest()


def _parse(key: str, query: Mapping[str, str]) -> SignedRequest:
    try:
        digest = query.get("sha256")
        size = query.get("bytes")
        request = SignedRequest(
            method=query["method"],
            key=validate_key(key),
            expires=int(query["expires"]),
            bytes=None if size is None else int(size),
            sha256=None if digest is None else bytes.fromhex(digest),
            filename=query.get("filename"),
            holder=query.get("holder", ""),
        )
    except (KeyError, ValueError) as error:
        raise SignatureInvalid("The URL is not signed.") from error
    if {**request.parameters(), "signature": query.get("signature")} != dict(query):
        raise SignatureInvalid("The URL was changed after it was signed.")
    return request
