"""Workloads' own tokens in the place of keys: the one rule that each says it is for."""

import hashlib

from windlass.core.ids import is_id
from windlass.core.oidc.tokens import UnverifiedToken

RULE_PREFIX = "wir_"
# Of the digest of a rule with its issuer.
FINGERPRINT_BYTES = 8
_BETWEEN = "/"


def bearer_audience(audience: str, rule_id: str) -> str:
    """The audience of tokens that a rule takes as they are, by that of its provider."""
    return f"{audience}{_BETWEEN}{rule_id}"


def named_rule(token: UnverifiedToken) -> str:
    """The id of the rule that is a token's only audience; empty for any other token.

    One that is for others too could come from them.
    """
    audience = token.claims.get("aud")
    if isinstance(audience, list) and len(audience) == 1:
        audience = audience[0]
    if not isinstance(audience, str):
        return ""
    named = audience.rpartition(_BETWEEN)[2]
    return named if is_id(named, RULE_PREFIX) else ""


def fingerprint(rule_id: str, issuer: str) -> bytes:
    """A few bytes that tell a rule and its issuer from others; the store makes the same."""
    named = f"{rule_id}\n{issuer}".encode(errors="replace")
    return hashlib.sha256(named).digest()[:FINGERPRINT_BYTES]
