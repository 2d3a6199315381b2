"""Keys of organizations' own by openai-python's `client.admin`, and ours beside."""

import re
from typing import Any

import openai
import pytest
from openai.resources.admin.organization import AsyncOrganization
from tests.integration.tenancy.external_keys.conftest import Keepers
from tests.support.clients.audit_entries import details, entries, newest
from tests.support.clients.openai_admin import strict
from tests.support.fakes import vault
from tests.support.keepers import moto_server
from tests.support.services.front import Front

from windlass.bounds import MAX_EXTERNAL_KEYS

ROLE = "arn:aws:iam::123456789012:role/windlass"
ARN = "arn:aws:kms:eu-central-1:123456789012:key/0d7217fc"


async def test_a_key_of_aws_is_named_tried_used_and_deleted(
    admin: AsyncOrganization, keepers: Keepers, organization_id: str
) -> None:
    keys = admin.external_keys
    wanted = keepers.aws(organization_id)
    made = strict(await keys.create(**wanted, purpose="ekm"))
    assert (made.type, made.kms_arn, made.role_arn) == ("aws", wanted["kms_arn"], ROLE)
    assert (made.workspace_id, made.external_id) == (organization_id, organization_id)
    assert strict(await keys.retrieve(made.id)) == made
    second = await keys.create(**keepers.aws(organization_id))
    listed = [strict(one).id async for one in keys.list(limit=1, order="asc")]
    # Within a second they have an order of their own.
    assert sorted(listed) == sorted([made.id, second.id])
    assert [one.id async for one in keys.list(order="desc")] == listed[::-1]
    assert [one async for one in keys.list(purpose="psp_decryption")] == []
    assert strict(await keys.validate(made.id)).status == "valid"

    project = strict(await admin.projects.create(name="Own", external_key_id=made.id))
    assert project.external_key_id == made.id
    assert strict(await admin.projects.retrieve(project.id)) == project
    assert (await keys.retrieve(made.id)).api_project_ids == [project.id]
    with pytest.raises(openai.ConflictError) as refused:
        await keys.delete(made.id)
    assert (refused.value.code, refused.value.param) == ("external_key_in_use", "external_key_id")
    assert strict(await keys.delete(second.id)).id == second.id
    assert details(await newest(admin, "external_key.removed")) == {"id": second.id}
    *_, registered = await entries(admin, event_types=["external_key.registered"])
    assert details(registered)["id"] == made.id
    for gone in (keys.retrieve(second.id), keys.delete(second.id), keys.validate(second.id)):
        with pytest.raises(openai.NotFoundError):
            await gone


async def test_a_role_that_does_not_trust_us_is_told(
    admin: AsyncOrganization, keepers: Keepers, organization_id: str
) -> None:
    project = await admin.projects.create(name="Of another id")
    made = await admin.external_keys.create(**keepers.aws(organization_id))
    untrusted = await admin.external_keys.create(
        **{**keepers.aws(organization_id), "external_id": project.id}
    )
    keepers.sts.trusted.discard(project.id)
    with pytest.raises(openai.ConflictError) as refused:
        await admin.external_keys.validate(untrusted.id)
    assert refused.value.code == "external_key_unavailable"
    # It is the role that refuses, and not the key.
    assert f"STS refuses to assume {moto_server.ROLE}: AccessDenied" in str(refused.value)
    # Nothing is made, and nothing changes, by a key that does not work.
    with pytest.raises(openai.ConflictError):
        await admin.projects.create(name="Own", external_key_id=untrusted.id)
    with pytest.raises(openai.ConflictError):
        await admin.projects.update(project.id, external_key_id=untrusted.id)
    with pytest.raises(openai.NotFoundError):
        await admin.projects.create(name="Own", external_key_id="ekm_none")
    assert "Own" not in [one.name async for one in admin.projects.list()]
    assert (await admin.projects.update(project.id, external_key_id=made.id)).external_key_id
    assert (await admin.projects.update(project.id, name="New")).external_key_id == made.id
    assert (await admin.projects.update(project.id, external_key_id="")).external_key_id is None


# What a key of AWS may not be: a change of a good one, and the parameter that is named.
WRONG_AWS: list[tuple[dict[str, Any], str]] = [
    ({"type": "gcp"}, "type"),
    ({"type": "azure"}, "type"),
    ({"type": "oci"}, "type"),
    ({"purpose": "psp_decryption"}, "purpose"),
    ({"kms_arn": "arn:aws:s3:::bucket"}, "kms_arn"),
    ({"kms_arn": f"{ARN}/../../x"}, "kms_arn"),
    ({"role_arn": "root"}, "role_arn"),
    ({"role_arn": None}, "role_arn"),
    # The confused deputy: somebody else's id, by which we act for somebody else.
    ({"external_id": "org-somebodyelse"}, "external_id"),
    ({"external_id": "proj_somebodyelse"}, "external_id"),
    ({"external_id": ""}, "external_id"),
    ({"key_label": "mine"}, "key_label"),
    ({"module": "/tmp/evil.so"}, "module"),
    ({"endpoint": "http://169.254.169.254"}, "endpoint"),
    ({"name": ""}, "name"),
]
WRONG_VAULT: list[tuple[dict[str, Any], str]] = [
    ({"address": "http://169.254.169.254"}, "address"),
    ({"address": "https://10.1.2.3:8200"}, "address"),
    ({"address": "https://user@vault.example"}, "address"),
    ({"address": "https://vault.example/v1/sys"}, "address"),
    ({"address": "file:///etc/passwd"}, "address"),
    ({"mount": "../sys"}, "mount"),
    ({"key": ".."}, "key"),
    ({"key": "a/../b"}, "key"),
    ({"token": "a\r\nX-Evil: 1"}, "token"),
    ({"token": None}, "token"),
]


