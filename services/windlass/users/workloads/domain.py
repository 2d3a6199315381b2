"""Domain of workload identity: providers, rules, and which rule a token fulfils; pure."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from windlass.bounds import (
    ATTRIBUTE_LENGTH,
    ATTRIBUTE_VALUE_LENGTH,
    AUDIENCE_LENGTH,
    DESCRIPTION_LENGTH,
    MAX_MATCHERS,
    MAX_TRANSFORMATIONS,
    TITLE_LENGTH,
)
from windlass.core.errors import InvalidArgument, NotFound
from windlass.core.oidc.keys import InvalidJwks, VerificationKeys
from windlass.users.workloads.expressions import (
    ASSERTION,
    Attribute,
    ExpressionRefused,
    attribute,
    check,
    evaluate,
)

_ATTRIBUTE = re.compile(rf"[A-Za-z_][A-Za-z0-9_.:/-]{{0,{ATTRIBUTE_LENGTH - 1}}}", re.ASCII)
# What each of an issuer's tokens has alike, or anew: it tells nobody from another.
_COMMON = frozenset({"iss", "aud", "exp", "iat", "nbf", "jti"})
_WHOLE = range(-(2**53), 2**53 + 1)


@dataclass(frozen=True, slots=True)
class WorkloadIssuer:
    """An issuer whose tokens an organization takes: an identity provider, in OpenAI's words."""

    id: str
    organization_id: str
    name: str
    description: str
    issuer: str
    audience: str
    # Empty: it is asked.
    jwks: str
    # Pairs of an attribute and an expression.
    transformations: tuple[tuple[str, str], ...]
    enabled: bool
    created_at: int
    updated_at: int
    changed_by: str
    rests_on: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FederationRule:
    """Makes tokens with certain attributes those of a service account."""

    id: str
    provider_id: str
    organization_id: str
    project_id: str
    service_account_id: str
    name: str
    description: str
    matchers: Mapping[str, Attribute]
    # Permissions; empty: all of the service account.
    scopes: tuple[str, ...]
    enabled: bool
    created_at: int
    updated_at: int
    changed_by: str
    rests_on: tuple[str, ...]
    # Tokens of its own audience are credentials themselves.
    accepts_bearer: bool = False


def attributes_of(claims: Mapping[str, Any], issuer: WorkloadIssuer) -> dict[str, Attribute]:
    """The attributes of a token: its claims that may be some, and what its issuer's
    transformations make, which take the place of claims. Blocks for some milliseconds.
    """
    found = {name: attribute(value) for name, value in claims.items()}
    found |= {name: evaluate(text, dict(claims)) for name, text in issuer.transformations}
    return {name: value for name, value in found.items() if value is not None}


def first_fulfilled(
    rules: Iterable[FederationRule], attributes: Mapping[str, Attribute]
) -> FederationRule | None:
    """The oldest rule whose matchers all are among the attributes."""
    fulfilled = (
        rule
        for rule in rules
        if rule.matchers and all(_is(attributes.get(k), v) for k, v in rule.matchers.items())
    )
    return min(fulfilled, key=lambda rule: (rule.created_at, rule.id), default=None)


def _is(found: Attribute | None, wanted: Attribute) -> bool:
    """Returns True for equal values; a boolean is no number."""
    return isinstance(found, bool) == isinstance(wanted, bool) and found == wanted


def valid_transformations(pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Attributes and their expressions; raises InvalidArgument."""
    found = tuple(pairs)
    param = "attribute_transformations"
    if len(found) > MAX_TRANSFORMATIONS or len({name for name, _ in found}) < len(found):
        raise InvalidArgument(
            f"{param} may have {MAX_TRANSFORMATIONS} entries, each of another attribute.",
            param=param,
        )
    for name, expression in found:
        _require_attribute(name, param)
        try:
            check(expression)
        except ExpressionRefused as error:
            raise InvalidArgument(
                f"The expression of {name} {error}. Write it in CEL, such as "
                f"{ASSERTION}.repository.",
                param=param,
            ) from error
    return found


def valid_matchers(text: str) -> dict[str, Attribute]:
    """Attributes and what they must be, from JSON; raises InvalidArgument."""
    param = "attribute_matchers"
    try:
        found = orjson.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not 1 <= len(found) <= MAX_MATCHERS:
        raise InvalidArgument(f"{param} must have 1 to {MAX_MATCHERS} attributes.", param=param)
    for name, value in found.items():
        _require_attribute(name, param)
        too_long = isinstance(value, str) and len(value) > ATTRIBUTE_VALUE_LENGTH
        inexact = isinstance(value, int) and value not in _WHOLE
        if not isinstance(value, str | bool | int | float) or too_long or inexact:
            raise InvalidArgument(
                f"{param}.{name} must be a text of at most {ATTRIBUTE_VALUE_LENGTH} characters, a "
                "boolean or a number.",
                param=param,
            )
    if _COMMON.issuperset(found):
        raise InvalidArgument(
            f"{param} must tell whose token it is: each token of the issuer has "
            f"{', '.join(sorted(found))}. Add sub, repository or the like.",
            param=param,
        )
    return found


def _require_attribute(name: str, param: str) -> None:
    if not _ATTRIBUTE.fullmatch(name):
        raise InvalidArgument(
            f"{name[:100]!r} is no attribute: write a letter or _, then up to "
            f"{ATTRIBUTE_LENGTH - 1} letters, digits, _, ., :, / or -.",
            param=param,
        )


def valid_audience(audience: str) -> str:
    """The audience that tokens name; raises InvalidArgument."""
    if not 1 <= len(audience) <= AUDIENCE_LENGTH or not audience.isprintable():
        raise InvalidArgument(
            f"audience must have 1 to {AUDIENCE_LENGTH} printable characters.", param="audience"
        )
    return audience


def valid_jwks(document: str) -> str:
    """Public keys, or nothing where the issuer is asked for them; raises InvalidArgument."""
    if document:
        try:
            VerificationKeys.parse(document.encode(), strict=True)
        except InvalidJwks as error:
            raise InvalidArgument(f"The JWKS {error}.", param="verification") from error
    return document


def valid_text(text: str, param: str) -> str:
    """A name that may be empty, or a description; raises InvalidArgument."""
    most = TITLE_LENGTH if param == "name" else DESCRIPTION_LENGTH
    if len(text) > most or not text.replace("\n", "").isprintable():
        raise InvalidArgument(f"{param} may have {most} printable characters.", param=param)
    return text


def unknown_provider(provider_id: str) -> NotFound:
    """The error of a provider that is not there, or not for the caller."""
    return NotFound(f"No identity provider {provider_id!r}.", param="identity_provider_id")


def unknown_rule(rule_id: str) -> NotFound:
    """The error of a rule that is not there, or not for the caller."""
    return NotFound(f"No federation rule {rule_id!r}.", param="federation_rule_id")
