"""Tokens of issuers: pinned algorithms, exact names, bounded times, and headers that lie."""

import base64
import hmac
import json
import time
from typing import Any

import pytest
from joserfc.jwk import Key, RSAKey
from joserfc.util import urlsafe_b64encode
from tests.support.fakes.oidc_issuer import AUDIENCE, claims, jwks, signed, signing_key

from windlass.core.oidc.keys import ALGORITHMS, InvalidJwks, VerificationKeys
from windlass.core.oidc.tokens import TokenRefused, UnknownKey, read, verify

ISSUER = "https://issuer.example"
KEY = signing_key()
RSA = signing_key("RS256")
KEYS = VerificationKeys.parse(jwks(KEY, RSA))


def checked(token: str, keys: VerificationKeys = KEYS, **changed: Any) -> dict[str, Any]:
    return verify(read(token), keys, **{"issuer": ISSUER, "audience": AUDIENCE, **changed})


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_token_of_each_algorithm_holds(algorithm: str) -> None:
    key = RSA if algorithm[:2] in ("RS", "PS") else signing_key(algorithm)
    token = signed(claims(ISSUER), key, algorithm=algorithm)
    found = checked(token, VerificationKeys.parse(jwks(key)))
    assert found["sub"] == "repo:acme/app:ref:refs/heads/main"


def test_a_token_without_a_signature_is_refused() -> None:
    for algorithm in ("none", "None", "NONE", "", None, ["ES256"], 0):
        bare = f"{part({'alg': algorithm, 'typ': 'JWT'})}.{part(claims(ISSUER))}."
        with pytest.raises(TokenRefused, match="algorithm"):
            read(bare)
    stripped = signed(claims(ISSUER), KEY).rpartition(".")[0] + "."
    with pytest.raises(TokenRefused, match="signature"):
        checked(stripped)


def test_a_public_key_is_no_shared_secret() -> None:
    assert isinstance(RSA, RSAKey)
    for algorithm in ("HS256", "HS384", "HS512"):
        body = f"{part({'alg': algorithm, 'kid': RSA.kid})}.{part(claims(ISSUER))}"
        digest = hmac.new(RSA.as_pem(private=False), body.encode(), f"sha{algorithm[2:]}").digest()
        with pytest.raises(TokenRefused, match="algorithm"):
            checked(f"{body}.{urlsafe_b64encode(digest).decode()}")


def test_a_token_brings_no_key_of_its_own() -> None:
    own = signing_key()
    public = own.as_dict(private=False)
    lies: list[dict[str, Any]] = [
        {"kid": KEY.kid, "jwk": public},
        {"kid": KEY.kid, "jku": "https://evil.example/jwks"},
        {"kid": KEY.kid, "x5u": "https://evil.example/x5c"},
        {"kid": KEY.kid},
    ]
    for header in lies:
        with pytest.raises(TokenRefused, match="signature"):
            checked(signed(claims(ISSUER), own, **header))
    with pytest.raises(UnknownKey):
        checked(signed(claims(ISSUER), own, jwk=public))


@pytest.mark.parametrize(
    "kid",
    ["../../dev/null", "' OR 1=1 --", "\0", "keys; cat /etc/passwd", "http://evil.example/", ""],
)
def test_a_hostile_kid_is_a_name_that_no_key_has(kid: str) -> None:
    with pytest.raises(UnknownKey):
        checked(signed(claims(ISSUER), KEY, kid=kid))


@pytest.mark.parametrize("kid", [7, ["a"], {"a": 1}, "k" * 600, True])
def test_a_kid_is_a_text(kid: object) -> None:
    head, _, rest = signed(claims(ISSUER), KEY).partition(".")
    del head
    with pytest.raises(TokenRefused):
        read(f"{part({'alg': 'ES256', 'kid': kid})}.{rest}")


def test_without_a_kid_one_key_alone_counts() -> None:
    token = signed(claims(ISSUER), KEY, kid=None)
    assert checked(token)
    with pytest.raises(UnknownKey):
        checked(token, VerificationKeys.parse(jwks(KEY, signing_key())))


def test_the_algorithm_is_the_keys() -> None:
    keys = VerificationKeys.parse(jwks(RSA, alg="RS512"))
    with pytest.raises(UnknownKey):
        checked(signed(claims(ISSUER), RSA, algorithm="RS256"), keys)
    mixed = signed(claims(ISSUER), RSA, algorithm="RS256", kid=KEY.kid)
    with pytest.raises(UnknownKey):
        checked(mixed)