async def test_what_a_key_may_not_be(front: Front, organization_id: str) -> None:
    place = {"kms_arn": ARN, "role_arn": ROLE, "external_id": organization_id}
    aws = {"name": "ours", "type": "aws", **place}
    vaults = {"name": "x", "type": "vault", "address": "https://vault.example", "key": "windlass"}
    tried = [({**aws, **change}, param) for change, param in WRONG_AWS]
    tried += [({**vaults, "token": "s.1", **change}, param) for change, param in WRONG_VAULT]
    async with front.http() as http:
        for body, param in tried:
            answer = await http.post("/v1/organization/external_keys", json=body)
            said = (answer.status_code, answer.json()["error"]["param"])
            assert said == (400, param), (body, answer.text)
        assert (await http.get("/v1/organization/external_keys")).json()["data"] == []


async def test_a_key_of_vault_keeps_its_token_to_itself(front: Front) -> None:
    with vault.running() as address:
        body = {"name": "x", "type": "vault", "address": address, "key": "windlass"}
        async with front.http() as http:
            url = "/v1/organization/external_keys"
            made = (await http.post(url, json={**body, "token": vault.TOKEN})).json()
            assert (made["type"], made["mount"], made["key"]) == ("vault", "transit", "windlass")
            assert vault.TOKEN not in str(made) + (await http.get(url)).text
            said = await http.post(f"{url}/{made['id']}/validate")
            assert said.json() == {"status": "valid"}
            wrong = (await http.post(url, json={**body, "token": "s.wrong"})).json()
            refused = await http.post(f"{url}/{wrong['id']}/validate")
            assert refused.status_code == 409
            assert "answered 403" in refused.json()["error"]["message"]
            events = (await http.get("/v1/audit_events")).text
            assert vault.TOKEN not in events


async def test_a_token_of_the_operator_is_for_whom_it_names(
    front: Front, organization_id: str
) -> None:
    tokens = front.app.settings.external_keys.tokens["vault-room"]
    body = {"name": "x", "type": "pkcs11", "token_name": "vault-room", "key_label": "acme"}
    url = "/v1/organization/external_keys"
    async with front.http() as http:
        refused = await http.post(url, json=body)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "token_name")
        tokens.organizations = [organization_id]
        made = (await http.post(url, json=body)).json()
        assert (await http.post(f"{url}/{made['id']}/validate")).status_code == 200
        other = await http.post(url, json={**body, "token_name": "other"})
        same = refused.json()["error"]["message"]
        assert other.json()["error"]["message"] == same
        no_key = (await http.post(url, json={**body, "key_label": "of-nobody"})).json()
        said = await http.post(f"{url}/{no_key['id']}/validate")
        assert (said.status_code, "has no such key" in said.text) == (409, True)
        # Neither the token's own label nor where its module is.
        assert not {"tenants", "softhsm"} & set(re.findall(r"\w+", said.text))
        # The operator's mind may change later.
        tokens.organizations = []
        assert (await http.post(f"{url}/{made['id']}/validate")).status_code == 409


async def test_another_organization_finds_and_uses_nothing(
    admin: AsyncOrganization, other: AsyncOrganization, keepers: Keepers, organization_id: str
) -> None:
    made = await admin.external_keys.create(**keepers.aws(organization_id))
    theirs = await other.projects.create(name="Theirs")
    for call in (
        other.external_keys.retrieve(made.id),
        other.external_keys.delete(made.id),
        other.external_keys.validate(made.id),
        other.projects.create(name="Own", external_key_id=made.id),
        other.projects.update(theirs.id, external_key_id=made.id),
    ):
        with pytest.raises(openai.NotFoundError):
            await call
    assert [one async for one in other.external_keys.list()] == []
    # Not by its role and key either, with its own or our id.
    with pytest.raises(openai.BadRequestError):
        await other.external_keys.create(**keepers.aws(organization_id))


async def test_there_are_not_too_many(front: Front, organization_id: str) -> None:
    body = {"name": "x", "type": "aws", "kms_arn": ARN, "role_arn": ROLE}
    url, wanted = "/v1/organization/external_keys", {**body, "external_id": organization_id}
    async with front.http() as http:
        for _ in range(MAX_EXTERNAL_KEYS):
            assert (await http.post(url, json=wanted)).status_code == 200
        assert (await http.post(url, json=wanted)).status_code == 400
