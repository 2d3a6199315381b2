"""The servicer of mail domains."""

from typing import Any

from windlass.api.users.v1 import mail_domains_pb2 as pb
from windlass.api.users.v1 import mail_domains_pb2_grpc as rpc
from windlass.api.users.v1 import users_pb2
from windlass.core.db.paging import cut, page_size
from windlass.core.errors import InvalidArgument
from windlass.core.rpc import audited
from windlass.core.rpc.auth import Principal, current
from windlass.policy import ORGANIZATION_OWNER, ORGANIZATION_ROLES
from windlass.users.domain import ROLE_NUMBERS, require_grant, role_name
from windlass.users.sign_in.domain import valid_domains
from windlass.users.sign_in.mail_domains.proof import MailDomainProof
from windlass.users.sign_in.mail_domains.records import record_name, record_value
from windlass.users.sign_in.mail_domains.store import MailDomain, MailDomainStore, unknown_domain


class MailDomainsServicer(rpc.MailDomainsServiceServicer):
    """MailDomainsService."""

    def __init__(self, domains: MailDomainStore, proof: MailDomainProof):
        self._domains = domains
        self._proof = proof

    async def CreateMailDomain(
        self, request: pb.CreateMailDomainRequest, context: Any
    ) -> pb.MailDomain:
        """Stores a claim."""
        principal = current()
        # Whoever says how people come in decides who is one of them.
        require_grant(principal, ORGANIZATION_OWNER)
        role = _role(principal, request.default_role)
        names = valid_domains([request.name])
        made = await self._domains.create(principal.organization_id, names[0], role=role)
        audited.change(None, _told(made), resource=made.name)
        return _message(made)

    async def GetMailDomain(self, request: pb.GetMailDomainRequest, context: Any) -> pb.MailDomain:
        """Returns one domain of the organization."""
        return _message(await self._own(request.name))

    async def ListMailDomains(
        self, request: pb.ListMailDomainsRequest, context: Any
    ) -> pb.ListMailDomainsResponse:
        """Domains of the organization, newest first."""
        size = page_size(request.limit)
        own = current().organization_id
        rows = await self._domains.list(own, after=request.after, limit=size + 1)
        page, more = cut(rows, size)
        return pb.ListMailDomainsResponse(domains=map(_message, page), has_more=more)

    async def VerifyMailDomain(
        self, request: pb.VerifyMailDomainRequest, context: Any
    ) -> pb.MailDomain:
        """Asks DNS for the record of a domain."""
        require_grant(current(), ORGANIZATION_OWNER)
        before = await self._own(request.name)
        after = await self._proof.verify(before)
        audited.change(_told(before), _told(after))
        return _message(after)

    async def UpdateMailDomain(
        self, request: pb.UpdateMailDomainRequest, context: Any
    ) -> pb.MailDomain:
        """Changes what people of a domain become."""
        principal = current()
        require_grant(principal, ORGANIZATION_OWNER)
        role = _role(principal, request.default_role)
        before = await self._own(request.name)
        after = await self._domains.set_role(principal.organization_id, before.name, role)
        audited.change(_told(before), _told(after))
        return _message(after)

    async def DeleteMailDomain(
        self, request: pb.DeleteMailDomainRequest, context: Any
    ) -> pb.DeleteMailDomainResponse:
        """Gives a domain up."""
        require_grant(current(), ORGANIZATION_OWNER)
        before = await self._own(request.name)
        await self._domains.delete(before.organization_id, before.name)
        audited.change(_told(before), None)
        return pb.DeleteMailDomainResponse()

    async def _own(self, name: str) -> MailDomain:
        try:
            known = valid_domains([name])[0]
        except InvalidArgument as error:
            raise unknown_domain(name) from error
        return await self._domains.get(current().organization_id, known)


def _role(principal: Principal, number: int) -> str:
    """The role of an organization that a request names; empty for none; raises."""
    if not number:
        return ""
    role = role_name(number, "default_role")
    if role not in ORGANIZATION_ROLES:
        raise InvalidArgument(f"{role} is a role of a project.", param="default_role")
    require_grant(principal, role)
    return role


def _told(domain: MailDomain) -> dict[str, Any]:
    """The part of a domain that the audit log tells."""
    return {
        "name": domain.name,
        "default_role": domain.default_role,
        "verified": domain.verified_at > 0,
    }


def _message(domain: MailDomain) -> pb.MailDomain:
    return pb.MailDomain(
        name=domain.name,
        organization_id=domain.organization_id,
        record_name=record_name(domain.name),
        record_value=record_value(domain.token),
        default_role=ROLE_NUMBERS.get(domain.default_role, users_pb2.ROLE_UNSPECIFIED),
        verified_at=domain.verified_at,
        missing_since=domain.missing_since,
        created_at=domain.created_at,
    )
