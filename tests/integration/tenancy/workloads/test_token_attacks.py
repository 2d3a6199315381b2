"""Tokens that are forged, of others or of yesterday give nothing, and tell nothing."""

import asyncio
import base64
import hmac
import json
import time
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
from aiohttp import web
from joserfc.jwk import RSAKey
from openai.resources.admin.organization import AsyncOrganization
from tests.support.clients.openai_admin import administering, foreign_key
from tests.support.fakes.oidc_issuer import (
    AUDIENCE,
    OidcIssuer,
    claims,
    oidc_issuer,
    signed,
    signing_key,
)
from tests.support.services.member_keys import Key, join
from tests.support.services.workloads import REPOSITORY, Workloads, let_in

from windlass.gateway.openai.token_exchange import REFUSAL_SECONDS


@pytest.fixture
async def other_issuer() -> AsyncIterator[OidcIssuer]:
    async with oidc_issuer() as issuer:
        yield issuer


async def refused(workloads: Workloads, token: str | None = None, **changed: str) -> None:
    """The exchange fails as every other does: by status, by text and no sooner than they."""
    started = time.monotonic()
    answer = await workloads.exchange(token, **changed)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"] == "invalid_grant"
    assert answer.json()["error_description"].startswith("This token is not exchanged")
    assert not set(answer.json()) - {"error", "error_description"}
    assert time.monotonic() - started >= REFUSAL_SECONDS


def part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


async def test_a_forged_token_gives_nothing(workloads: Workloads, issuer: OidcIssuer) -> None:
    rsa, own = signing_key("RS256"), signing_key()
    issuer.keys.append(rsa)
    assert isinstance(rsa, RSAKey)
    good = claims(issuer.url, repository=REPOSITORY)
    await workloads.key(signed(good, rsa, algorithm="RS256"))
    head = part({"alg": "HS256", "kid": rsa.kid})
    mac = hmac.new(rsa.as_pem(private=False), f"{head}.{part(good)}".encode(), "sha256").digest()
    forged = [
        f"{part({'alg': 'none'})}.{part(good)}.",
        f"{head}.{part(good)}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}",
        signed(good, own, kid=issuer.keys[0].kid),
        signed(good, own, kid=issuer.keys[0].kid, jwk=own.as_dict(private=False)),
        signed(good, own, kid="../../../dev/null"),
        signed(good, own, kid="' OR '1'='1"),
    ]
    for token in forged:
        await refused(workloads, token)


async def test_a_token_for_others_or_of_another_time_gives_nothing(workloads: Workloads) -> None:
    now = int(time.time())
    changes: list[dict[str, Any]] = [
        {"aud": "https://api.openai.com/v1"},
        {"aud": [AUDIENCE + "/"]},
        {"iss": "https://token.actions.githubusercontent.com"},
        {"exp": now - 61, "iat": now - 300, "nbf": now - 300},
        {"nbf": now + 120},
        {"iat": None},
        {"exp": now + 2 * 86400},
        {"repository": "evil/app"},
        {"repository": None},
    ]
    for change in changes:
        await refused(workloads, workloads.token(**change))
    logout = signed(claims(workloads.issuer.url, repository=REPOSITORY),
                    workloads.issuer.keys[0], typ="logout+jwt")  # fmt: skip
    await refused(workloads, logout)


async def test_our_own_credentials_are_no_subject_tokens(
    workloads: Workloads, front_owner: Key
) -> None:
    given = await workloads.key()
    await refused(workloads, given.secret)
    await refused(workloads, front_owner.secret)


async def test_keys_come_from_nowhere_else(workloads: Workloads, issuer: OidcIssuer) -> None:
    elsewhere = {"Location": "http://169.254.169.254/latest/meta-data/"}
    issuer.answers["/jwks"] = partial(web.Response, status=302, headers=elsewhere)
    await refused(workloads)
    assert issuer.asked == ["/.well-known/openid-configuration", "/jwks"]


