"""Checks of the tokens that an issuer signs: JWTs in their compact form; pure but for the time."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import orjson
from joserfc import jws
from joserfc.errors import JoseError, UnsupportedAlgorithmError
from joserfc.jws import JWSRegistry
from joserfc.util import urlsafe_b64decode

from windlass.core import clock
from windlass.core.oidc.keys import ALGORITHMS, KID_LENGTH, VerificationKeys

TOKEN_BYTES = 16 * 1024
HEADER_BYTES = 4096
# Of clocks that differ. Whoever shows a token may have taken it, so it is short.
LEEWAY_SECONDS = 60
# From the issue of a token until its end.
LONGEST_LIFE_SECONDS = 24 * 3600
# Whatever else a token is for, such as a logout, has another type.
JWT = frozenset({"", "jwt"})
_LATEST = 2**53


class TokenRefused(Exception):
    """A token that is not to be trusted. The text is for whoever configures the issuer."""


class UnknownKey(TokenRefused):
    """A token of a key that is not, or not yet, among those of the issuer."""


class _Registry(JWSRegistry):
    """Registry of our algorithms, with room for the headers of real issuers.

    Further fields of theirs count for nothing.
    """

    max_header_length = HEADER_BYTES
    max_payload_length = TOKEN_BYTES

    def get_alg(self, name: str) -> Any:
        """An algorithm, without the warning of joserfc that EdDSA is Ed25519 by an older name."""
        if name not in ALGORITHMS:
            raise UnsupportedAlgorithmError(name)
        return self.algorithms[name]


_REGISTRY = _Registry(strict_check_header=False)


@dataclass(frozen=True, slots=True)
class UnverifiedToken:
    """A token of which the form is known, and nothing that it says."""

    text: str
    algorithm: str
    kid: str | None
    type: str
    claims: dict[str, Any]

    @property
    def issuer(self) -> str:
        """Issuer that the token names; empty for none."""
        named = self.claims.get("iss")
        return named if isinstance(named, str) else ""


def read(token: str) -> UnverifiedToken:
    """A token as it says it is; raises TokenRefused for other forms and algorithms."""
    if len(token) > TOKEN_BYTES or token.count(".") != 2:
        raise TokenRefused(f"It is not a signed JWT of at most {TOKEN_BYTES} bytes.")
    head, payload, _ = token.split(".")
    header, claims = _object(head, HEADER_BYTES), _object(payload, TOKEN_BYTES)
    algorithm, kid, kind = header.get("alg"), header.get("kid"), header.get("typ", "")
    if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
        raise TokenRefused(f"Its algorithm is none of {', '.join(ALGORITHMS)}.")
    if kid is not None and (not isinstance(kid, str) or len(kid) > KID_LENGTH):
        raise TokenRefused("Its kid is not a text, or too long.")
    if not isinstance(kind, str) or not {"crit", "b64"}.isdisjoint(header):
        raise TokenRefused("Its header demands what is not supported.")
    return UnverifiedToken(token, algorithm, kid, kind.lower().removeprefix("application/"), claims)


def verify(
    token: UnverifiedToken,
    keys: VerificationKeys,
    *,
    issuer: str,
    audience: str,
    types: Collection[str] = JWT,
    longest_life: int = LONGEST_LIFE_SECONDS,
    leeway: int = LEEWAY_SECONDS,
) -> dict[str, Any]:
    """The claims of a token that the issuer made for the audience, and that holds now.

    Raises UnknownKey, and TokenRefused. `azp`, `nonce` and what else a caller expects of the
    claims is for the caller to check.
    """
    if token.type not in types:
        raise TokenRefused("It is a token of another type.")
    key = keys.find(token.algorithm, token.kid)
    if key is None:
        raise UnknownKey("It is signed with a key that is not one of its issuer's.")
    try:
        jws.deserialize_compact(token.text, key, registry=_REGISTRY)
    except (JoseError, ValueError, RecursionError) as error:
        raise TokenRefused("Its signature is wrong.") from error
    claims = token.claims
    if claims.get("iss") != issuer:
        raise TokenRefused("It is of another issuer.")
    named = claims.get("aud")
    if audience not in (named if isinstance(named, list) else [named]):
        raise TokenRefused("It is for another audience.")
    _require_time(claims, longest_life, leeway)
    return claims


def _require_time(claims: dict[str, Any], longest_life: int, leeway: int) -> None:
    now = clock.now()
    expires, issued = _time(claims, "exp"), _time(claims, "iat")
    begins = _time(claims, "nbf") if "nbf" in claims else issued
    if now >= expires + leeway:
        raise TokenRefused(
            f"It has expired, {now - expires:.0f} seconds ago by the clock here. Clocks may differ "
            f"by {leeway} seconds."
        )
    if (ahead := max(issued, begins) - now) > leeway:
        raise TokenRefused(
            f"It does not hold yet, but {ahead:.0f} seconds from now by the clock here. Clocks may "
            f"differ by {leeway} seconds."
        )
    if expires - issued > longest_life:
        raise TokenRefused(f"It holds longer than {longest_life} seconds.")


def _time(claims: dict[str, Any], name: str) -> float:
    value = claims.get(name)
    # A bool is an int.
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _LATEST:
        return float(value)
    raise TokenRefused(f"Its {name} is missing or not a time.")


def _object(part: str, most: int) -> dict[str, Any]:
    try:
        decoded = urlsafe_b64decode(part.encode("ascii"))
        found = orjson.loads(decoded) if len(decoded) <= most else None
    except ValueError as error:
        raise TokenRefused("It is not a signed JWT.") from error
    if not isinstance(found, dict):
        raise TokenRefused("It is not a signed JWT.")
    return found
