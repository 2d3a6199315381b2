"""OpenAI's routes of certificates by openai-python, strictly."""

from typing import Any

import openai
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from openai.resources.admin.organization import AsyncOrganization
from tests.support.clients.openai_admin import administering, strict
from tests.support.environments.client_certificates import Made, made
from tests.support.services.front import Front
from tests.support.services.member_keys import Key, project
from tests.support.waiting import until

WEAK = rsa.generate_private_key(public_exponent=65537, key_size=1024)
ODD = ec.generate_private_key(ec.SECP256K1())


async def test_a_certificate_is_kept_named_and_forgotten(
    admin: AsyncOrganization, authority: Made
) -> None:
    certificates = admin.certificates
    first = strict(await certificates.create(certificate=authority.pem, name="Acme"))
    assert (first.object, first.name, first.active) == ("certificate", "Acme", None)
    details = first.certificate_details
    life = authority.certificate
    assert details.valid_at == life.not_valid_before_utc.timestamp()
    assert details.expires_at == life.not_valid_after_utc.timestamp()
    assert details.content is None
    second = strict(await certificates.create(certificate=f"\n{made('b').pem}\n"))
    assert second.name is None
    assert strict(await certificates.retrieve(first.id)) == first
    whole = strict(await certificates.retrieve(first.id, include=["content"]))
    assert whole.certificate_details.content == authority.pem
    renamed = strict(await certificates.update(first.id, name="Acme 2"))
    assert renamed.name == "Acme 2"
    assert strict(await certificates.update(first.id)) == renamed
    listed = [strict(one) async for one in certificates.list(limit=1)]
    assert {one.id for one in listed} == {first.id, second.id}
    assert [one.active for one in listed] == [False, False]
    older = [one.id async for one in certificates.list(order="asc")]
    assert older == [one.id for one in reversed(listed)]
    with pytest.raises(openai.ConflictError):
        await certificates.create(certificate=authority.pem)
    gone = strict(await certificates.delete(first.id))
    assert gone.id == first.id
    with pytest.raises(openai.NotFoundError):
        await certificates.retrieve(first.id)


async def test_it_becomes_active_in_an_organization_and_in_a_project(
    admin: AsyncOrganization, owner: Key, authority: Made, client: Made
) -> None:
    room = await project(owner)
    shown: Any = {"extra_headers": client.headers()}
    one = await admin.certificates.create(certificate=authority.pem)
    page = await admin.certificates.activate(certificate_ids=[one.id], **shown)
    assert [(strict(it).id, it.active) for it in page.data] == [(one.id, True)]
    assert page.object == "list"
    there = admin.projects.certificates
    assert [strict(it).active async for it in there.list(room, **shown)] == [False]
    inside = await there.activate(room, certificate_ids=[one.id], **shown)
    assert [(strict(it).id, it.active) for it in inside.data] == [(one.id, True)]
    assert [strict(it).active async for it in there.list(room, **shown)] == [True]
    with pytest.raises(openai.ConflictError) as refused:
        await admin.certificates.delete(one.id, **shown)
    assert refused.value.code == "certificate_in_use"
    ended = await admin.certificates.deactivate(certificate_ids=[one.id], **shown)
    assert [(strict(it).id, it.active) for it in ended.data] == [(one.id, False)]

    async def why_not() -> str:
        with pytest.raises(openai.APIStatusError) as refused:
            await admin.certificates.delete(one.id)
        return str(refused.value.code)

    # Until then a certificate is asked for, of which the gateway hears the end within a second.
    await until(why_not, holds=lambda code: code == "certificate_in_use")
    left = await there.deactivate(room, certificate_ids=[one.id], **shown)
    assert [(strict(it).id, it.active) for it in left.data] == [(one.id, False)]
    await admin.certificates.delete(one.id)


