"""Sign-in as a test walks it: providers, invites, codes and sessions."""

import base64
import hashlib
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
from tests.support.clients.browser import Browser
from tests.support.environments.oidc_provider import Issuer
from tests.support.services.member_keys import Key

VERIFIER = "v" * 43
LOOPBACK = "http://127.0.0.1:9/callback"


def challenge(verifier: str = VERIFIER) -> str:
    digest = hashlib.sha256(verifier.encode()).digest()
    return base64.urlsafe_b64encode(digest).decode().rstrip("=")


async def trust(owner: Key, issuer: Issuer, **settings: Any) -> str:
    """Has the installation trust the issuer, unless it is told otherwise."""
    body = issuer.provider(**{"of_installation": True, **settings})
    answer = await owner.ask("POST", "/v1/organization/identity_providers", json=body)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


async def invite(owner: Key, **body: Any) -> str:
    """The link of an invite."""
    answer = await owner.ask("POST", "/v1/organization/invites", json=body)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["link"])


def login(owner: Key, **query: str) -> str:
    return f"{owner.front.url}/login?{urlencode(query)}"


def loopback(owner: Key, **query: str) -> str:
    asked = {"redirect_uri": LOOPBACK, "state": "s&t", "code_challenge": challenge()}
    return login(owner, **{**asked, **query})


async def token(owner: Key, **form: str) -> httpx.Response:
    async with httpx.AsyncClient(base_url=owner.front.url) as http:
        return await http.post("/login/token", data=form)


async def redeem(owner: Key, page: httpx.Response, **form: str) -> httpx.Response:
    """The session of the code that a page leads to a program with."""
    code = parse_qs(urlsplit(page.headers["location"]).query)["code"][0]
    grant = {"grant_type": "authorization_code", "redirect_uri": LOOPBACK}
    return await token(owner, **{**grant, "code": code, "code_verifier": VERIFIER, **form})


async def signed_in(owner: Key, person: str, **query: str) -> Key:
    """The session of a person's command line."""
    async with Browser(person) as browser:
        page = await browser.open(loopback(owner, **query), until=LOOPBACK)
        if "invite" in query:
            page = await browser.press(page, "Join", until=LOOPBACK)
        answer = await redeem(owner, page)
    assert answer.status_code == 200, answer.text
    body = answer.json()
    return Key(owner.front, body["session_id"], body["access_token"], body)


async def session_at(url: str, browser: Browser) -> dict[str, Any]:
    """What a command line of somebody whom the installation knows gets at an address."""
    query = {"redirect_uri": LOOPBACK, "state": "s", "code_challenge": challenge()}
    page = await browser.open(f"{url}/login?{urlencode(query)}", until=LOOPBACK)
    form = {
        "grant_type": "authorization_code",
        "code": parse_qs(urlsplit(page.headers["location"]).query)["code"][0],
        "code_verifier": VERIFIER,
        "redirect_uri": LOOPBACK,
    }
    answer = await browser.http.post(f"{url}/login/token", data=form)
    assert answer.status_code == 200, answer.text
    session: dict[str, Any] = answer.json()
    return session


async def by_invite(owner: Key, person: str, **body: Any) -> Key:
    link = await invite(owner, **body)
    return await signed_in(owner, person, invite=link.rpartition("/")[2])