async def test_others_are_as_if_they_were_not(
    workloads: Workloads, admin: AsyncOrganization, other_issuer: OidcIssuer
) -> None:
    front = workloads.front
    async with administering(front, await foreign_key(front)) as foreign:
        theirs = await let_in(foreign, front, other_issuer)
        assert (await theirs.exchange()).status_code == 200
        # Whatever is named of others, or was never there, is refused alike.
        await refused(workloads, identity_provider_id=theirs.provider)
        await refused(workloads, identity_provider_id="wip_" + "n" * 24)
        await refused(workloads, service_account_id=theirs.account)
        await refused(workloads, service_account_id="nobody")
        await refused(theirs, workloads.token())
        providers = foreign.workload_identity_providers
        for provider in (workloads.provider, "wip_" + "n" * 24):
            with pytest.raises(Exception, match="404"):
                await providers.retrieve(provider)
            with pytest.raises(Exception, match="404"):
                await providers.federation_rules.retrieve(
                    workloads.rule, workload_identity_provider_id=provider
                )
        for project, account in (
            (workloads.project, workloads.account),
            (theirs.project, workloads.account),
        ):
            with pytest.raises(Exception, match="no such service account"):
                await providers.federation_rules.create(
                    theirs.provider,
                    project_id=project,
                    service_account_id=account,
                    attribute_matchers={"sub": "x"},
                )
    # The same issuer, named by two organizations, serves each by its own rules.
    assert (await workloads.exchange()).status_code == 200


async def test_nobody_lets_in_beyond_their_own_power(
    workloads: Workloads, admin: AsyncOrganization, front_owner: Key
) -> None:
    at = f"/v1/organization/workload_identity_providers/{workloads.provider}"
    rule = {
        "project_id": workloads.project,
        "service_account_id": workloads.account,
        "attribute_matchers": {"sub": "x"},
    }

    async def tries(key: Key, **changed: Any) -> int:
        return (await key.ask("POST", f"{at}/federation_rules", json=rule | changed)).status_code

    member = await join(front_owner, "ann", "project_member", workloads.project)
    boss = await join(front_owner, "bob", "project_owner", workloads.project)
    assert await tries(member) == 403
    assert await tries(boss) == 200
    # Providers are the organization's.
    body = {"audience": "mine"}
    assert (await boss.ask("POST", at, json=body)).status_code == 403
    # Of another project, one's own is none.
    elsewhere = (await admin.projects.create(name="Blue")).id
    away = await join(front_owner, "bob", "project_owner", elsewhere)
    assert await tries(away) == 403
    assert await tries(away, project_id=elsewhere) == 400
    # A key gives no more than it has, and for no longer than it is whole.
    narrow = await boss.make("project_owner", scopes=["members.write", "files.read"])
    restricted = {"type": "restricted", "scopes": ["files.read"]}
    assert await tries(narrow) == 403
    assert await tries(narrow, permissions=restricted) == 200
    wider = {"type": "restricted", "scopes": ["files.write"]}
    assert await tries(narrow, permissions=wider) == 403
    for limits in ({"networks": ["127.0.0.0/8"]}, {"models": ["m"]}):
        assert await tries(await boss.make("project_owner", **limits)) == 403
    # Nor by an edit of what is there: neither its rules, nor the account above them.
    path = f"{at}/federation_rules/{workloads.rule}"
    assert (await member.ask("POST", path, json={"enabled": True})).status_code == 403
    assert (await narrow.ask("POST", path, json={"enabled": True})).status_code == 403
    assert (await narrow.ask("DELETE", path)).status_code == 403
    assert (await away.ask("POST", path, json={"enabled": True})).status_code == 404
    whole = {"scopes": ["members.write", "projects.write", "members.read"]}
    scoped = await front_owner.make("organization_owner", **whole)
    assert (await scoped.ask("POST", at, json=body)).status_code == 403
    assert (await scoped.ask("DELETE", at)).status_code == 403


