"""Faults of an issuer in the middle of a sign-in: down, slow, other keys, and another time."""

import time
from collections.abc import Iterator

import httpx
import pytest
from tests.support.clients.browser import Browser
from tests.support.environments.oidc_provider import Issuer, running_issuer
from tests.support.services.member_keys import Key
from tests.support.services.signed_in import by_invite, login, trust

PERSON = {"email": "ann@a.example", "email_verified": True}
LEEWAY = 300
# For a name, a connection and all bytes, of each question to an issuer.
ANSWER_SECONDS = 5.0


@pytest.fixture
def faulty(port: int) -> Iterator[Issuer]:
    """An issuer of one test, which breaks it."""
    with running_issuer(f"http://127.0.0.1:{port}/login/callback", {"ann": PERSON}) as running:
        yield running


async def left(browser: Browser, owner: Key, **query: str) -> str:
    """The answer with which the issuer sends a browser back, which is not followed yet."""
    page = await browser.open(login(owner, **query), until=f"{owner.front.url}/login/callback")
    return str(page.headers["location"])


async def is_signed_in(browser: Browser, owner: Key) -> bool:
    return (await browser.http.get(f"{owner.front.url}/v1/me")).status_code == 200


def failed(page: httpx.Response, status: int, words: str) -> None:
    """Fails unless the page says so, and leaves no session."""
    assert page.status_code == status, page.text
    assert words in page.text, page.text
    assert "windlass_session" not in page.headers.get("set-cookie", "")


async def test_it_goes_down_before_the_answer_is_brought(owner: Key, faulty: Issuer) -> None:
    await trust(owner, faulty)
    ann = await by_invite(owner, "ann", role="reader")
    async with Browser("ann") as browser:
        answer = await left(browser, owner)
        faulty.stop()
        page = await browser.open(answer)
        failed(page, 503, "Nobody can sign in by issuer now. The issuer did not answer")
        assert not await is_signed_in(browser, owner)
        # Who is in stays in, and it is known still where people begin.
        assert await ann.status() == 200
        async with Browser("ann") as other:
            begun = await other.open(login(owner), until=faulty.url)
            assert begun.headers["location"].startswith(faulty.url)
        faulty.start()
        # It knows nothing any more of the code that it gave.
        failed(await browser.open(answer), 403, "The issuer refused it")
        assert "Signed in" in (await browser.open(login(owner))).text


async def test_it_rotates_its_keys_before_the_answer_is_brought(owner: Key, faulty: Issuer) -> None:
    """The keys that we know were fetched a moment ago, when the sign-in began."""
    await trust(owner, faulty)
    await by_invite(owner, "ann", role="reader")
    async with Browser("ann") as browser:
        answer = await left(browser, owner)
        faulty.rotate()
        assert "Signed in" in (await browser.open(answer)).text
        assert await is_signed_in(browser, owner)


async def test_it_answers_too_slowly(owner: Key, faulty: Issuer) -> None:
    await trust(owner, faulty)
    await by_invite(owner, "ann", role="reader")
    async with Browser("ann") as browser:
        answer = await left(browser, owner)
        faulty.hang()
        started = time.monotonic()
        page = await browser.open(answer)
        waited = time.monotonic() - started
        failed(page, 503, f"did not respond within {ANSWER_SECONDS:.0f} seconds")
        # With room for a machine that is busy: what it would wait for never comes.
        assert ANSWER_SECONDS * 0.9 < waited < ANSWER_SECONDS * 4
        faulty.go_on()
        assert "Signed in" in (await browser.open(login(owner))).text


async def test_one_that_hangs_is_not_trusted_anew(owner: Key, faulty: Issuer) -> None:
    faulty.hang()
    path = "/v1/organization/identity_providers"
    refused = await owner.ask("POST", path, json=faulty.provider())
    error = refused.json()["error"]
    assert (refused.status_code, error["code"]) == (409, "issuer_unavailable")
    assert f"within {ANSWER_SECONDS:.0f} seconds" in error["message"]


@pytest.mark.parametrize("offset", [LEEWAY - 2, 2 - LEEWAY, -LEEWAY])
async def test_a_clock_within_the_leeway_changes_nothing(
    owner: Key, faulty: Issuer, offset: int
) -> None:
    faulty.start(clock_offset=offset)
    await trust(owner, faulty)
    ann = await by_invite(owner, "ann", role="owner")
    said = (await ann.ask("GET", "/v1/auth/explanation")).json()
    # By our clock, so that nobody is fresh for longer, or for less.
    assert abs(said["auth_at"] - time.time()) < 30
    assert (await ann.try_make("organization_owner")).status_code == 200


@pytest.mark.parametrize(
    ("offset", "words"), [(2 * LEEWAY, "does not hold yet"), (-3 * LEEWAY, "has expired")]
)
async def test_a_clock_beyond_the_leeway_is_told_of(
    owner: Key, faulty: Issuer, offset: int, words: str
) -> None:
    await trust(owner, faulty)
    await by_invite(owner, "ann", role="owner")
    faulty.start(clock_offset=offset)
    async with Browser("ann") as browser:
        page = await browser.open(login(owner))
        failed(page, 403, words)
        assert f"Clocks may differ by {LEEWAY} seconds" in page.text
        assert not await is_signed_in(browser, owner)