async def test_the_log_has_openai_s_types(
    admin: AsyncOrganization, authority: Made, client: Made
) -> None:
    shown: Any = {"extra_headers": client.headers()}
    one = await admin.certificates.create(certificate=authority.pem, name="Acme")
    await admin.certificates.update(one.id, name="Acme 2")
    await admin.certificates.activate(certificate_ids=[one.id], **shown)
    await admin.certificates.deactivate(certificate_ids=[one.id], **shown)
    await admin.certificates.delete(one.id, **shown)

    async def types() -> list[str]:
        seen = [strict(it) async for it in admin.audit_logs.list(**shown)]
        return [it.type for it in reversed(seen) if it.type.startswith("certificate")]

    wanted = [
        "certificate.created",
        "certificate.updated",
        "certificates.activated",
        "certificates.deactivated",
        "certificate.deleted",
    ]
    await until(types, holds=lambda found: found == wanted)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nonsense",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        made("a").pem + made("b").pem,
        made("a").pem + made("a").secret_pem,
        made("expired", days=(-3, -1)).pem,
        made("weak", secret=WEAK).pem,
        made("odd", secret=ODD).pem,
        "x" * 20_000,
    ],
    ids=["none", "text", "broken", "two", "with key", "expired", "weak", "odd", "long"],
)
async def test_what_could_admit_nobody_is_refused(admin: AsyncOrganization, text: str) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await admin.certificates.create(certificate=text)
    assert refused.value.param == "certificate"


async def test_bounds_and_names_are_held_to(admin: AsyncOrganization) -> None:
    for name in ("", "a\nb", "x" * 101):
        with pytest.raises(openai.BadRequestError) as refused:
            await admin.certificates.create(certificate=made("a").pem, name=name)
        assert refused.value.param == "name"
    for ids in ([], ["cert_none"] * 51):
        with pytest.raises(openai.BadRequestError) as refused:
            await admin.certificates.activate(certificate_ids=ids)
        assert str(refused.value.param).startswith("certificate_ids")
    for n in range(50):
        await admin.certificates.create(certificate=made(str(n)).pem)
    with pytest.raises(openai.BadRequestError) as refused:
        await admin.certificates.create(certificate=made("one more").pem)
    assert refused.value.param == "certificate"


async def test_another_organization_finds_none(
    admin: AsyncOrganization, front: Front, owner: Key, authority: Made, client: Made
) -> None:
    one = await admin.certificates.create(certificate=authority.pem)
    room = await project(owner)
    shown: Any = {"extra_headers": client.headers()}
    async with administering(front) as other:
        assert [it async for it in other.certificates.list()] == []
        its = other.certificates
        there = other.projects.certificates
        for call in (
            its.retrieve(one.id),
            its.update(one.id, name="mine"),
            its.delete(one.id),
            its.activate(certificate_ids=[one.id], **shown)._get_page(),
            its.deactivate(certificate_ids=[one.id], **shown)._get_page(),
            there.list(room)._get_page(),
            there.activate(room, certificate_ids=[one.id], **shown)._get_page(),
            there.deactivate(room, certificate_ids=[one.id], **shown)._get_page(),
        ):
            with pytest.raises(openai.NotFoundError):
                await call
        # The same certificate of both is two.
        own = await its.create(certificate=authority.pem)
        assert own.id != one.id
    assert [it.active async for it in admin.certificates.list()] == [False]


async def test_who_owns_no_organization_changes_none(owner: Key, authority: Made) -> None:
    room = await project(owner)
    member = await owner.make("project_owner", project_id=room, user_id="stranger")
    url = "/v1/organization/certificates"
    made_ = await owner.ask("POST", url, json={"certificate": authority.pem})
    ids = {"certificate_ids": [made_.json()["id"]]}
    for path, body in (
        (url, {"certificate": authority.pem}),
        (f"{url}/activate", ids),
        (f"/v1/organization/projects/{room}/certificates/activate", ids),
    ):
        assert (await member.ask("POST", path, json=body)).status_code == 403
    assert (await member.ask("GET", url)).status_code == 403
    narrow = await owner.make(
        "organization_owner", user_id="stranger", scopes=["all_projects.read"]
    )
    assert (await narrow.ask("GET", url)).status_code == 200
    assert (await narrow.ask("POST", f"{url}/activate", json=ids)).status_code == 403
