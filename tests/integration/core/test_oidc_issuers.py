"""Issuers over the network: their keys are kept, rotate, go stale and end, and lead nowhere."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from aiohttp import web
from tests.support.fakes.oidc_issuer import (
    AUDIENCE,
    LOOPBACK,
    OidcIssuer,
    claims,
    oidc_issuer,
    signed,
    signing_key,
)
from tests.support.waiting import until

from windlass.core import clock
from windlass.core.oidc import documents, issuers
from windlass.core.oidc.issuers import IssuerUnavailable, OidcIssuers
from windlass.core.oidc.tokens import TokenRefused, read
from windlass.core.outbound.addresses import UrlRefused

METADATA, JWKS = "/.well-known/openid-configuration", "/jwks"


@pytest.fixture
async def issuer() -> AsyncIterator[OidcIssuer]:
    async with oidc_issuer() as issuer:
        yield issuer


@pytest.fixture
async def trusted() -> AsyncIterator[OidcIssuers]:
    made = OidcIssuers(LOOPBACK)
    yield made
    await made.close()


@pytest.fixture
def pass_time(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds by which the time of issuers and tokens is ahead."""
    ahead = [0.0]
    now = clock.now
    monkeypatch.setattr(clock, "now", lambda: now() + ahead[0])
    return ahead


async def checked(trusted: OidcIssuers, issuer: OidcIssuer, token: str, owner: str = "org") -> str:
    found = await trusted.verify(read(token), issuer=issuer.url, audience=AUDIENCE, owner=owner)
    return str(found["sub"])


async def test_keys_are_fetched_once_and_kept(issuer: OidcIssuer, trusted: OidcIssuers) -> None:
    held = [asyncio.ensure_future(checked(trusted, issuer, issuer.token())) for _ in range(20)]
    assert len(set(await asyncio.gather(*held))) == 1
    assert issuer.asked == [METADATA, JWKS]
    # Another owner's are its own.
    await checked(trusted, issuer, issuer.token(), owner="other")
    assert issuer.asked == [METADATA, JWKS] * 2


async def test_an_unknown_key_has_them_fetched_once_more(
    issuer: OidcIssuer, trusted: OidcIssuers, pass_time: list[float]
) -> None:
    await checked(trusted, issuer, issuer.token())
    issuer.keys = [signing_key()]
    pass_time[0] = issuers.REFETCH_SECONDS + 1
    await checked(trusted, issuer, issuer.token())
    assert len(issuer.asked) == 4
    for _ in range(5):
        with pytest.raises(TokenRefused):
            await checked(trusted, issuer, signed(claims(issuer.url), signing_key()))
    assert len(issuer.asked) == 4


async def test_old_keys_end(
    issuer: OidcIssuer, trusted: OidcIssuers, pass_time: list[float]
) -> None:
    before = issuer.keys[0]
    await checked(trusted, issuer, issuer.token())
    issuer.keys = [signing_key()]
    pass_time[0] = issuers.FRESH_SECONDS + 1
    token = signed(claims(issuer.url, exp=clock.now() + 300), before)
    with pytest.raises(TokenRefused):
        await checked(trusted, issuer, token)


async def test_keys_outlive_an_issuer_that_is_down_for_a_while_alone(
    issuer: OidcIssuer, trusted: OidcIssuers, pass_time: list[float]
) -> None:
    await checked(trusted, issuer, issuer.token())
    issuer.answers[METADATA] = partial(web.Response, status=503)
    pass_time[0] = issuers.STALE_SECONDS - 30
    await checked(trusted, issuer, issuer.token(exp=clock.now() + 300))
    pass_time[0] = issuers.STALE_SECONDS + 1
    with pytest.raises(IssuerUnavailable, match="503"):
        await checked(trusted, issuer, issuer.token(exp=clock.now() + 300))


