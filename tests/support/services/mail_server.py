"""A real SMTP server, which keeps what it takes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage
from ssl import SSLContext
from typing import Any

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session
from tests.support.processes.windlass import free_port


@dataclass
class MailServer:
    """What came, and what is to be answered."""

    port: int
    mails: list[EmailMessage] = field(default_factory=list)
    # Of RCPT; empty: everybody has a mailbox.
    refusal: str = ""
    # Whoever logged in last.
    user: str = ""
    # What envelopes asked for: senders and recipients.
    envelopes: list[tuple[str | None, list[str]]] = field(default_factory=list)

    async def handle_RCPT(  # aiosmtpd's name
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if self.refusal:
            return self.refusal
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        content = envelope.content
        assert isinstance(content, bytes)
        self.mails.append(message_from_bytes(content, EmailMessage, policy=policy.default))
        self.envelopes.append((envelope.mail_from, list(envelope.rcpt_tos)))
        return "250 OK"

    def log_in(
        self, server: SMTP, session: Session, envelope: Envelope, mechanism: str, data: Any
    ) -> AuthResult:
        """aiosmtpd's authenticator: one password is good."""
        assert isinstance(data, LoginPassword)
        self.user = data.login.decode()
        return AuthResult(success=data.password == b"right", handled=False)

    def to(self, address: str) -> list[EmailMessage]:
        """Mails to an address."""
        return [one for one in self.mails if one["To"] == address]


@contextmanager
def running_mail_server(
    *, port: int = 0, tls: SSLContext | None = None, log_in: bool = False
) -> Iterator[MailServer]:
    """Runs a server until the end of the block; with `tls` it takes nothing before STARTTLS."""
    server = MailServer(port or free_port())
    controller = Controller(
        server,
        hostname="127.0.0.1",
        port=server.port,
        tls_context=tls,
        require_starttls=tls is not None,
        authenticator=server.log_in,
        auth_required=log_in,
        auth_require_tls=tls is not None,
    )
    controller.start()
    try:
        yield server
    finally:
        controller.stop()
