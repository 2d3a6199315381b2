"""Workloads of one issuer, as they and the owners who let them in use Windlass."""

from dataclasses import dataclass
from typing import Any

import httpx
from openai.resources.admin.organization import AsyncOrganization
from tests.support.fakes.oidc_issuer import AUDIENCE, OidcIssuer
from tests.support.services.front import Front
from tests.support.services.member_keys import Key

GRANT = "urn:ietf:params:oauth:grant-type:token-exchange"
JWT = "urn:ietf:params:oauth:token-type:jwt"
REPOSITORY = "acme/app"


@dataclass
class Workloads:
    """A provider, a rule, and the service account of it."""

    front: Front
    issuer: OidcIssuer
    project: str
    account: str
    provider: str
    rule: str

    def token(self, **claims: Any) -> str:
        """A token of the repository that is let in."""
        return self.issuer.token(**{"repository": REPOSITORY, **claims})

    def form(self, token: str | None = None, **changed: str) -> dict[str, str]:
        return {
            "grant_type": GRANT,
            "subject_token": self.token() if token is None else token,
            "subject_token_type": JWT,
            "identity_provider_id": self.provider,
            "service_account_id": self.account,
            **changed,
        }

    async def post(self, **options: Any) -> httpx.Response:
        async with httpx.AsyncClient(base_url=self.front.url, timeout=30) as http:
            return await http.post("/v1/oauth/token", **options)

    async def exchange(self, token: str | None = None, **changed: str) -> httpx.Response:
        return await self.post(json=self.form(token, **changed))

    def bearer(self, **claims: Any) -> Key:
        """A token that names the rule as its audience, as a key; its id is not known."""
        claims = {"aud": f"{AUDIENCE}/{self.rule}", **claims}
        return Key(self.front, "", self.token(**claims), {})

    async def change_rule(self, **body: Any) -> httpx.Response:
        """What the owner of all answers of a change."""
        path = f"/v1/organization/workload_identity_providers/{self.provider}/federation_rules/"
        async with self.front.http() as http:
            return await http.post(path + self.rule, json=body)

    async def key(self, token: str | None = None) -> Key:
        """The token that a workload gets, as a key."""
        answer = await self.exchange(token)
        assert answer.status_code == 200, answer.text
        secret = answer.json()["access_token"]
        made = Key(self.front, "", secret, answer.json())
        me = (await made.ask("GET", "/v1/me")).json()
        made.id = me["principal"]["key_id"]
        return made


async def let_in(admin: AsyncOrganization, front: Front, issuer: OidcIssuer) -> Workloads:
    """A project with a service account, and workloads of a repository that act as it."""
    project = (await admin.projects.create(name="Red")).id
    account = (await admin.projects.service_accounts.create(project, name="ci")).id
    provider = await admin.workload_identity_providers.create(
        name="GitHub", issuer=issuer.url, audience=AUDIENCE, type="oidc"
    )
    rule = await admin.workload_identity_providers.federation_rules.create(
        provider.id,
        project_id=project,
        service_account_id=account,
        attribute_matchers={"repository": REPOSITORY},
    )
    return Workloads(front, issuer, project, account, provider.id, rule.id)


async def accepted(workloads: Workloads) -> Workloads:
    """The workloads, once their rule accepts their tokens as they are."""
    answer = await workloads.change_rule(accepts_bearer=True)
    assert answer.status_code == 200, answer.text
    assert answer.json()["accepts_bearer"] is True
    return workloads
