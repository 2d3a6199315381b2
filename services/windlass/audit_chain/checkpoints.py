"""Signed checkpoints: which hash an organization's chain had at a sequence, as a JWS (RFC 7515).

Ed25519, by a key that every process derives from the installation's root key. It needs
`joserfc`, which the client alone does not bring.
"""

import base64
import json
from collections.abc import Mapping
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import OKPKey

from windlass.audit_chain.links import canonical
from windlass.audit_chain.walk import ChainCheckpoint, CheckpointForged

# The keyring's purpose of the key's 32 bytes.
PURPOSE = "audit checkpoints"
_TYPE = "windlass-audit-checkpoint"
# Of a note that the events up to a checkpoint were dropped.
_DROPPED = "windlass-audit-dropped"
_ALGORITHMS = ["Ed25519"]


class CheckpointKey:
    """Verifies checkpoints, and signs them where the private half is known."""

    def __init__(self, key: OKPKey):
        self._key = key

    @classmethod
    def derived(cls, seed: bytes) -> "CheckpointKey":
        """The pair of 32 secret bytes."""
        public = Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
        key = OKPKey.import_key(
            {"kty": "OKP", "crv": "Ed25519", "d": _base64url(seed), "x": _base64url(public)}
        )
        key.ensure_kid()
        return cls(key)

    @classmethod
    def public(cls, jwk: Mapping[str, Any]) -> "CheckpointKey":
        """The public half, as `jwk` gave it; raises ValueError."""
        try:
            return cls(OKPKey.import_key(dict(jwk)))
        except (JoseError, ValueError, KeyError, TypeError) as error:
            raise ValueError(f"it is no public key: {error}") from error

    @property
    def jwk(self) -> dict[str, Any]:
        """The public half as a JSON Web Key (RFC 8037)."""
        return dict(self._key.as_dict(private=False))

    def sign(self, checkpoint: ChainCheckpoint, *, dropped: bool = False) -> str:
        """A compact JWS; `dropped` makes it the note that the events up to it were dropped."""
        claims = {
            "organization_id": checkpoint.organization_id,
            "sequence": checkpoint.sequence,
            "hash": checkpoint.hash.hex(),
            "at_ms": checkpoint.at_ms,
        }
        return self.sign_claims(_DROPPED if dropped else _TYPE, claims)

    def sign_claims(self, kind: str, claims: Mapping[str, Any]) -> str:
        """A compact JWS of another `typ`, which keeps one from passing as the other."""
        header = {"alg": "Ed25519", "kid": self._key.kid, "typ": kind}
        return jws.serialize_compact(header, canonical(claims), self._key, algorithms=_ALGORITHMS)

    def verify(
        self, token: str, *, organization_id: str | None, dropped: bool = False
    ) -> ChainCheckpoint:
        """Raises CheckpointForged unless this key signed it, for this organization if given."""
        claims = self.verify_claims(_DROPPED if dropped else _TYPE, token)
        try:
            checkpoint = ChainCheckpoint(
                claims.get("organization_id", ""),
                int(claims["sequence"]),
                bytes.fromhex(claims["hash"]),
                int(claims["at_ms"]),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointForged(f"not signed by this installation: {error}") from error
        if organization_id not in (None, checkpoint.organization_id):
            raise CheckpointForged("signed for another organization")
        return checkpoint

    def verify_claims(self, kind: str, token: str) -> Any:
        """The claims of a JWS; raises CheckpointForged unless this key signed it as this type."""
        try:
            found = jws.deserialize_compact(token.encode(), self._key, algorithms=_ALGORITHMS)
            if found.headers().get("typ") != kind:
                raise ValueError("it is of another type")
            return json.loads(found.payload)
        except (JoseError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointForged(f"not signed by this installation: {error}") from error


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
