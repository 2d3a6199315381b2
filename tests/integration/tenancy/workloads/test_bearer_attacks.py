"""Tokens that are forged, of others or revoked are no keys, and cost nearly nothing."""

import asyncio
import base64
import hmac
import json
import time
from typing import Any

from joserfc.jwk import RSAKey
from openai.resources.admin.organization import AsyncOrganization
from tests.support.clients.openai_admin import administering, foreign_key
from tests.support.fakes.oidc_issuer import AUDIENCE, OidcIssuer, claims, signed, signing_key
from tests.support.services.member_keys import Key
from tests.support.services.workloads import REPOSITORY, Workloads, let_in
from tests.support.waiting import until

from windlass.core.oidc.tokens import TOKEN_BYTES

# The order of P-256: (r, s) and (r, n - s) are signatures of the same.
P256 = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551


def part(value: object) -> str:
    return encoded(json.dumps(value).encode())


def encoded(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


async def refused(workloads: Workloads, token: str) -> None:
    answer = await Key(workloads.front, "", token, {}).ask("GET", "/v1/me")
    assert answer.status_code == 401, answer.text
    assert answer.json()["error"]["code"] == "invalid_api_key"


def good(workloads: Workloads, **changed: Any) -> dict[str, Any]:
    said = {"repository": REPOSITORY, "aud": f"{AUDIENCE}/{workloads.rule}", **changed}
    return claims(workloads.issuer.url, **said)


async def test_a_forged_token_is_no_key(bearers: Workloads, issuer: OidcIssuer) -> None:
    rsa, own = signing_key("RS256"), signing_key()
    issuer.keys.append(rsa)
    assert isinstance(rsa, RSAKey)
    right = good(bearers)
    key = Key(bearers.front, "", signed(right, rsa, algorithm="RS256"), {})
    assert await key.status() == 200
    head = part({"alg": "HS256", "kid": rsa.kid})
    mac = hmac.new(rsa.as_pem(private=False), f"{head}.{part(right)}".encode(), "sha256").digest()
    forged = [
        f"{part({'alg': 'none'})}.{part(right)}.",
        f"{part({'alg': 'none'})}.{part(right)}.AA",
        f"{head}.{part(right)}.{encoded(mac)}",
        signed(right, own, kid=issuer.keys[0].kid),
        signed(right, own, kid=issuer.keys[0].kid, jwk=own.as_dict(private=False)),
        signed(right, own, kid="../../../dev/null"),
        # What is known as good lends its signature to nothing else.
        key.secret.rpartition(".")[0] + ".AAAA",
    ]
    for token in forged:
        await refused(bearers, token)


async def test_a_token_for_others_or_of_another_time_is_no_key(bearers: Workloads) -> None:
    now = int(time.time())
    named = f"{AUDIENCE}/{bearers.rule}"
    changes: list[dict[str, Any]] = [
        {"aud": AUDIENCE},
        {"aud": None},
        {"aud": [named, "https://evil.example"]},
        {"aud": [named, named]},
        {"aud": "https://evil.example/" + bearers.rule},
        {"aud": f"{AUDIENCE}//{bearers.rule}"},
        {"aud": bearers.rule},
        {"aud": f"{AUDIENCE}/wir_{'n' * 24}"},
        {"iss": "https://token.actions.githubusercontent.com"},
        {"exp": now - 1, "iat": now - 300, "nbf": now - 300},
        {"nbf": now + 120},
        {"iat": None},
        {"exp": now + 2 * 86400},
        {"repository": "evil/app"},
        {"repository": None},
    ]
    for change in changes:
        await refused(bearers, bearers.bearer(**change).secret)
    logout = signed(good(bearers), bearers.issuer.keys[0], typ="logout+jwt")
    await refused(bearers, logout)
    assert await bearers.bearer(aud=[named]).status() == 200


async def test_a_token_is_for_the_organization_that_it_names(
    bearers: Workloads, issuer: OidcIssuer
) -> None:
    """Two organizations trust one issuer, for one repository and one audience."""
    front = bearers.front
    owner = Key(front, "", await foreign_key(front), {})
    async with administering(front, owner.secret) as foreign:
        theirs = await let_in(foreign, front, issuer)
        at = "/v1/organization/workload_identity_providers"
        body = {"accepts_bearer": True}
        path = f"{at}/{theirs.provider}/federation_rules/{theirs.rule}"
        assert (await owner.ask("POST", path, json=body)).status_code == 200
        for one in (bearers, theirs):
            key = one.bearer()
            me = (await key.ask("GET", "/v1/me")).json()["principal"]
            assert (me["project_id"], me["user_id"]) == (one.project, one.account)
            # No header makes it another's.
            other = theirs if one is bearers else bearers
            for name, value in (("OpenAI-Project", other.project),
                                ("OpenAI-Organization", "org_other")):  # fmt: skip
                async with front.http(key.secret, **{name: value}) as http:
                    assert (await http.get("/v1/files")).status_code == 403
        for provider in (bearers.provider, theirs.provider):
            path = f"{at}/{provider}/federation_rules/{bearers.rule}"
            assert (await owner.ask("POST", path, json=body)).status_code == 404


async def test_a_revoked_bearer_never_comes_back(bearers: Workloads, front_owner: Key) -> None:
    key = bearers.bearer()
    key.id = (await key.ask("GET", "/v1/me")).json()["principal"]["key_id"]
    assert (await front_owner.revoke(key)).status_code == 200
    assert "revoked" in await key.ends_within_a_second()
    # A change of its rule judges others anew, and the same signed otherwise is the same.
    assert (await bearers.change_rule(name="again")).status_code == 200
    head, payload, signature = key.secret.split(".")
    raw = base64.urlsafe_b64decode(signature + "==")
    other = (P256 - int.from_bytes(raw[32:])).to_bytes(32)
    for token in (key.secret, f"{head}.{payload}.{encoded(raw[:32] + other)}", key.secret + "="):
        await refused(bearers, token)
    assert await bearers.bearer(jti="another").status() == 200


async def test_a_live_bearer_has_one_signature(bearers: Workloads) -> None:
    key = bearers.bearer()
    assert await key.status() == 200
    head, payload, signature = key.secret.split(".")
    raw = base64.urlsafe_b64decode(signature + "==")
    other = (P256 - int.from_bytes(raw[32:])).to_bytes(32)
    await refused(bearers, f"{head}.{payload}.{encoded(raw[:32] + other)}")
    assert await key.status() == 200


async def test_a_bearer_is_no_other_credential(bearers: Workloads) -> None:
    token = bearers.bearer().secret
    assert await Key(bearers.front, "", token, {}).status() == 200
    cookie = {"cookie": f"windlass_session={token}", "sec-fetch-site": "same-origin"}
    async with bearers.front.http() as http:
        del http.headers["authorization"]
        for headers in ({"x-api-key": token}, cookie, {"authorization": f"Basic {token}"}):
            assert (await http.get("/v1/me", headers=headers)).status_code == 401
    # Whoever shows it twice shows one that a proxy may have judged.
    large = bearers.bearer(padding="x" * TOKEN_BYTES).secret
    await refused(bearers, large)
    huge = Key(bearers.front, "", bearers.bearer(padding="x" * 40_000).secret, {})
    assert await huge.status() == 431


async def test_unknown_keys_are_asked_for_once(bearers: Workloads, issuer: OidcIssuer) -> None:
    assert await bearers.bearer().status() == 200
    asked = len(issuer.asked)
    for _ in range(3):
        await refused(bearers, signed(good(bearers), signing_key()))
    assert len(issuer.asked) <= asked + 2


async def test_a_bearer_makes_nothing_that_outlives_it(
    bearers: Workloads, admin: AsyncOrganization, front_owner: Key
) -> None:
    key = bearers.bearer()
    key.id = (await key.ask("GET", "/v1/me")).json()["principal"]["key_id"]
    assert (await key.try_make(expires_in=3600)).status_code == 400
    made = await key.make()
    for method, path, body in (("PATCH", key.id, {"expires_in": 0}),
                               ("POST", f"{key.id}/rotate", {})):  # fmt: skip
        answer = await front_owner.ask(method, f"/v1/api_keys/{path}", json=body)
        assert answer.status_code == 400, answer.text
    assert key.id not in [one.id async for one in admin.projects.api_keys.list(bearers.project)]
    await bearers.change_rule(accepts_bearer=False)
    assert await made.ends_within_a_second()


async def test_a_rule_that_goes_while_tokens_come_leaves_none(bearers: Workloads) -> None:
    seen: list[Key] = []

    async def comes(number: int) -> None:
        while True:
            key = bearers.bearer(jti=f"{number}-{len(seen)}")
            if await key.status() != 200:
                return
            seen.append(key)

    async with asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(comes(number))
        await until(lambda: len(seen) > 12)
        assert (await bearers.change_rule(enabled=False)).status_code == 200
    for key in seen:
        await until(key.status, 1, holds=lambda status: status == 401)


async def test_who_shows_garbage_must_wait(bearers: Workloads) -> None:
    allowed = bearers.front.app.settings.auth.wrong_keys
    keys = [bearers.bearer(repository=f"evil/{n}") for n in range(allowed // 2)]
    keys += [Key(bearers.front, "", f"a.b.{n}", {}) for n in range(allowed - len(keys) + 1)]
    statuses = sorted([await key.status() for key in keys])
    assert statuses == [401] * allowed + [429]
    # Whoever has a good one gets through.
    assert await bearers.bearer().status() == 200


async def test_only_who_may_make_the_rule_lets_its_tokens_in(
    workloads: Workloads, front_owner: Key
) -> None:
    member = await front_owner.put("ann", "project_member", project_id=workloads.project)
    assert member.status_code == 200
    ann = await front_owner.make(user_id="ann", project_id=workloads.project)
    at = f"/v1/organization/workload_identity_providers/{workloads.provider}/federation_rules"
    answer = await ann.ask("POST", f"{at}/{workloads.rule}", json={"accepts_bearer": True})
    assert answer.status_code == 403
    wrongs: list[object] = ["maybe", [], {}, 2]
    for wrong in wrongs:
        answer = await workloads.change_rule(accepts_bearer=wrong)
        assert answer.status_code == 400, wrong
    await refused(workloads, workloads.bearer().secret)
