"""Cookies that somebody has planted in a browser before its person signs in."""

import pytest
from tests.support.clients.browser import Browser
from tests.support.environments.oidc_provider import Issuer
from tests.support.services.member_keys import Key
from tests.support.services.signed_in import by_invite, login, trust

from windlass.gateway.authentication.credentials import SESSION_COOKIE
from windlass.gateway.sign_in.cookies import FLOW, REFRESH

PATHS = {SESSION_COOKIE: "/", REFRESH: "/login", FLOW: "/login"}


def cookies_of(browser: Browser) -> dict[str, str]:
    """Ours; the issuer of the tests is on the same host."""
    return {one.name: one.value or "" for one in browser.http.cookies.jar if one.name in PATHS}


def plant(browser: Browser, cookies: dict[str, str]) -> None:
    for name, value in cookies.items():
        browser.http.cookies.set(name, value, domain="127.0.0.1", path=PATHS[name])


async def user_of(owner: Key, browser: Browser) -> str:
    answer = await browser.http.get(f"{owner.front.url}/v1/me")
    return str(answer.json()["principal"]["user_id"]) if answer.status_code == 200 else ""


async def an_attackers(owner: Key, browser: Browser) -> dict[str, str]:
    """The cookies of a session, and those of a sign-in that waits for its issuer's answer."""
    assert "Signed in" in (await browser.open(login(owner))).text
    await browser.open(login(owner), until=f"{owner.front.url}/login/callback")
    return cookies_of(browser)


@pytest.mark.parametrize("of_somebody", [True, False])
async def test_planted_cookies_are_replaced_and_open_nothing(
    owner: Key, issuer: Issuer, of_somebody: bool
) -> None:
    await trust(owner, issuer)
    for person in ("ann", "bob"):
        await by_invite(owner, person, role="reader")
    callback = f"{owner.front.url}/login/callback"
    async with Browser("bob") as attacker, Browser("ann") as ann, Browser() as thief:
        planted = dict.fromkeys(PATHS, "planted")
        if of_somebody:
            planted = await an_attackers(owner, attacker)
        bob = await user_of(owner, attacker)
        assert planted.keys() == PATHS.keys()
        plant(ann, planted)
        page = await ann.open(login(owner), until=callback)
        answer = str(page.headers["location"])
        assert "Signed in" in (await ann.open(answer)).text
        kept = cookies_of(ann)
        assert kept.keys() == {SESSION_COOKIE, REFRESH}
        assert not {*kept.values()} & {*planted.values()}
        signed_in = await user_of(owner, ann)

        # Whoever planted them has what they had before, and nothing of hers.
        plant(thief, planted)
        assert await user_of(owner, thief) == bob
        assert (await thief.http.get(answer)).status_code == 400
        own = {"sec-fetch-site": "same-origin"}
        url = f"{owner.front.url}/login/refresh"
        renewed = await thief.http.post(url, headers=own)
        assert renewed.status_code == (204 if of_somebody else 401)
        assert await user_of(owner, thief) == bob
        assert signed_in not in ("", await user_of(owner, thief))
        assert await user_of(owner, ann) == signed_in
