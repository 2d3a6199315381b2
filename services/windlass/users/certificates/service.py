"""The servicer of certificates that organizations trust."""

from collections.abc import Sequence
from typing import Any

from windlass.api.users.v1 import certificates_pb2 as pb
from windlass.api.users.v1 import certificates_pb2_grpc as rpc
from windlass.bounds import MAX_CERTIFICATES
from windlass.core.certificates import PresentedCertificate, pem_of, read_pem
from windlass.core.clock import now_seconds
from windlass.core.db.paging import cut, page_size
from windlass.core.db.wake import Wake
from windlass.core.errors import InvalidArgument, PermissionDenied
from windlass.core.ids import new_id
from windlass.core.rpc import audited
from windlass.core.rpc.auth import current
from windlass.policy import PLATFORM
from windlass.users.certificates.domain import Caller, TrustedCertificate
from windlass.users.certificates.store import CertificateStore
from windlass.users.domain import KEYS_TOPIC, valid_title
from windlass.users.store import TenantStore

Change = pb.ActivateCertificatesRequest | pb.DeactivateCertificatesRequest


class CertificatesServicer(rpc.CertificatesServiceServicer):
    """CertificatesService."""

    def __init__(self, certificates: CertificateStore, tenants: TenantStore, wake: Wake):
        self._certificates = certificates
        self._tenants = tenants
        self._wake = wake

    async def CreateCertificate(
        self, request: pb.CreateCertificateRequest, context: Any
    ) -> pb.Certificate:
        """Takes a certificate, which is active nowhere yet."""
        found = read_pem(request.certificate, "certificate")
        made = TrustedCertificate(
            id=new_id("cert_"),
            organization_id=current().organization_id,
            name=valid_title(request.name, "name") if request.name else "",
            der=found.der,
            fingerprint=found.fingerprint,
            valid_at=found.valid_at,
            expires_at=found.expires_at,
            created_at=now_seconds(),
        )
        await self._certificates.create(made)
        audited.change(None, _audited(made), resource=made.id)
        return _message(made)

    async def GetCertificate(
        self, request: pb.GetCertificateRequest, context: Any
    ) -> pb.Certificate:
        """Returns one of the organization, with its content."""
        found = await self._certificates.get(current().organization_id, request.certificate_id)
        message = _message(found)
        message.content = pem_of(found.der)
        return message

    async def ListCertificates(
        self, request: pb.ListCertificatesRequest, context: Any
    ) -> pb.ListCertificatesResponse:
        """Lists those of the organization, by their creation."""
        size = page_size(request.limit)
        rows = await self._certificates.list(
            current().organization_id,
            await self._scope(request.project_id),
            oldest_first=request.oldest_first,
            after=request.after,
            limit=size + 1,
        )
        page, more = cut(rows, size)
        return pb.ListCertificatesResponse(certificates=map(_message, page), has_more=more)

    async def UpdateCertificate(
        self, request: pb.UpdateCertificateRequest, context: Any
    ) -> pb.Certificate:
        """Changes the name of one."""
        before, after = await self._certificates.rename(
            current().organization_id, request.certificate_id, valid_title(request.name, "name")
        )
        audited.change(_audited(before), _audited(after), resource=after.id)
        return _message(after)

    async def DeleteCertificate(
        self, request: pb.DeleteCertificateRequest, context: Any
    ) -> pb.Certificate:
        """Forgets one that is active nowhere."""
        ended = await self._certificates.delete(current().organization_id, request.certificate_id)
        audited.change(_audited(ended), None, resource=ended.id)
        return _message(ended)

    async def ActivateCertificates(
        self, request: pb.ActivateCertificatesRequest, context: Any
    ) -> pb.ActivateCertificatesResponse:
        """Demands some, in the organization or in a project of it."""
        changed = await self._change(request, to_active=True)
        return pb.ActivateCertificatesResponse(certificates=map(_message, changed))

    async def DeactivateCertificates(
        self, request: pb.DeactivateCertificatesRequest, context: Any
    ) -> pb.DeactivateCertificatesResponse:
        """Demands some no longer."""
        changed = await self._change(request, to_active=False)
        return pb.DeactivateCertificatesResponse(certificates=map(_message, changed))

    async def _change(self, request: Change, *, to_active: bool) -> Sequence[TrustedCertificate]:
        ids = list(dict.fromkeys(request.certificate_ids))
        if not 0 < len(ids) <= MAX_CERTIFICATES:
            raise InvalidArgument(
                f"certificate_ids must name 1 to {MAX_CERTIFICATES} certificates.",
                param="certificate_ids",
            )
        project_id = await self._scope(request.project_id)
        found = await self._certificates.change(
            current().organization_id, project_id, ids, _caller(request), to_active=to_active
        )
        self._wake.touch(KEYS_TOPIC)
        for one, is_changed in found:
            after = _audited(one) | {"active": one.active, "project_id": project_id}
            before = after | {"active": one.active is not is_changed}
            audited.change(before, after, resource=one.id)
        return [one for one, _ in found]

    async def _scope(self, project_id: str) -> str:
        """A project of the organization, or empty for the whole of it; raises NotFound."""
        if project_id:
            await self._tenants.project(current().organization_id, project_id)
        return project_id


def _caller(request: Change) -> Caller:
    is_operator = current().may(PLATFORM)
    if request.force and not is_operator:
        raise PermissionDenied(
            "Only an administrator of the platform may set force.", param="force"
        )
    shown = request.presented
    presented = PresentedCertificate.of(shown.leaf, shown.chain) if shown.leaf else None
    return Caller(presented, is_operator, request.force)


def _audited(one: TrustedCertificate) -> dict[str, object]:
    return {"id": one.id, "name": one.name, "fingerprint": one.fingerprint}


def _message(one: TrustedCertificate) -> pb.Certificate:
    return pb.Certificate(
        id=one.id,
        organization_id=one.organization_id,
        name=one.name,
        created_at=one.created_at,
        valid_at=one.valid_at,
        expires_at=one.expires_at,
        active=one.active,
    )
