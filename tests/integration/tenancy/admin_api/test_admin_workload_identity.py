"""Identity providers and federation rules by openai-python's `client.admin`."""

import json
from typing import Any

import openai
import pytest
from openai.resources.admin.organization import AsyncOrganization
from tests.support.clients.openai_admin import strict
from tests.support.fakes.oidc_issuer import jwks, signing_key

ISSUER = "https://token.actions.githubusercontent.com"


async def test_providers(admin: AsyncOrganization) -> None:
    providers = admin.workload_identity_providers
    made = strict(
        await providers.create(
            name="GitHub", issuer=ISSUER, audience="windlass", type="oidc", description="CI"
        )
    )
    assert (made.name, made.issuer, made.audience) == ("GitHub", ISSUER, "windlass")
    assert (made.enabled, made.description, made.attribute_transformations) == (True, "CI", [])
    assert made.verification.type == "discovery"
    assert strict(await providers.retrieve(made.id)) == made
    document = json.loads(jwks(signing_key(), signing_key("RS256")))
    changed = strict(
        await providers.update(
            made.id,
            description=None,
            enabled=False,
            verification={"type": "uploaded_jwks", "jwks": document},
            attribute_transformations=[{"attribute": "repo", "expression": "assertion.repository"}],
        )
    )
    assert changed.verification.to_dict() == {"type": "uploaded_jwks", "jwks": document}
    assert (changed.enabled, changed.description, changed.name) == (False, None, "GitHub")
    assert changed.attribute_transformations[0].expression == "assertion.repository"
    back = await providers.update(
        made.id, verification={"type": "discovery", "discovery_url": None}
    )
    assert strict(back).verification.type == "discovery"
    others = [
        (await providers.create(name=name, issuer=ISSUER, audience="a", type="oidc")).id
        for name in "ab"
    ]
    upward = [strict(one).id async for one in providers.list(limit=1, order="asc")]
    assert sorted(upward) == sorted([made.id, *others])
    assert [one.id async for one in providers.list(limit=2, order="desc")] == upward[::-1]
    assert strict(await providers.delete(made.id)).deleted
    with pytest.raises(openai.NotFoundError):
        await providers.retrieve(made.id)


async def test_rules(admin: AsyncOrganization) -> None:
    project = (await admin.projects.create(name="Red")).id
    account = (await admin.projects.service_accounts.create(project, name="ci")).id
    providers = admin.workload_identity_providers
    provider = await providers.create(name="CI", issuer=ISSUER, audience="a", type="oidc")
    rules = providers.federation_rules
    matchers: dict[str, str | bool | float] = {
        "repository": "acme/app",
        "protected": True,
        "run": 7,
        "share": 0.5,
    }
    made = strict(
        await rules.create(
            provider.id,
            project_id=project,
            service_account_id=account,
            attribute_matchers=matchers,
            name="deploys",
        )
    )
    assert made.attribute_matchers == matchers
    assert (made.project_id, made.service_account_id) == (project, account)
    assert made.permissions.type == "service_account_default"
    assert made.workload_identity_provider_id == provider.id
    of: Any = {"workload_identity_provider_id": provider.id}
    assert strict(await rules.retrieve(made.id, **of)) == made
    changed = strict(
        await rules.update(
            made.id,
            **of,
            name=None,
            enabled=False,
            permissions={"type": "restricted", "scopes": ["api.files.write", "jobs.read"]},
        )
    )
    assert (changed.name, changed.enabled) == (None, False)
    assert changed.permissions.to_dict()["scopes"] == ["files.read", "files.write", "jobs.read"]
    assert changed.attribute_matchers == matchers
    second = await rules.create(
        provider.id, project_id=project, service_account_id=account,
        attribute_matchers={"sub": "a"},
    )  # fmt: skip
    listed = [strict(one).id async for one in rules.list(provider.id, limit=1, order="asc")]
    assert sorted(listed) == sorted([made.id, second.id])
    found = rules.list(provider.id, service_account_id=account)
    assert len([one async for one in found]) == 2
    assert [one async for one in rules.list(provider.id, service_account_id="nobody")] == []
    assert strict(await rules.delete(made.id, **of)).deleted
    with pytest.raises(openai.NotFoundError):
        await rules.retrieve(made.id, **of)
    await providers.delete(provider.id)
    with pytest.raises(openai.NotFoundError):
        await rules.retrieve(second.id, **of)


async def test_bad_input_names_its_field(admin: AsyncOrganization) -> None:
    providers = admin.workload_identity_providers
    good: Any = {"name": "CI", "issuer": ISSUER, "audience": "a", "type": "oidc"}
    private = {"keys": [signing_key().as_dict(private=True)]}
    jobs = [{"attribute": "a", "expression": "assertion.x.map(y, y)"}]
    bad: list[tuple[dict[str, Any], str]] = [
        ({"issuer": "http://issuer.example"}, "issuer"),
        ({"issuer": "https://10.0.0.1"}, "issuer"),
        ({"issuer": "https://localhost:1/?a=b"}, "issuer"),
        ({"name": " "}, "name"),
        ({"audience": "a\n"}, "audience"),
        ({"type": "saml"}, "type"),
        ({"verification": {"type": "uploaded_jwks", "jwks": private}}, "verification"),
        ({"verification": {"type": "uploaded_jwks", "jwks": {"keys": []}}}, "verification"),
        ({"verification": {"type": "discovery", "discovery_url": "https://a.b"}}, "discovery_url"),
        ({"attribute_transformations": jobs}, "attribute_transformations"),
        (
            {"attribute_transformations": [jobs[0] | {"attribute": "é"}]},
            "attribute_transformations",
        ),
    ]
    for change, field in bad:
        with pytest.raises(openai.BadRequestError) as refused:
            await providers.create(**(good | change))
        assert refused.value.param == field, change
    project = (await admin.projects.create(name="Red")).id
    account = (await admin.projects.service_accounts.create(project, name="ci")).id
    provider = await providers.create(**good)
    rule: Any = {
        "project_id": project,
        "service_account_id": account,
        "attribute_matchers": {"sub": "a"},
    }
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"attribute_matchers": {}}, "attribute_matchers"),
        ({"attribute_matchers": {"aud": "a"}}, "attribute_matchers"),
        ({"attribute_matchers": {"a b": "a"}}, "attribute_matchers"),
        ({"attribute_matchers": {"a": 2**60}}, "attribute_matchers"),
        ({"service_account_id": "nobody"}, "service_account_id"),
        ({"permissions": {"type": "restricted", "scopes": []}}, "permissions"),
        ({"permissions": {"type": "restricted", "scopes": ["projects.write"]}}, "scopes"),
        ({"permissions": {"type": "restricted", "scopes": ["x"]}}, "scopes"),
    ]
    for change, field in wrong:
        with pytest.raises(openai.BadRequestError) as refused:
            await providers.federation_rules.create(provider.id, **(rule | change))
        assert refused.value.param == field, change
