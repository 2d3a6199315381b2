"""A workload shows a token of its issuer, and works as a service account until it ends."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa
from openai import AsyncOpenAI, OAuthError
from openai.auth import k8s_service_account_token_provider
from openai.auth._workload import WorkloadIdentityAuth
from openai.resources.admin.organization import AsyncOrganization
from tests.support.fakes.oidc_issuer import AUDIENCE, OidcIssuer, jwks, signing_key
from tests.support.services.member_keys import Key
from tests.support.services.workloads import Workloads
from tests.support.waiting import until

from windlass.core.db import Database
from windlass.users.workloads.giving import MAX_LIVE_TOKENS, forget_tokens


async def test_openai_python_works_without_a_key(workloads: Workloads, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(workloads.token())
    auth = WorkloadIdentityAuth(
        workload_identity={
            "identity_provider_id": workloads.provider,
            "service_account_id": workloads.account,
            "provider": k8s_service_account_token_provider(tmp_path / "token"),
        },
        token_exchange_url=f"{workloads.front.url}/v1/oauth/token",
    )
    async with AsyncOpenAI(
        base_url=f"{workloads.front.url}/v1", api_key=auth.get_token_async, max_retries=0
    ) as client:
        uploaded = await client.files.create(file=("a.jsonl", b"{}\n"), purpose="user_data")
        assert [one.id async for one in client.files.list()] == [uploaded.id]
    (tmp_path / "token").write_text("made.up.token")
    auth.invalidate_token()
    with pytest.raises(OAuthError) as refused:
        await asyncio.to_thread(auth.get_token)
    assert "is not exchanged" in str(refused.value)


async def test_the_answer_is_of_rfc_8693(workloads: Workloads) -> None:
    for options in ({"json": workloads.form()}, {"data": workloads.form()}):
        answer = await workloads.post(**options)
        assert answer.status_code == 200, answer.text
        assert answer.headers["cache-control"] == "no-store"
        found = answer.json()
        assert found.keys() == {"access_token", "issued_token_type", "token_type", "expires_in"}
        assert found["issued_token_type"] == "urn:ietf:params:oauth:token-type:access_token"
        assert (found["token_type"], 290 <= found["expires_in"] <= 300) == ("Bearer", True)
    shown = "urn:ietf:params:oauth:token-type:id_token"
    assert (await workloads.exchange(subject_token_type=shown)).status_code == 200


async def test_a_token_lives_minutes_and_no_longer_than_what_was_shown(
    workloads: Workloads,
) -> None:
    now = int(time.time())
    long = await workloads.exchange(workloads.token(exp=now + 7200))
    assert 890 <= long.json()["expires_in"] <= 900
    assert (await workloads.exchange(workloads.token(exp=now + 60))).json()["expires_in"] <= 60
    # Within the leeway, and yet over.
    ended = workloads.token(exp=now - 5, iat=now - 300, nbf=now - 300)
    assert (await workloads.exchange(ended)).status_code == 400
    brief = await workloads.key(workloads.token(exp=int(time.time()) + 7))
    assert await brief.status() == 200
    assert await until(brief.status, 10, holds=lambda status: status != 200) == 401


async def test_a_token_is_the_service_accounts(
    workloads: Workloads, admin: AsyncOrganization
) -> None:
    key = await workloads.key()
    me = (await key.ask("GET", "/v1/me")).json()["principal"]
    assert (me["user_id"], me["project_id"]) == (workloads.account, workloads.project)
    assert me["roles"] == ["project_member"]
    assert (await key.ask("POST", "/v1/projects", json={"title": "x"})).status_code == 403
    # It is no key, and lists of keys do not have it.
    listed = [one.id async for one in admin.projects.api_keys.list(workloads.project)]
    assert key.id not in listed
    rules = admin.workload_identity_providers.federation_rules
    await rules.update(
        workloads.rule,
        workload_identity_provider_id=workloads.provider,
        permissions={"type": "restricted", "scopes": ["api.files.read"]},
    )
    assert await key.ends_within_a_second()
    narrow = await workloads.key()
    assert (await narrow.ask("GET", "/v1/files")).status_code == 200
    assert (await narrow.ask("GET", "/v1/fine_tuning/jobs")).status_code == 403


async def test_uploaded_keys_ask_nobody(
    workloads: Workloads, admin: AsyncOrganization, issuer: OidcIssuer
) -> None:
    document = json.loads(jwks(*issuer.keys))
    await admin.workload_identity_providers.update(
        workloads.provider, verification={"type": "uploaded_jwks", "jwks": document}
    )
    await workloads.key()
    assert issuer.asked == []
    issuer.keys = [signing_key()]
    assert (await workloads.exchange()).status_code == 400
    assert issuer.asked == []


async def test_attributes_are_made_by_expressions(
    workloads: Workloads, admin: AsyncOrganization
) -> None:
    providers = admin.workload_identity_providers
    await providers.update(
        workloads.provider,
        attribute_transformations=[
            {"attribute": "main", "expression": 'assertion.sub.endsWith(":refs/heads/main")'},
            {"attribute": "repository", "expression": 'assertion.repository + "!"'},
        ],
    )
    assert (await workloads.exchange()).status_code == 400
    cases: list[tuple[dict[str, str | bool | int | float], int]] = [
        ({"repository": "acme/app!", "main": True}, 200),
        ({"main": "true"}, 400),
        ({"main": 1}, 400),
        ({"main": True, "actor": "ann"}, 400),
    ]
    for matchers, status in cases:
        await providers.federation_rules.update(
            workloads.rule,
            workload_identity_provider_id=workloads.provider,
            attribute_matchers=matchers,
        )
        assert (await workloads.exchange()).status_code == status, matchers


async def test_a_token_may_be_shown_again_while_it_holds(workloads: Workloads) -> None:
    token = workloads.token(jti="once")
    first, second = await workloads.key(token), await workloads.key(token)
    assert first.id != second.id
    assert await first.status() == 200


async def test_what_a_token_makes_ends_with_it(
    workloads: Workloads, admin: AsyncOrganization, front_owner: Key
) -> None:
    key = await workloads.key()
    beyond = await key.try_make(expires_in=3600)
    assert beyond.status_code == 400
    made = await key.make()
    assert 0 < made.body["expires_at"] <= int(time.time()) + 300
    # Nobody gives it another life, nor another secret.
    for path, body in ((f"{key.id}", {"expires_in": 0}), (f"{key.id}/rotate", {})):
        method = "POST" if path.endswith("rotate") else "PATCH"
        answer = await front_owner.ask(method, f"/v1/api_keys/{path}", json=body)
        assert answer.status_code == 400, answer.text
    await admin.workload_identity_providers.federation_rules.delete(
        workloads.rule, workload_identity_provider_id=workloads.provider
    )
    assert await key.ends_within_a_second()
    assert await made.ends_within_a_second()


async def test_tokens_end_with_what_gave_them(
    workloads: Workloads, admin: AsyncOrganization
) -> None:
    providers = admin.workload_identity_providers
    rules, provider, rule = providers.federation_rules, workloads.provider, workloads.rule
    changes: list[Callable[[], Awaitable[object]]] = [
        partial(rules.update, rule, workload_identity_provider_id=provider, enabled=False),
        partial(providers.update, provider, enabled=False),
        partial(providers.update, provider, audience="https://other.example"),
    ]
    back: list[Callable[[], Awaitable[object]]] = [
        partial(rules.update, rule, workload_identity_provider_id=provider, enabled=True),
        partial(providers.update, provider, enabled=True),
        partial(providers.update, provider, audience=AUDIENCE),
    ]
    for change, undo in zip(changes, back, strict=True):
        key = await workloads.key()
        await change()
        assert await key.ends_within_a_second()
        assert (await workloads.exchange()).status_code == 400
        await undo()
        assert await key.status() == 401
    key = await workloads.key()
    await providers.delete(provider)
    assert await key.ends_within_a_second()
    assert (await workloads.exchange()).status_code == 400


async def test_a_rule_that_goes_during_exchanges_leaves_no_token(
    workloads: Workloads, admin: AsyncOrganization
) -> None:
    rules = admin.workload_identity_providers.federation_rules
    await workloads.key()

    given: list[Key] = []

    async def exchanges() -> None:
        while (answer := await workloads.exchange()).status_code == 200:
            secret = answer.json()["access_token"]
            given.append(Key(workloads.front, "", secret, answer.json()))
        assert answer.status_code == 400

    async with asyncio.TaskGroup() as group:
        for _ in range(8):
            group.create_task(exchanges())
        await until(lambda: len(given) > 20)
        await rules.delete(workloads.rule, workload_identity_provider_id=workloads.provider)
    for key in given:
        await until(key.status, 1, holds=lambda status: status == 401)


async def test_tokens_end_with_the_service_account(
    workloads: Workloads, admin: AsyncOrganization, front_owner: Key
) -> None:
    key = await workloads.key()
    await admin.projects.service_accounts.delete(workloads.account, project_id=workloads.project)
    assert await key.ends_within_a_second()
    assert (await workloads.exchange()).status_code == 400
    # Another of that name inherits no rule.
    again = await front_owner.put(
        workloads.account, "project_member", project_id=workloads.project, kind="service_account"
    )
    assert again.status_code == 200, again.text
    assert (await workloads.exchange()).status_code == 400


async def test_exchanges_are_in_the_audit_log(workloads: Workloads, front_owner: Key) -> None:
    key = await workloads.key()
    for _ in range(3):
        await workloads.exchange(workloads.token(aud="other"))

    async def events() -> list[dict[str, str]]:
        answer = await front_owner.ask("GET", "/v1/audit_events", params={"limit": 100})
        found: list[dict[str, str]] = answer.json()["data"]
        return [one for one in found if one["action"].endswith("/ExchangeToken")]

    seen = await until(events, 10, holds=lambda found: len(found) == 5)
    given = [one for one in seen if one["outcome"] == "OK"]
    assert {one["resource"] for one in given} == {workloads.provider, workloads.rule}
    assert {(one["user_id"], one["key_id"]) for one in given} == {(workloads.account, key.id)}
    refused = [one for one in seen if one["outcome"] == "PERMISSION_DENIED"]
    assert {one["reason"] for one in refused} == {"subject_token_refused"}
    assert {one["address"] for one in seen} == {"127.0.0.1"}


async def test_tokens_of_a_rule_are_few_and_forgotten(
    workloads: Workloads, database_url: str
) -> None:
    key = await workloads.key()
    database = Database(database_url, pool_size=1)
    copy = (
        "INSERT INTO users_api_keys SELECT (json_populate_record(k, json_build_object("
        "'id', id || n, 'digest', '\\x' || md5(n::text)))).* FROM users_api_keys k,"
        f" generate_series(1, {MAX_LIVE_TOKENS - 1}) n WHERE id = '{key.id}'"
    )
    old = "UPDATE users_api_keys SET expires_at = 1 WHERE federation_rule_id <> ''"
    count = "SELECT count(*) FROM users_api_keys WHERE federation_rule_id <> ''"
    try:
        async with database.begin() as connection:
            await connection.execute(sa.text(copy.replace(":", "\\:")))
        assert (await workloads.exchange()).status_code == 400
        async with database.begin() as connection:
            await connection.execute(sa.text(old))
        assert (await workloads.exchange()).status_code == 200
        await forget_tokens(database)
        async with database.begin() as connection:
            assert (await connection.execute(sa.text(count))).scalar_one() == 1
    finally:
        await database.close()
