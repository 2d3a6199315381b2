"""Rules for the URLs that a tenant may have called."""

from collections.abc import Sequence

from windlass.bounds import WEBHOOK_URL_LENGTH
from windlass.core.addresses import Network
from windlass.core.errors import InvalidArgument
from windlass.core.outbound.addresses import OutboundAddresses, UrlRefused, checked_url, parsed


class AddressRules(OutboundAddresses):
    """Decides on URLs too, and not on the addresses that their hosts resolve to alone."""

    def __init__(self, allowed: Sequence[Network], *, allow_http: bool):
        super().__init__(allowed)
        self._schemes = ("https", "http") if allow_http else ("https",)

    def admit(self, url: str) -> None:
        """Returns if a webhook may have this URL, whatever its host resolves to later.

        Raises InvalidArgument.
        """
        try:
            parts = checked_url(url, schemes=self._schemes, length=WEBHOOK_URL_LENGTH)
        except UrlRefused as error:
            raise InvalidArgument(f"url {error}.", param="url") from error
        literal = parsed(parts.hostname or "")
        if literal is not None and not self.permits(literal):
            raise InvalidArgument(
                "url must lead to a public address. An operator can allow others in "
                "webhooks.allowed_networks.",
                reason="webhook_not_allowed",
                param="url",
            )
