"""Sends batches to a syslog server: RFC 5424, octet counting (RFC 6587), TLS (RFC 5425).

Syslog has no answers. A batch has a connection of its own, which is ended on our side; that the
server ends it in order too says that it has read all of it.
"""

import asyncio
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from windlass.core.outbound.connections import NotPublic
from windlass.core.outbound.receivers import Receivers
from windlass.rbac.exports.destinations import Destination
from windlass.rbac.exports.ocsf import line, severity_of
from windlass.rbac.exports.senders.port import EventBatch, Undelivered

# For a whole batch.
SECONDS = 10.0
# `log audit`.
_FACILITY = 13
# Of OCSF to those of syslog: informational, notice, warning.
_SEVERITY = {1: 6, 2: 5, 3: 4}
_READ_BYTES = 4096


class SyslogSender:
    """The server has a batch when it has ended the connection after it."""

    def __init__(self, receivers: Receivers):
        self._receivers = receivers

    async def send(self, destination: Destination, secret: bytes, batch: EventBatch) -> None:
        """See ExportSender.send."""
        body = b"".join(map(framed, batch.events))
        try:
            async with asyncio.timeout(SECONDS):
                await self._write(destination, body)
        except TimeoutError as error:
            raise Undelivered(
                f"{destination.host} did not take it, and end the connection, within "
                f"{SECONDS:.0f} seconds"
            ) from error
        except NotPublic as error:
            raise Undelivered(f"{destination.host} has no public address") from error
        except (OSError, ValueError) as error:
            # Of TLS too; what the system says of it is about that host alone.
            raise Undelivered(
                f"{destination.host} could not be connected to, or broke off ({_why(error)})"
            ) from error

    async def _write(self, destination: Destination, body: bytes) -> None:
        parts = urlsplit(destination.url)
        tls = parts.scheme == "tls"
        reader, writer = await self._receivers.stream(
            destination.organization_id, destination.host, parts.port or 0, tls=tls
        )
        try:
            writer.write(body)
            await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
                while await reader.read(_READ_BYTES):
                    pass
            else:
                # TLS has its own word for the end, which the server answers.
                writer.close()
                await writer.wait_closed()
        finally:
            writer.transport.abort()


def framed(event: dict[str, Any]) -> bytes:
    """An event as a message of syslog with its length before it."""
    priority = _FACILITY * 8 + _SEVERITY[severity_of(event)]
    at = datetime.fromtimestamp(event["at_ms"] / 1000, UTC)
    time = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    head = f"<{priority}>1 {time} - windlass - {event['id'][:32]} - "
    message = head.encode("ascii", "replace") + line(event).rstrip(b"\n")
    return b"%d " % len(message) + message


def _why(error: Exception) -> str:
    return type(error).__name__
