"""The keys that an issuer signs with, from its JWKS (RFC 7517); pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import orjson
from joserfc.errors import JoseError
from joserfc.jwk import ECKey, OKPKey, RSAKey

VerificationKey = RSAKey | ECKey | OKPKey
JWKS_BYTES = 256 * 1024
MAX_KEYS = 100
KID_LENGTH = 512
# Smaller ones can be factored, larger ones cost much processor time a token.
_RSA_BITS, _RSA_EXPONENTS = range(2048, 8193), range(3, 2**32, 2)
_NUMBER_LENGTH = 2048
# By the algorithm of a token, the type of its key and the curve; each verifies by a public key.
_ALGORITHMS: dict[str, tuple[str, str | None]] = {
    **{f"{family}{size}": ("RSA", None) for family in ("RS", "PS") for size in (256, 384, 512)},
    "ES256": ("EC", "P-256"),
    "ES384": ("EC", "P-384"),
    "ES512": ("EC", "P-521"),
    "EdDSA": ("OKP", "Ed25519"),
    "Ed25519": ("OKP", "Ed25519"),
}
ALGORITHMS = tuple(_ALGORITHMS)
_TYPES: dict[str, type[RSAKey] | type[ECKey] | type[OKPKey]] = {
    "RSA": RSAKey,
    "EC": ECKey,
    "OKP": OKPKey,
}
_PRIVATE = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})


class InvalidJwks(ValueError):
    """A document that is no JWKS with a key to verify by; the text says what is wrong."""


@dataclass(frozen=True, slots=True)
class _UsableKey:
    kid: str | None
    # The algorithms that it may verify.
    algorithms: frozenset[str]
    key: VerificationKey


class VerificationKeys:
    """Public keys of an issuer."""

    def __init__(self, entries: Iterable[_UsableKey] = ()):
        self._entries = tuple(entries)

    @classmethod
    def parse(cls, document: bytes, *, strict: bool = False) -> "VerificationKeys":
        """The usable keys of a JWKS; raises InvalidJwks.

        What is for another use or of another kind is passed over, as RFC 7517 asks. `strict`
        refuses it, for a document that somebody uploads.
        """
        found = []
        for entry in _entries(document):
            try:
                found.append(_entry(entry))
            except InvalidJwks:
                if strict:
                    raise
        if not found:
            raise InvalidJwks("has no public key to verify signatures by")
        return cls(found)

    def find(self, algorithm: str, kid: str | None) -> VerificationKey | None:
        """The one key of an algorithm and exactly this `kid`; None where there is none.

        Without a `kid` it is the one key of the algorithm, as OpenID Connect has it.
        """
        fitting = [
            entry.key
            for entry in self._entries
            if algorithm in entry.algorithms and kid in (None, entry.kid)
        ]
        return fitting[0] if len(fitting) == 1 else None


def _entries(document: bytes) -> list[dict[str, Any]]:
    if len(document) > JWKS_BYTES:
        raise InvalidJwks(f"has more than {JWKS_BYTES} bytes")
    try:
        parsed = orjson.loads(document)
    except ValueError as error:
        raise InvalidJwks("is not JSON") from error
    entries = parsed.get("keys") if isinstance(parsed, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InvalidJwks('must be an object with a list "keys" of objects')
    if len(entries) > MAX_KEYS:
        raise InvalidJwks(f"has more than {MAX_KEYS} keys")
    return entries


def _entry(entry: dict[str, Any]) -> _UsableKey:
    """A public key; raises InvalidJwks."""
    if private := sorted(_PRIVATE & entry.keys()):
        raise InvalidJwks(f"has a private or shared key ({private[0]}); give public keys alone")
    for name in ("kid", "alg", "use", "kty", "crv"):
        if not isinstance(entry.get(name, ""), str):
            raise InvalidJwks(f"has a key whose {name} is not a text")
    if len(entry.get("kid", "")) > KID_LENGTH:
        raise InvalidJwks(f"has a kid of more than {KID_LENGTH} characters")
    operations = entry.get("key_ops", ["verify"])
    if entry.get("use", "sig") != "sig" or operations != ["verify"]:
        raise InvalidJwks("has a key that is not for signatures")
    named = (entry.get("kty"), entry.get("crv"))
    fitting = frozenset(name for name, kind in _ALGORITHMS.items() if kind == named)
    if "alg" in entry:
        fitting &= {entry["alg"]}
    if not fitting:
        raise InvalidJwks(f"has a key that is for none of {', '.join(ALGORITHMS)}")
    return _UsableKey(entry.get("kid"), fitting, _imported(entry))


def _imported(entry: dict[str, Any]) -> VerificationKey:
    parts: dict[str, str | list[str]] = {}
    # Of the rest, x5c and others, nothing is used.
    for name in ("kty", "crv", "n", "e", "x", "y"):
        if name in entry:
            parts[name] = str(entry[name])[:_NUMBER_LENGTH]
    try:
        key = _TYPES[str(entry["kty"])].import_key(parts)
    except (JoseError, ValueError, TypeError, KeyError) as error:
        raise InvalidJwks("has a key that cannot be read") from error
    if isinstance(key, RSAKey):
        numbers = key.public_key.public_numbers()
        if numbers.n.bit_length() not in _RSA_BITS or numbers.e not in _RSA_EXPONENTS:
            raise InvalidJwks("has an RSA key that is too small or too large")
    return key
