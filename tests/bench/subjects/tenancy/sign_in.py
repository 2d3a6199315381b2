"""What Windlass adds to a sign-in: its own answers between a browser, a program and an issuer.

A person whom the issuer knows still signs in again and again, as a command line does: /login/start,
the issuer's redirect, /login/callback, /login/token. The time of our three answers counts, with the
question to the issuer that the second asks; the peer is the time that the issuer's own answers to
the browser take in the same sign-in. The issuer is oidc-provider, a process of its own.
"""

import time

import httpx
from tests.bench.figures import Figure, Options, at_most
from tests.bench.load import percentile
from tests.bench.plant import NO_AGENT, Plant, split_gateway
from tests.support.clients.browser import Browser
from tests.support.environments.oidc_provider import Issuer, running_issuer
from tests.support.services.signed_in import session_at

ROUNDS, QUICK_ROUNDS = 100, 10
GOAL_MS = 50.0
ALLOWED = {"oidc": {"allowed_networks": ["127.0.0.0/8"]}}
ANN = {"ann": {"email": "ann@a.example", "email_verified": True}}


async def measure(options: Options) -> list[Figure]:
    """See the module."""
    rounds = QUICK_ROUNDS if options.quick else ROUNDS
    async with split_gateway({**NO_AGENT, **ALLOWED}) as plant:
        url = plant.windlass.url
        with running_issuer(f"{url}/login/callback", ANN) as issuer:
            link = _invite(plant, issuer)
            async with Browser("ann") as browser:
                await browser.press(await browser.open(f"{url}{link}"), "Join")
                ours, theirs = await _sign_ins(browser, url, rounds)
    return [
        at_most("sign_in_p50", percentile(ours, 0.5), "ms", GOAL_MS).beside(
            "the issuer's own answers", percentile(theirs, 0.5)
        ),
        at_most("sign_in_p95", percentile(ours, 0.95), "ms", GOAL_MS),
    ]


def _invite(plant: Plant, issuer: Issuer) -> str:
    """Has the installation trust the issuer; returns the link of an invite."""
    with plant.windlass.http() as http:
        body = issuer.provider(of_installation=True)
        http.post("/v1/organization/identity_providers", json=body).raise_for_status()
        made = http.post("/v1/organization/invites", json={"role": "reader"})
        made.raise_for_status()
        return str(made.json()["link"])


async def _sign_ins(browser: Browser, url: str, rounds: int) -> tuple[list[float], list[float]]:
    """Milliseconds of our answers and of the issuer's, for each sign-in."""
    ours, theirs = [], []
    spent = {True: 0.0, False: 0.0}

    async def note(response: httpx.Response) -> None:
        spent[str(response.url).startswith(url)] += time.perf_counter() - begun[response.request]

    begun: dict[httpx.Request, float] = {}

    async def begin(request: httpx.Request) -> None:
        begun[request] = time.perf_counter()

    browser.http.event_hooks = {"request": [begin], "response": [note]}
    for _ in range(rounds):
        spent[True] = spent[False] = 0.0
        begun.clear()
        await session_at(url, browser)
        ours.append(spent[True] * 1000)
        theirs.append(spent[False] * 1000)
    return ours, theirs