async def test_a_token_lets_nobody_in(
    workloads: Workloads, admin: AsyncOrganization, front_owner: Key
) -> None:
    await admin.projects.service_accounts.update(
        workloads.account, project_id=workloads.project, role="owner"
    )
    token = await workloads.key()
    at = f"/v1/organization/workload_identity_providers/{workloads.provider}/federation_rules"
    rule = {
        "project_id": workloads.project,
        "service_account_id": workloads.account,
        "attribute_matchers": {"sub": "x"},
    }
    for key in (token, await token.make("project_owner")):
        answer = await key.ask("POST", at, json=rule)
        assert answer.status_code == 403, answer.text
        assert "token cannot let" in answer.text
        changed = await key.ask("POST", f"{at}/{workloads.rule}", json={"enabled": True})
        assert changed.status_code == 403
    assert (await front_owner.ask("POST", at, json=rule)).status_code == 200


async def test_tokens_rest_on_who_let_them_in(workloads: Workloads, front_owner: Key) -> None:
    boss = await join(front_owner, "bob", "project_owner", workloads.project)
    path = (
        f"/v1/organization/workload_identity_providers/{workloads.provider}/federation_rules/"
        f"{workloads.rule}"
    )
    assert (await boss.ask("POST", path, json={"name": "bob's"})).status_code == 200
    key = await workloads.key()
    assert (await front_owner.remove("bob", project_id=workloads.project)).status_code == 200
    assert await key.ends_within_a_second()
    await refused(workloads)
    # Another owner takes it over by saving it.
    assert (await front_owner.ask("POST", path, json={"enabled": True})).status_code == 200
    again = await workloads.key()
    assert await again.status() == 200
    archive = f"/v1/organization/projects/{workloads.project}/archive"
    assert (await front_owner.ask("POST", archive)).status_code == 200
    assert await again.ends_within_a_second()
    await refused(workloads)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"grant_type": "client_credentials"}, "unsupported_grant_type"),
    ({"subject_token_type": "urn:ietf:params:oauth:token-type:access_token"}, "invalid_request"),
    ({"subject_token": ""}, "invalid_request"),
    ({"identity_provider_id": "x" * 300}, "invalid_request"),
    ({"service_account_id": "\ud800"}, "invalid_request"),
    ({"service_account_id": 7}, "invalid_request"),
    ({"service_account_id": "a\0"}, "invalid_request"),
    ({"identity_provider_id": "cluster:\0"}, "invalid_request"),
    ({"identity_provider_id": "é"}, "invalid_request"),
    ({"scope": "files.read"}, "invalid_request"),
    ({"actor_token": "x"}, "invalid_request"),
    ({"requested_token_type": "urn:ietf:params:oauth:token-type:jwt"}, "invalid_request"),
]


async def test_malformed_bodies_are_refused(workloads: Workloads) -> None:
    headers = {"content-type": "application/json"}
    for change, error in WRONG:
        content = json.dumps(workloads.form("x") | change)
        answer = await workloads.post(content=content, headers=headers)
        assert (answer.status_code, answer.json()["error"]) == (400, error), change
    kinds = ("application/json", "application/x-www-form-urlencoded", "text/plain", "")
    form = "&".join(f"{name}={value}" for name, value in workloads.form("x").items())
    bodies = ["", "[]", "{", "null", '{"grant_type": []}', form + "&grant_type=x", "%ff=%fe", "a=1"]
    for kind in kinds:
        for body in bodies:
            answer = await workloads.post(content=body, headers={"content-type": kind})
            assert answer.status_code in (400, 415), (kind, body, answer.text)
    huge = await workloads.post(json=workloads.form("x" * 50_000))
    assert huge.status_code == 413
    async with workloads.front.http() as http:
        assert (await http.get("/v1/oauth/token")).status_code == 405


async def test_who_is_refused_again_and_again_must_wait(workloads: Workloads) -> None:
    allowed = workloads.front.app.settings.auth.wrong_keys
    tries = (workloads.exchange("a.b.c") for _ in range(allowed + 1))
    statuses = sorted(answer.status_code for answer in await asyncio.gather(*tries))
    assert statuses == [400] * allowed + [429]
    assert (await workloads.exchange("a.b.c")).headers["retry-after"]
    # Whoever has a good one gets through.
    assert (await workloads.exchange()).status_code == 200
