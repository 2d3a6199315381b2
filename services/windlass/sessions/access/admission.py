"""Admission of a client's request: checks who asks, where, and for what, in this order."""

import re
from dataclasses import dataclass

from windlass.core.addresses import Address, ClientAddresses
from windlass.core.certificates import (
    CHAIN_HEADER,
    HEADER,
    PresentedCertificate,
    presented_by,
)
from windlass.core.errors import AppError
from windlass.key_cache import KnownKey
from windlass.sessions.access.assignments import Assignments
from windlass.sessions.access.audit import AccessAudit
from windlass.sessions.access.callers import Callers, Identity
from windlass.sessions.access.forwarding import bearer, impersonates, request_head
from windlass.sessions.access.kube_request import KubeRequest, classify
from windlass.sessions.access.kube_status import forbidden
from windlass.sessions.access.policy import AccessAllowed, AccessDenied, decide, verb_of
from windlass.sessions.access.tokens import AccessTokens
from windlass.tunnel.http1 import RequestHead
from windlass.tunnel.http1_bodies import MalformedHttp

BODY_BYTES = 256 * 1024
_ROUTE = re.compile(r"/clusters/([A-Za-z0-9_-]{1,64})(/.*)")
_STATUSES = {
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "RESOURCE_EXHAUSTED": 429,
    # The agent will not, or cannot, connect.
    "FAILED_PRECONDITION": 503,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}


class RequestRejected(Exception):
    """A request is rejected with an HTTP status and a message."""

    def __init__(self, status: int, message: str, *, about: KubeRequest | None = None):
        super().__init__(message)
        self.status = status
        self.message = message
        self.about = about


def rejected(error: AppError, *, about: KubeRequest | None = None) -> RequestRejected:
    """The response to a request that failed with a domain error."""
    return RequestRejected(_STATUSES.get(error.code.name, 502), error.message, about=about)


@dataclass(frozen=True, slots=True)
class AdmittedRequest:
    """An admitted request."""

    identity: Identity
    caller: KnownKey
    cluster_id: str
    namespace: str
    request: KubeRequest
    allowed: AccessAllowed
    # The client's; None for a socket of this machine.
    address: Address | None
    # The client's, as a proxy says; None without one.
    certificate: PresentedCertificate | None
    # What goes into the tunnel, before the body.
    head: bytes


class RequestAdmission:
    """Admits each request on its own, regardless of earlier requests on its connection."""

    def __init__(
        self,
        tokens: AccessTokens,
        callers: Callers,
        assignments: Assignments,
        audit: AccessAudit,
        addresses: ClientAddresses,
    ):
        self._tokens = tokens
        self._callers = callers
        self._assignments = assignments
        self._audit = audit
        self._addresses = addresses

    async def admit(self, head: RequestHead, peer: str) -> AdmittedRequest:
        """Admits a request that came from an address; raises RequestRejected, audited if the
        caller is known.
        """
        route = _ROUTE.fullmatch(head.target)
        if route is None:
            raise RequestRejected(404, "The path must begin with /clusters/CLUSTER_ID.")
        cluster_id, target = route[1], route[2]
        try:
            identity = await self._tokens.read(bearer(head), cluster_id)
        except AppError as error:
            raise rejected(error) from error
        caller: KnownKey | None = None
        request: KubeRequest | None = None
        # A proxy may add a line of its own: the last entry of all is the one that counts.
        address = self._addresses.client(
            peer, {b"x-forwarded-for": _joined(head, "x-forwarded-for")}
        )
        try:
            caller = await self._callers.find(identity)
            request = classify(head.method, target)
            if not caller.admits(certificate := self._certificate(head, peer)):
                raise _without_certificate(request, caller, identity)
            return await self._judge(
                head, target, identity, caller, cluster_id, request, address, certificate
            )
        except AppError as error:
            answer = rejected(error, about=request)
        except MalformedHttp as error:
            answer = RequestRejected(error.status, error.message, about=request)
        except RequestRejected as error:
            answer = error
        self._audit.record(identity, caller, cluster_id, request, answer.status, address)
        raise answer

    def _certificate(self, head: RequestHead, peer: str) -> PresentedCertificate | None:
        """The client's certificate, as a named proxy says: this listener asks nobody for one."""
        # Two lines of it are joined to what is none: nobody knows which the proxy wrote.
        given = {name: _joined(head, name.decode()) for name in (HEADER, CHAIN_HEADER)}
        return presented_by(
            peer, {name: value for name, value in given.items() if value}, b"", self._addresses
        )

    async def _judge(
        self,
        head: RequestHead,
        target: str,
        identity: Identity,
        caller: KnownKey,
        cluster_id: str,
        request: KubeRequest,
        address: Address | None,
        certificate: PresentedCertificate | None,
    ) -> AdmittedRequest:
        user = caller.principal.user_id or identity.key_id

        def refuse(why: str) -> RequestRejected:
            message = forbidden(user, verb_of(request), request, why)
            return RequestRejected(403, message, about=request)

        if not caller.is_admitted_from(address):
            raise refuse("its organization is not used from your address")
        if not caller.takes(address):
            raise refuse("its API key is not taken from your address")
        namespace = await self._assignments.namespace(cluster_id, identity.project_id)
        if not namespace:
            raise refuse("your project is not assigned to this cluster")
        if header := impersonates(head):
            raise refuse(f"impersonation is not allowed ({header})")
        verdict = decide(request, namespace, upgrade=head.upgrade)
        if isinstance(verdict, AccessDenied):
            raise refuse(verdict.reason)
        if not caller.principal.may(verdict.permission):
            raise refuse(f"it needs the permission {verdict.permission}")
        if head.length > BODY_BYTES:
            raise RequestRejected(413, "The request's body is too large.", about=request)
        passed = request_head(head, target)
        return AdmittedRequest(
            identity, caller, cluster_id, namespace, request, verdict, address, certificate, passed
        )


def _joined(head: RequestHead, wanted: str) -> bytes:
    """The lines of a header, as one."""
    lines = (value for name, value in head.headers if name == wanted)
    return ", ".join(lines).encode("latin-1", "replace")


def _without_certificate(
    request: KubeRequest, caller: KnownKey, identity: Identity
) -> RequestRejected:
    user = caller.principal.user_id or identity.key_id
    why = "its API key is taken only from clients with an admitted certificate"
    return RequestRejected(403, forbidden(user, verb_of(request), request, why), about=request)