def now(seconds: float) -> float:
    return time.time() + seconds


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"iss": "https://issuer.example/"}, "another issuer"),
        ({"iss": [ISSUER]}, "another issuer"),
        ({"iss": None}, "another issuer"),
        ({"aud": AUDIENCE + "/"}, "another audience"),
        ({"aud": [f"{AUDIENCE}x", ""]}, "another audience"),
        ({"aud": {AUDIENCE: 1}}, "another audience"),
        ({"aud": None}, "another audience"),
        ({"exp": now(-61)}, "expired"),
        ({"exp": None}, "exp is missing"),
        ({"exp": "9999999999"}, "exp is missing"),
        ({"exp": True}, "exp is missing"),
        ({"exp": 1e300}, "exp is missing"),
        # Counted from the collection of the tests, which may be a while ago.
        ({"nbf": now(3 * 3600)}, "not hold yet"),
        ({"nbf": None, "iat": now(3 * 3600), "exp": now(4 * 3600)}, "not hold yet"),
        ({"nbf": "0"}, "nbf is missing"),
        ({"iat": None}, "iat is missing"),
        ({"exp": now(30 * 3600)}, "holds longer"),
    ],
)
def test_what_a_token_says_is_exact_and_its_times_are_bounded(
    changed: dict[str, Any], why: str
) -> None:
    with pytest.raises(TokenRefused, match=why):
        checked(signed(claims(ISSUER, **changed), KEY))


def test_clocks_may_differ_by_a_minute() -> None:
    assert checked(signed(claims(ISSUER, exp=now(-50), iat=now(-350), nbf=now(-350)), KEY))
    assert checked(signed(claims(ISSUER, iat=now(50), nbf=now(50)), KEY))
    assert checked(signed(claims(ISSUER, aud=["other", AUDIENCE], nbf=None), KEY))


def test_a_token_of_another_type_is_for_another_purpose() -> None:
    logout = signed(claims(ISSUER), KEY, typ="logout+jwt")
    with pytest.raises(TokenRefused, match="type"):
        checked(logout)
    assert checked(logout, types={"logout+jwt"})
    assert checked(signed(claims(ISSUER), KEY, typ=None))
    assert checked(signed(claims(ISSUER), KEY, typ="application/JWT"))


@pytest.mark.parametrize(
    "token",
    [
        "", ".", "..", "a.b.c", "a.b.c.d", "é.é.é", "x" * 20_000, "e30.e30.", "W10.W10.x",
        f"{part({'alg': 'ES256', 'crit': ['b64'], 'b64': False})}.e30.x",
        f"{part({'alg': 'ES256', 'b64': False})}.e30.x",
        f"{part({'alg': 'ES256', 'typ': 1})}.e30.x",
        f"{base64.urlsafe_b64encode(b'[' * 3000).decode()}.e30.x",
        "e30=.e30.x",
    ],
)  # fmt: skip
def test_what_is_no_token_is_refused(token: str) -> None:
    with pytest.raises(TokenRefused):
        read(token)


def test_what_nests_deeply_is_refused_and_nothing_else_happens() -> None:
    for deep in ("[" * 1000 + "]" * 1000, '{"a":' * 700 + "1" + "}" * 700):
        head = base64.urlsafe_b64encode(f'{{"alg":"ES256","x":{deep}}}'.encode()).decode()
        with pytest.raises(TokenRefused):
            checked(
                f"{head.rstrip('=')}.{part(claims(ISSUER))}.AAAA", VerificationKeys.parse(jwks(KEY))
            )


def altered(key: Key, **fields: Any) -> bytes:
    return json.dumps({"keys": [{**key.as_dict(private=False), **fields}]}).encode()


@pytest.mark.parametrize(
    ("document", "why"),
    [
        (b"", "not JSON"),
        (b"[]", "must be an object"),
        (b'{"keys": {}}', "must be an object"),
        (b'{"keys": [1]}', "must be an object"),
        (b'{"keys": []}', "no public key"),
        (b" " * 300_000, "bytes"),
        (json.dumps({"keys": [{}] * 101}).encode(), "more than 100"),
        (json.dumps({"keys": [KEY.as_dict(private=True)]}).encode(), "private"),
        (json.dumps({"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}).encode(), "shared key"),
        (altered(KEY, use="enc"), "not for signatures"),
        (altered(KEY, key_ops=["sign"]), "not for signatures"),
        (altered(KEY, key_ops=7), "not for signatures"),
        (altered(KEY, alg="HS256"), "for none of"),
        (altered(KEY, crv="secp256k1"), "for none of"),
        (altered(KEY, kid=7), "not a text"),
        (altered(KEY, kid="k" * 600), "kid of more"),
        (altered(KEY, x="AAAA"), "cannot be read"),
        (altered(KEY, x=7), "cannot be read"),
        (altered(RSA, n="AQAB"), "cannot be read|too small"),
        (altered(RSA, e="AQ"), "cannot be read|too small"),
        (altered(RSA, n="A" * 5000), "cannot be read|too small"),
    ],
)
def test_a_jwks_has_public_keys_for_signatures_alone(document: bytes, why: str) -> None:
    with pytest.raises(InvalidJwks, match=why):
        VerificationKeys.parse(document, strict=True)
    with pytest.raises(InvalidJwks):
        VerificationKeys.parse(document)


def test_keys_for_something_else_are_passed_over_in_what_an_issuer_answers() -> None:
    entries = [{"kty": "oct", "k": "c2VjcmV0"}, KEY.as_dict(private=False), {"kty": "AKP"}]
    document = json.dumps({"keys": entries}).encode()
    assert checked(signed(claims(ISSUER), KEY), VerificationKeys.parse(document))
    with pytest.raises(InvalidJwks):
        VerificationKeys.parse(document, strict=True)
