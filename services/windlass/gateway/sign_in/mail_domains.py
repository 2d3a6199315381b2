"""/v1/organization/mail_domains."""

from typing import Annotated

from pydantic import Field

from windlass.api.users.v1 import mail_domains_pb2 as pb
from windlass.api.users.v1 import mail_domains_pb2_grpc as rpc
from windlass.api.users.v1 import users_pb2
from windlass.bounds import MAIL_DOMAIN_LENGTH
from windlass.core.app import App
from windlass.gateway.admin.members import role_number
from windlass.gateway.openai.rendering import Json, page
from windlass.gateway.parameters import After, Body, Limit
from windlass.gateway.plain import plain
from windlass.gateway.resource_router import ResourceRouter

DefaultRole = Annotated[
    str,
    Field(
        description="Of new people whose address, which an issuer of the installation has "
        "verified, is in it; empty: only who was invited comes in."
    ),
]


class NewMailDomain(Body):
    """A domain that an organization is going to prove."""

    name: Annotated[str, Field(max_length=MAIL_DOMAIN_LENGTH)]
    default_role: DefaultRole = ""


class ChangedMailDomain(Body):
    """A change of a domain."""

    default_role: DefaultRole


def mail_domains_router(app: App) -> ResourceRouter:
    """Mail domains of the organization."""
    router = ResourceRouter(prefix="/organization/mail_domains", tags=["sign-in"])
    domains = app.clients.stub(rpc.MailDomainsServiceStub)

    @router.post("")
    async def create_mail_domain(body: NewMailDomain) -> Json:
        """Names a domain; the answer has the TXT record that proves it."""
        request = pb.CreateMailDomainRequest(
            name=body.name, default_role=_number(body.default_role)
        )
        return _render(await domains.CreateMailDomain(request))

    @router.get("")
    async def list_mail_domains(after: After = "", limit: Limit = 0) -> Json:
        """Domains, newest first."""
        answer = await domains.ListMailDomains(pb.ListMailDomainsRequest(after=after, limit=limit))
        return page([_render(one) for one in answer.domains], answer.has_more)

    @router.get("/{domain}")
    async def get_mail_domain(domain: str) -> Json:
        """Returns one domain."""
        return _render(await domains.GetMailDomain(pb.GetMailDomainRequest(name=domain)))

    @router.post("/{domain}/verify")
    async def verify_mail_domain(domain: str) -> Json:
        """Asks DNS whether the domain is the organization's."""
        return _render(await domains.VerifyMailDomain(pb.VerifyMailDomainRequest(name=domain)))

    @router.post("/{domain}")
    async def update_mail_domain(domain: str, body: ChangedMailDomain) -> Json:
        """Changes what new people of a domain become."""
        role = _number(body.default_role)
        request = pb.UpdateMailDomainRequest(name=domain, default_role=role)
        return _render(await domains.UpdateMailDomain(request))

    @router.delete("/{domain}")
    async def delete_mail_domain(domain: str) -> Json:
        """Gives a domain up."""
        await domains.DeleteMailDomain(pb.DeleteMailDomainRequest(name=domain))
        return {"id": domain, "object": "mail_domain.deleted", "deleted": True}

    return router


def _number(role: str) -> users_pb2.Role.ValueType:
    return role_number(role, "default_role") if role else users_pb2.ROLE_UNSPECIFIED


def _render(domain: pb.MailDomain) -> Json:
    fields = plain(domain, "mail_domain")
    if fields["default_role"] == "unspecified":
        fields["default_role"] = None
    return {"id": domain.name, **fields, "verified": domain.verified_at > 0}
