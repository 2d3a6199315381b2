"""Connections to a machine's door: TLS with the certificate that its agent told, and with ours."""

import asyncio
import hashlib
import ssl
from collections.abc import Callable
from http import HTTPStatus

from windlass.gateway.inference.engines.connection import EngineBroken, EngineConnection
from windlass.gateway.inference.routes import DirectAddress
from windlass.inference_api.routes import SERVES
from windlass.tunnel.authority import Authority, ClientIdentity
from windlass.tunnel.loss import detect_loss
from windlass.tunnel.tls import TlsTransport

CONNECT_SECONDS = 2.0
# What a door answers that it serves an engine, which is nothing.
_ANSWER_BYTES = 1024


class DirectWays:
    """Connects to engines past the tunnel, as a client of the authority that doors trust."""

    def __init__(self, authority: Authority):
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # By its digest instead, which the agent tells through its own session.
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        self._identity = ClientIdentity(authority, tls)

    async def connect(
        self, where: DirectAddress, engine_id: str, made: Callable[[], EngineConnection]
    ) -> EngineConnection:
        """A connection through a door that serves the engine; raises OSError.

        No request's byte is sent before the door has shown its certificate, let us in, and said so.
        """
        host, _, port = where.address.rpartition(":")
        connection, loop = made(), asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_SECONDS):
            # The name says nothing; the digest does.
            secured = TlsTransport(connection, self._identity.tls, server_name="engines")
            transport, _ = await loop.create_connection(
                lambda: secured, host.strip("[]"), int(port)
            )
            detect_loss(transport.get_extra_info("socket"))
            try:
                await secured.ready()
                _check(secured, where)
                await _ask(connection, engine_id)
            except EngineBroken as error:
                secured.abort()
                raise ConnectionError(f"The door does not let us in: {error}.") from error
            except BaseException:
                secured.abort()
                raise
        return connection


def _check(secured: TlsTransport, where: DirectAddress) -> None:
    """Raises ConnectionError for a door with another certificate than the agent told."""
    shown = secured.get_extra_info("ssl_object").getpeercert(binary_form=True) or b""
    if hashlib.sha256(shown).digest() != where.digest:
        raise ConnectionError("The door shows another certificate than its agent has told.")


async def _ask(connection: EngineConnection, engine_id: str) -> None:
    """Raises EngineBroken, or ConnectionError where the engine is not served."""
    head = f"GET {SERVES} HTTP/1.1\r\nhost: {engine_id}\r\n\r\n"
    await connection.exchange(head.encode())
    await connection.read(_ANSWER_BYTES)
    connection.rest()
    if connection.status != HTTPStatus.OK or not connection.reusable:
        raise ConnectionError("The engine is not behind this door.")
