"""The list of an organization's networks, and who may set it."""

from dataclasses import dataclass

from windlass.core.addresses import address_of, ranges_of
from windlass.core.errors import FailedPrecondition, PermissionDenied


@dataclass(frozen=True, slots=True)
class AllowedNetworks:
    """Networks of an organization; none: its credentials are taken from anywhere."""

    networks: tuple[str, ...] = ()
    updated_at: int = 0

    def admits(self, address: str) -> bool:
        """Returns True for a client's address that lies in one; one of a socket is empty."""
        ranges, known = ranges_of(self.networks), address_of(address)
        return ranges is None or (known is not None and ranges.contain(known))

    def audited(self) -> dict[str, list[str]] | None:
        """The list as the audit log has it; None for none."""
        return {"networks": list(self.networks)} if self.networks else None


@dataclass(frozen=True, slots=True)
class NetworksChange:
    """A list that is to be, and the client that asks for it."""

    wanted: AllowedNetworks
    # Of the client, as the gateway has seen it.
    address: str
    # Of the platform, who may act for an organization whose list is not theirs.
    is_operator: bool
    force: bool

    def require_admitted(self, before: AllowedNetworks) -> None:
        """Raises PermissionDenied for a client that the present list does not admit any more.

        The gateway may hear a second later of what has just been taken from it.
        """
        if not self.is_operator and not before.admits(self.address):
            raise PermissionDenied(
                "The organization does not admit your address any more.",
                reason="address_not_allowed_by_organization",
            )

    def require_way_in(self) -> None:
        """Raises FailedPrecondition unless the client would be admitted afterwards."""
        if not self.force and not self.wanted.admits(self.address):
            whose = f"The address of this call, {self.address}," if self.address else "This call"
            raise FailedPrecondition(
                f"{whose} would not be admitted afterwards. Add a network that has it, or call "
                "from one of these.",
                reason="networks_lock_you_out",
                param="networks",
            )
