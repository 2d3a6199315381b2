"""A workload's own token is its key, where a rule accepts it as it is."""

import asyncio
import time
from pathlib import Path

import pytest
import sqlalchemy as sa
import structlog
from openai import AsyncOpenAI
from openai.resources.admin.organization import AsyncOrganization
from tests.support.fakes.oidc_issuer import AUDIENCE
from tests.support.services.member_keys import Key
from tests.support.services.workloads import Workloads, accepted
from tests.support.waiting import until

from windlass import key_cache
from windlass.core.db import Database
from windlass.metrics import rpc
from windlass.users.workloads.giving import TOKEN_SECONDS

# What a request may cost, until its key is known.
CALLS = ("Authenticate", "LookupApiKey", "AcceptBearer", "FingerprintRules")


def calls() -> int:
    """How often who calls was asked about, here."""
    samples = [one for metric in rpc.HANDLED.collect() for one in metric.samples]
    asked = [one for one in samples if not set(CALLS).isdisjoint(one.labels.values())]
    return sum(int(one.value) for one in asked if one.name.endswith("_total"))


async def refused(key: Key) -> None:
    answer = await key.ask("GET", "/v1/me")
    assert answer.status_code == 401, answer.text
    assert answer.json()["error"]["code"] == "invalid_api_key"


async def test_openai_python_works_with_the_token_alone(bearers: Workloads) -> None:
    async with AsyncOpenAI(
        base_url=f"{bearers.front.url}/v1", api_key=bearers.bearer().secret, max_retries=0
    ) as client:
        uploaded = await client.files.create(file=("a.jsonl", b"{}\n"), purpose="user_data")
        assert [one.id async for one in client.files.list()] == [uploaded.id]


async def test_no_rule_accepts_tokens_unless_it_says_so(
    workloads: Workloads, admin: AsyncOrganization
) -> None:
    rules = admin.workload_identity_providers.federation_rules
    rule = await rules.retrieve(workloads.rule, workload_identity_provider_id=workloads.provider)
    assert "accepts_bearer" not in rule.to_dict()
    key = workloads.bearer()
    await refused(key)
    await accepted(workloads)
    assert await until(key.status, 1.5, holds=lambda status: status == 200) == 200
    assert (await workloads.change_rule(accepts_bearer=False)).status_code == 200
    assert await key.ends_within_a_second()
    await refused(workloads.bearer())
    # The exchange asks for its own audience, whatever the rule accepts.
    assert (await workloads.exchange()).status_code == 200
    assert (await workloads.exchange(key.secret)).status_code == 400


async def test_the_next_request_costs_no_more_than_a_known_key(
    bearers: Workloads, monkeypatch: pytest.MonkeyPatch
) -> None:
    # However late a beat comes.
    monkeypatch.setattr(key_cache, "TRUST_SECONDS", 60.0)
    key = bearers.bearer()
    before = calls()
    assert await key.status() == 200
    assert calls() > before
    known = calls()
    for _ in range(3):
        assert await key.status() == 200
    assert calls() == known


async def test_a_bearer_is_the_service_accounts_within_the_rule(bearers: Workloads) -> None:
    scopes = {"type": "restricted", "scopes": ["api.files.read"]}
    assert (await bearers.change_rule(permissions=scopes)).status_code == 200
    key = bearers.bearer()
    me = (await key.ask("GET", "/v1/me")).json()["principal"]
    assert (me["user_id"], me["project_id"]) == (bearers.account, bearers.project)
    assert (await key.ask("GET", "/v1/files")).status_code == 200
    assert (await key.ask("GET", "/v1/fine_tuning/jobs")).status_code == 403
    async with bearers.front.http(key.secret, **{"OpenAI-Project": "proj_other"}) as http:
        assert (await http.get("/v1/files")).status_code == 403


async def test_one_row_is_reused_and_has_its_next_end(
    bearers: Workloads, front_owner: Key, database_url: str
) -> None:
    now = int(time.time())
    key = bearers.bearer(exp=now + 7200)
    ids = await asyncio.gather(*(key.ask("GET", "/v1/me") for _ in range(8)))
    (key_id,) = {one.json()["principal"]["key_id"] for one in ids}
    database = Database(database_url, pool_size=1)
    ends = "SELECT expires_at FROM users_api_keys WHERE signed_digest IS NOT NULL"
    over = "UPDATE users_api_keys SET expires_at = 1 WHERE signed_digest IS NOT NULL"
    told = "INSERT INTO users_key_changes (key_id) VALUES (:key)"
    try:
        async with database.begin() as connection:
            end = (await connection.execute(sa.text(ends))).scalar_one()
            assert now + TOKEN_SECONDS - 5 <= end <= now + TOKEN_SECONDS + 30
            await connection.execute(sa.text(over))
            await connection.execute(sa.text(told), {"key": key_id})

        async def renewed() -> int:
            again = (await key.ask("GET", "/v1/me")).json()["principal"]["key_id"]
            assert again == key_id
            async with database.begin() as connection:
                return int((await connection.execute(sa.text(ends))).scalar_one())

        await until(renewed, 2, holds=lambda found: found >= end)
    finally:
        await database.close()