@pytest.mark.parametrize("path", [METADATA, JWKS])
async def test_a_redirect_leads_nowhere(
    issuer: OidcIssuer, trusted: OidcIssuers, path: str
) -> None:
    headers = {"Location": f"{issuer.url}/elsewhere"}
    issuer.answers[path] = partial(web.Response, status=302, headers=headers)
    with pytest.raises(IssuerUnavailable, match="302"):
        await checked(trusted, issuer, issuer.token())
    assert "/elsewhere" not in issuer.asked


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data/", "https://10.0.0.1/jwks", "file:///etc/passwd",
        "https://user@127.0.0.1/jwks", "http://2130706433/jwks", "None", "", "https://[::1]/jwks",
        "http://203.0.113.7/jwks",
    ],
)  # fmt: skip
async def test_keys_come_from_permitted_addresses_alone(
    issuer: OidcIssuer, trusted: OidcIssuers, url: str
) -> None:
    issuer.metadata["jwks_uri"] = url
    with pytest.raises(IssuerUnavailable):
        await checked(trusted, issuer, issuer.token())
    assert issuer.asked == [METADATA]


async def test_metadata_is_of_the_issuer_that_was_asked(
    issuer: OidcIssuer, trusted: OidcIssuers
) -> None:
    issuer.metadata["issuer"] = "https://accounts.example"
    with pytest.raises(IssuerUnavailable, match="does not name"):
        await checked(trusted, issuer, issuer.token())


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (partial(web.Response, body=b"x" * 70_000), "more than 65536 bytes"),
        (partial(web.Response, body=b"<html>"), "not JSON"),
        (partial(web.Response, body=b"[1]"), "not a JSON object"),
        (partial(web.Response, body=b"x", headers={"Content-Encoding": "gzip"}), "compressed"),
    ],
)
async def test_what_an_issuer_answers_is_bounded(
    issuer: OidcIssuer, trusted: OidcIssuers, answer: partial[web.Response], why: str
) -> None:
    issuer.answers[METADATA] = answer
    with pytest.raises(IssuerUnavailable, match=why):
        await checked(trusted, issuer, issuer.token())


async def test_a_slow_issuer_is_left_and_not_asked_again_and_again(
    issuer: OidcIssuer, trusted: OidcIssuers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "SECONDS", 1.0)
    issuer.released.clear()
    for _ in range(3):
        with pytest.raises(IssuerUnavailable, match="did not respond"):
            await checked(trusted, issuer, issuer.token())
    assert issuer.asked == [METADATA]


async def test_who_leaves_takes_keys_from_nobody(issuer: OidcIssuer, trusted: OidcIssuers) -> None:
    issuer.released.clear()
    leaving = asyncio.ensure_future(checked(trusted, issuer, issuer.token()))
    await until(lambda: bool(issuer.asked))
    leaving.cancel()
    await asyncio.wait([leaving])
    issuer.released.set()
    assert await checked(trusted, issuer, issuer.token())


async def test_https_shows_a_certificate_that_is_trusted(tmp_path: Path) -> None:
    async with oidc_issuer(tmp_path) as issuer:
        believing, doubting = OidcIssuers(LOOPBACK, tls=issuer.trust), OidcIssuers(LOOPBACK)
        assert await checked(believing, issuer, issuer.token())
        with pytest.raises(IssuerUnavailable, match="certificate"):
            await checked(doubting, issuer, issuer.token())
        await believing.close()
        await doubting.close()


@pytest.mark.parametrize(
    "url",
    [
        "http://issuer.example", "https://127.0.0.1", "https://issuer.example/?a=b", "ftp://a.b",
        "https://issuer.example/#a", "https://me@issuer.example", "https://0x7f000001", "issuer",
        "https://" + "a" * 3000,
    ],
)  # fmt: skip
async def test_an_issuer_is_at_a_public_address_over_https(url: str) -> None:
    strict = OidcIssuers(())
    strict.admit("https://token.actions.githubusercontent.com")
    with pytest.raises(UrlRefused):
        strict.admit(url)
    await strict.close()


async def test_other_networks_are_an_operators_to_allow(
    issuer: OidcIssuer, trusted: OidcIssuers
) -> None:
    trusted.admit(issuer.url)
    with pytest.raises(UrlRefused):
        trusted.admit("https://10.0.0.1")
    # A name may resolve to anything: only then is it known whether http may be spoken with it.
    trusted.admit("http://dex.example")
