"""/v1/organization/certificates, and those of a project."""

from typing import Annotated, Literal

from fastapi import Request
from pydantic import Field

from windlass.api.users.v1 import certificates_pb2 as pb
from windlass.api.users.v1 import certificates_pb2_grpc as rpc
from windlass.bounds import MAX_CERTIFICATES, TITLE_LENGTH
from windlass.core.addresses import ClientAddresses
from windlass.core.app import App
from windlass.core.certificates import presented_by
from windlass.core.errors import InvalidArgument
from windlass.gateway.exchange import HttpExchange
from windlass.gateway.openai.rendering import Json, page
from windlass.gateway.openai_admin.roles.rendering import Order
from windlass.gateway.parameters import After, Body, Limit, bracketed
from windlass.gateway.resource_router import ResourceRouter

Name = Annotated[str, Field(min_length=1, max_length=TITLE_LENGTH)]
CertificateId = Annotated[str, Field(min_length=1, max_length=64)]
_ONE = "certificate"
_OF_ORGANIZATION, _OF_PROJECT = "organization.certificate", "organization.project.certificate"
_CONTENT = "content"


class NewCertificate(Body):
    """A certificate in PEM; OpenAI's text calls it `content`."""

    certificate: Annotated[str, Field(min_length=1)]
    name: Name | None = None


class CertificateSettings(Body):
    """Settings of a certificate; those left out stay."""

    name: Name | None = None


class CertificateIds(Body):
    """Certificates; `force` is ours, for administrators of the platform."""

    certificate_ids: Annotated[
        list[CertificateId], Field(min_length=1, max_length=MAX_CERTIFICATES)
    ]
    force: bool = False


def certificates_router(app: App) -> ResourceRouter:
    """Certificates of the organization."""
    router = ResourceRouter(prefix="/organization/certificates", tags=["administration"])
    certificates = app.clients.stub(rpc.CertificatesServiceStub)
    changes = _Changes(app)

    @router.post("")
    async def create_certificate(body: NewCertificate) -> Json:
        """Takes a certificate, which is active nowhere yet."""
        request = pb.CreateCertificateRequest(certificate=body.certificate, name=body.name or "")
        return _render(await certificates.CreateCertificate(request))

    @router.get("")
    async def list_certificates(after: After = "", limit: Limit = 0, order: Order = "desc") -> Json:
        """Certificates of the organization, by their creation."""
        return await changes.list("", after, limit, order)

    @router.post("/activate")
    async def activate_certificates(request: Request, body: CertificateIds) -> Json:
        """Demands certificates of every client, for requests under way within a second."""
        return await changes.activate(request, "", body)

    @router.post("/deactivate")
    async def deactivate_certificates(request: Request, body: CertificateIds) -> Json:
        """Demands certificates no longer."""
        return await changes.deactivate(request, "", body)

    @router.get("/{certificate_id}")
    async def get_certificate(certificate_id: str, request: Request) -> Json:
        """Returns one certificate, by `include` with its content."""
        wanted = set(bracketed(request, "include"))
        if wanted - {_CONTENT}:
            raise InvalidArgument("include may have content alone.", param="include")
        asked = pb.GetCertificateRequest(certificate_id=certificate_id)
        return _render(await certificates.GetCertificate(asked), content=bool(wanted))

    @router.post("/{certificate_id}")
    async def update_certificate(certificate_id: str, body: CertificateSettings) -> Json:
        """Changes the name of a certificate."""
        if body.name is None:
            asked = pb.GetCertificateRequest(certificate_id=certificate_id)
            return _render(await certificates.GetCertificate(asked))
        request = pb.UpdateCertificateRequest(certificate_id=certificate_id, name=body.name)
        return _render(await certificates.UpdateCertificate(request))

    @router.delete("/{certificate_id}")
    async def delete_certificate(certificate_id: str) -> Json:
        """Forgets a certificate that is active nowhere."""
        request = pb.DeleteCertificateRequest(certificate_id=certificate_id)
        ended = await certificates.DeleteCertificate(request)
        return {"object": "certificate.deleted", "id": ended.id}

    return router


def project_certificates_router(app: App) -> ResourceRouter:
    """Certificates that a project demands, beside the organization."""
    path = "/organization/projects/{project_id}/certificates"
    router = ResourceRouter(prefix=path, tags=["administration"])
    changes = _Changes(app)

    @router.get("")
    async def list_project_certificates(
        project_id: str, after: After = "", limit: Limit = 0, order: Order = "desc"
    ) -> Json:
        """Certificates of the organization, and which are active in a project."""
        return await changes.list(project_id, after, limit, order)

    @router.post("/activate")
    async def activate_project_certificates(
        project_id: str, request: Request, body: CertificateIds
    ) -> Json:
        """Demands certificates in a project, beside those that the organization demands."""
        return await changes.activate(request, project_id, body)

    @router.post("/deactivate")
    async def deactivate_project_certificates(
        project_id: str, request: Request, body: CertificateIds
    ) -> Json:
        """Demands certificates in a project no longer."""
        return await changes.deactivate(request, project_id, body)

    return router


class _Changes:
    """Routes that an organization and a project have in common."""

    def __init__(self, app: App):
        self._certificates = app.clients.stub(rpc.CertificatesServiceStub)
        self._addresses = ClientAddresses(app.settings.http.trusted_proxies)

    async def list(
        self, project_id: str, after: str, limit: int, order: Literal["asc", "desc"]
    ) -> Json:
        request = pb.ListCertificatesRequest(
            project_id=project_id, after=after, limit=limit, oldest_first=order == "asc"
        )
        answer = await self._certificates.ListCertificates(request)
        items = [_render_active(one, project_id) for one in answer.certificates]
        return page(items, answer.has_more)

    async def activate(self, request: Request, project_id: str, body: CertificateIds) -> Json:
        asked = pb.ActivateCertificatesRequest(
            project_id=project_id,
            certificate_ids=body.certificate_ids,
            presented=self._presented(request),
            force=body.force,
        )
        answer = await self._certificates.ActivateCertificates(asked)
        return page([_render_active(one, project_id) for one in answer.certificates])

    async def deactivate(self, request: Request, project_id: str, body: CertificateIds) -> Json:
        asked = pb.DeactivateCertificatesRequest(
            project_id=project_id,
            certificate_ids=body.certificate_ids,
            presented=self._presented(request),
            force=body.force,
        )
        answer = await self._certificates.DeactivateCertificates(asked)
        return page([_render_active(one, project_id) for one in answer.certificates])

    def _presented(self, request: Request) -> pb.ClientCertificate | None:
        exchange: HttpExchange = request.state.exchange
        found = presented_by(exchange.peer, exchange.headers, exchange.certificate, self._addresses)
        return None if found is None else pb.ClientCertificate(leaf=found.leaf, chain=found.chain)


def _render(one: pb.Certificate, *, content: bool = False) -> Json:
    details: Json = {"valid_at": one.valid_at, "expires_at": one.expires_at}
    if content:
        details["content"] = one.content
    return {
        "object": _ONE,
        "id": one.id,
        "name": one.name or None,
        "created_at": one.created_at,
        "certificate_details": details,
    }


def _render_active(one: pb.Certificate, project_id: str) -> Json:
    kind = _OF_PROJECT if project_id else _OF_ORGANIZATION
    return _render(one) | {"object": kind, "active": one.active}
