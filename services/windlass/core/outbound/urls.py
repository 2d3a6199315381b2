"""Rules for the URLs that a tenant may have called."""

from collections.abc import Sequence
from urllib.parse import SplitResult

from windlass.bounds import WEBHOOK_URL_LENGTH
from windlass.core.addresses import Network
from windlass.core.errors import InvalidArgument
from windlass.core.outbound.addresses import OutboundAddresses, UrlRefused, checked_url, parsed


class AddressRules(OutboundAddresses):
    """Decides on URLs too, and not on the addresses that their hosts resolve to alone."""

    def __init__(self, allowed: Sequence[Network], *, allow_http: bool):
        super().__init__(allowed)
        self._allow_plain = allow_http

    def admit(self, url: str, *, secure: str = "https", plain: str = "http") -> SplitResult:
        """The parts of a URL that may be called, whatever its host resolves to later.

        `secure` and `plain` are its schemes with TLS and without, which the operator may allow.
        Raises InvalidArgument.
        """
        schemes = (secure, plain) if self._allow_plain else (secure,)
        try:
            parts = checked_url(url, schemes=schemes, length=WEBHOOK_URL_LENGTH)
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
        return parts
