"""Posts batches to a URL, signed as Standard Webhooks has it."""

from windlass.core.clock import now_seconds
from windlass.core.outbound.receivers import Receivers, Unreachable
from windlass.core.outbound.signing import signed
from windlass.rbac.exports.destinations import Destination
from windlass.rbac.exports.senders.port import EventBatch, Undelivered

_TYPE = {"Content-Type": "application/x-ndjson"}


class WebhookSender:
    """The receiver has a batch when it answers with a status of success."""

    def __init__(self, receivers: Receivers):
        self._receivers = receivers

    async def send(self, destination: Destination, secret: bytes, batch: EventBatch) -> None:
        """See ExportSender.send; the same batch has the same id however often it is sent."""
        body = batch.lines
        message = f"{destination.id}.{batch.span}"
        headers = _TYPE | signed(message, body, secret.decode(), now_seconds())
        try:
            status = await self._receivers.post(
                destination.organization_id, destination.url, body, headers
            )
        except Unreachable as error:
            raise Undelivered(f"{error}") from error
        if not 200 <= status < 300:
            raise Undelivered(f"the response had status {status}")
