"""A DNS server on loopback with TXT records that a test sets.

It stands for the resolver of a machine, which no test reaches; what asks it is real.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import dns.flags
import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset


@dataclass
class DnsServer(asyncio.DatagramProtocol):
    """A running server, and what it says."""

    # Texts by their names, without a final dot.
    texts: dict[str, list[str]] = field(default_factory=dict)
    # While it is away, it fails.
    is_away: bool = False
    asked: list[str] = field(default_factory=list)
    port: int = 0
    _transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self.port = transport.get_extra_info("sockname")[1]

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        question = dns.message.from_wire(data)
        answer = dns.message.make_response(question)
        answer.flags |= dns.flags.RA
        name = question.question[0].name
        self.asked.append(name.to_text(omit_final_dot=True))
        texts = self.texts.get(self.asked[-1].lower())
        if self.is_away:
            answer.set_rcode(dns.rcode.SERVFAIL)
        elif texts is None:
            answer.set_rcode(dns.rcode.NXDOMAIN)
        else:
            quoted = [f'"{text}"' for text in texts]
            answer.answer.append(dns.rrset.from_text(name, 60, "IN", "TXT", *quoted))
        self._transport.sendto(answer.to_wire(), addr)


@asynccontextmanager
async def running_dns() -> AsyncIterator[DnsServer]:
    """Runs a server until the end of the block."""
    server = DnsServer()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: server, local_addr=("127.0.0.1", 0))
    try:
        yield server
    finally:
        transport.close()