async def test_a_bearer_ends_with_its_token(bearers: Workloads) -> None:
    brief = bearers.bearer(exp=int(time.time()) + 7)
    assert await brief.status() == 200
    assert await until(brief.status, 10, holds=lambda status: status != 200) == 401
    await refused(brief)


async def test_bearers_are_judged_anew_after_a_change(
    bearers: Workloads, admin: AsyncOrganization
) -> None:
    key = bearers.bearer()
    assert await key.status() == 200
    assert (await bearers.change_rule(enabled=False)).status_code == 200
    assert await key.ends_within_a_second()
    assert (await bearers.change_rule(enabled=True)).status_code == 200
    assert await until(key.status, 1.5, holds=lambda status: status == 200) == 200
    providers = admin.workload_identity_providers
    await providers.update(bearers.provider, enabled=False)
    assert await key.ends_within_a_second()
    await providers.update(bearers.provider, enabled=True)
    assert await key.status() == 200
    await bearers.change_rule(attribute_matchers={"repository": "acme/other"})
    assert await key.ends_within_a_second()
    await bearers.change_rule(attribute_matchers={"repository": "acme/app"})
    assert await key.status() == 200
    await providers.update(bearers.provider, audience=AUDIENCE + "/")
    assert await key.ends_within_a_second()
    await providers.update(bearers.provider, audience=AUDIENCE)
    await providers.federation_rules.delete(
        bearers.rule, workload_identity_provider_id=bearers.provider
    )
    await refused(key)


async def test_bearers_end_with_the_service_account(
    bearers: Workloads, admin: AsyncOrganization
) -> None:
    key = bearers.bearer()
    assert await key.status() == 200
    await admin.projects.service_accounts.delete(bearers.account, project_id=bearers.project)
    assert await key.ends_within_a_second()
    await refused(bearers.bearer())


async def test_bearers_are_in_the_audit_log(bearers: Workloads, front_owner: Key) -> None:
    key = bearers.bearer()
    key_id = (await key.ask("GET", "/v1/me")).json()["principal"]["key_id"]
    await refused(bearers.bearer(repository="evil/app"))

    async def events() -> list[dict[str, str]]:
        answer = await front_owner.ask("GET", "/v1/audit_events", params={"limit": 100})
        found: list[dict[str, str]] = answer.json()["data"]
        return [one for one in found if one["action"].endswith("/AcceptBearer")]

    seen = await until(events, 10, holds=lambda found: len(found) == 2)
    refusal, given = sorted(seen, key=lambda one: one["outcome"], reverse=True)
    assert (given["outcome"], given["resource"], given["key_id"]) == ("OK", bearers.rule, key_id)
    assert given["user_id"] == bearers.account
    assert (refusal["outcome"], refusal["reason"]) == ("PERMISSION_DENIED", "no_rule_fulfilled")
    assert {one["address"] for one in seen} == {"127.0.0.1"}


async def test_no_token_is_written_anywhere(
    bearers: Workloads, front_owner: Key, database_url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    good, bad = bearers.bearer(), bearers.bearer(repository="evil/app")
    with structlog.testing.capture_logs() as logs:
        assert await good.status() == 200
        await refused(bad)
    said = repr(logs) + "".join(capfd.readouterr())
    said += (await front_owner.ask("GET", "/v1/audit_events", params={"limit": 100})).text
    database = Database(database_url, pool_size=1)
    try:
        async with database.begin() as connection:
            rows = await connection.execute(sa.text("SELECT k::text FROM users_api_keys k"))
            said += repr(rows.scalars().all())
    finally:
        await database.close()
    for part in (one for key in (good, bad) for one in key.secret.split(".")[1:]):
        assert part not in said


async def test_a_token_file_is_read_by_what_cannot_exchange(
    bearers: Workloads, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(bearers.bearer().secret + "\n")
    header = f"Bearer {(tmp_path / 'token').read_text().strip()}"
    async with bearers.front.http() as http:
        answer = await http.get("/v1/files", headers={"Authorization": header})
    assert answer.status_code == 200
