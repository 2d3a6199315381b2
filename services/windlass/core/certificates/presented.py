"""Certificates that clients present: by TLS, or in the headers of RFC 9440 that a proxy wrote."""

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

from windlass.core.addresses import ClientAddresses

# Of one certificate in DER, and of those beside it.
DER_LENGTH = 8 * 1024
MAX_CHAIN = 4
# Pairs of headers whose certificates are remembered.
_REMEMBERED = 1024
HEADER, CHAIN_HEADER = b"client-cert", b"client-cert-chain"
# A byte sequence of RFC 8941.
_BYTES = re.compile(rb"[ \t]*:([A-Za-z0-9+/]+={0,2}):[ \t]*")


@dataclass(frozen=True, slots=True)
class PresentedCertificate:
    """A certificate whose key a client has, and those that lead from it to an authority; DER."""

    leaf: bytes
    chain: tuple[bytes, ...]
    digest: bytes

    @classmethod
    def of(cls, leaf: bytes, chain: Iterable[bytes] = ()) -> "PresentedCertificate":
        """Certificates, with the digest by which the judgement of them is kept."""
        beside = tuple(chain)
        digests = b"".join(hashlib.sha256(one).digest() for one in (leaf, *beside))
        return cls(leaf, beside, hashlib.sha256(digests).digest())


def presented_by(
    peer: str, headers: Mapping[bytes, bytes], own: bytes, addresses: ClientAddresses
) -> PresentedCertificate | None:
    """The certificate of a request's client; None for none, or for nonsense.

    `own` is that of the connection, empty where it has none. Of a proxy whose `X-Forwarded-For` is
    believed, that is the proxy's, and `Client-Cert` has the client's. Anybody else may write this
    header, and it counts for nothing.
    """
    if not addresses.trusts(peer):
        return _of_connection(own) if own else None
    given = headers.get(HEADER)
    return None if given is None else _read(given, headers.get(CHAIN_HEADER, b""))


@lru_cache(maxsize=_REMEMBERED)
def _of_connection(der: bytes) -> PresentedCertificate | None:
    return PresentedCertificate.of(der) if len(der) <= DER_LENGTH else None


@lru_cache(maxsize=_REMEMBERED)
def _read(given: bytes, beside: bytes) -> PresentedCertificate | None:
    chain = beside.split(b",") if beside else []
    if len(chain) > MAX_CHAIN:
        return None
    found = [_der(one) for one in (given, *chain)]
    known = [one for one in found if one is not None]
    return PresentedCertificate.of(known[0], known[1:]) if len(known) == len(found) else None


def _der(text: bytes) -> bytes | None:
    matched = _BYTES.fullmatch(text)
    if matched is None:
        return None
    try:
        der = base64.b64decode(matched[1], validate=True)
    except binascii.Error:
        return None
    return der if 0 < len(der) <= DER_LENGTH else None
