"""`windlass admin recover` where the organization asks more of people than anybody can show."""

from pathlib import Path

import psycopg
from tests.support.clients.browser import Browser
from tests.support.environments.oidc_provider import Issuer
from tests.support.processes.recovery import recover
from tests.support.services.member_keys import Key
from tests.support.services.signed_in import by_invite, invite, login, trust

POLICY = "/v1/organization/sign_in_policy"


async def test_an_owner_comes_back_whatever_sign_ins_are_asked_for(
    owner: Key, issuer: Issuer, database_url: str, tmp_path: Path
) -> None:
    plain, path = database_url.replace("+psycopg", ""), tmp_path / "new.key"
    me = (await owner.ask("GET", "/v1/me")).json()["principal"]
    await trust(owner, issuer, of_installation=False)
    ann = await by_invite(owner, "ann", role="owner")
    policy = {"required": True, "administrators_amr": ["otp"]}
    answer = await ann.ask("PUT", POLICY, json=policy)
    assert answer.status_code == 200, answer.text
    # A directory puts Ann out, the last key is lost, and nobody else may let anybody in.
    assert (await owner.ask("DELETE", f"/v1/auth/sessions/{ann.id}")).status_code == 200
    async with await psycopg.AsyncConnection.connect(plain, autocommit=True) as connection:
        await connection.execute("UPDATE users_people SET deactivated_at = 1")
    assert (await owner.ask("DELETE", f"/v1/api_keys/{me['key_id']}")).status_code == 200
    for one in (owner, ann):
        await one.ends_within_a_second()
    async with Browser("ann") as browser:
        page = await browser.open(login(owner, organization=me["organization_id"]))
        assert page.status_code == 403

    done = await recover("--output", str(path), "--user", "carl", url=plain)
    assert done.returncode == 0, done.stderr
    carl = Key(owner.front, "", path.read_text().strip(), {})
    assert await carl.roles() == ["platform_admin"]
    kept = (await carl.ask("GET", POLICY)).json()
    assert {name: kept[name] for name in policy} == policy
    # With all that an owner may, without a sign-in: to ask for less, and to invite others.
    await invite(carl, role="owner")
    assert (await carl.ask("PUT", POLICY, json={})).status_code == 200
    assert (await carl.try_make("organization_owner")).status_code == 200
