"""Certificates as records, and the errors of them."""

from collections.abc import Collection
from dataclasses import dataclass

from windlass.core.certificates import PresentedCertificate, trust_of
from windlass.core.errors import FailedPrecondition, NotFound, PermissionDenied


@dataclass(frozen=True, slots=True)
class TrustedCertificate:
    """A certificate of an organization."""

    id: str
    organization_id: str
    name: str
    der: bytes
    fingerprint: str
    valid_at: int
    expires_at: int
    created_at: int
    # In the scope that was asked for.
    active: bool = False


@dataclass(frozen=True, slots=True)
class Caller:
    """Client of a call: what it presents, and whether it may shut itself out."""

    presented: PresentedCertificate | None
    # Of the platform, who may act for an organization whose demands are not theirs.
    is_operator: bool
    force: bool

    def require_admitted(self, certificates: Collection[bytes]) -> None:
        """Raises PermissionDenied for a client that these do not admit any more.

        The gateway may hear a second later of what has just been taken from it.
        """
        if certificates and not self.is_operator and not self._is_admitted(certificates):
            raise PermissionDenied(
                "The organization does not admit your certificate any more.",
                reason="client_certificate_not_admitted",
            )

    def _is_admitted(self, certificates: Collection[bytes]) -> bool:
        return trust_of(certificates).admits(self.presented)

    def require_way_in(self, certificates: Collection[bytes]) -> None:
        """Raises FailedPrecondition unless the client would be admitted by these, or by none."""
        if certificates and not self.force and not self._is_admitted(certificates):
            raise FailedPrecondition(
                "The certificate of this call would not be admitted afterwards. Call with a "
                "certificate that is active then, or is signed by one.",
                reason="certificate_locks_you_out",
                param="certificate_ids",
            )


def unknown_certificate(certificate_id: str, param: str = "certificate_id") -> NotFound:
    """The error of a certificate that is not there, or not the caller's."""
    return NotFound(f"No certificate {certificate_id!r}.", param=param)
