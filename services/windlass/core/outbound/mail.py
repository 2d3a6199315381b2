"""Mail by SMTP, handed to the one server that the operator names (RFC 5321)."""

import asyncio
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from email.message import EmailMessage
from email.policy import SMTP
from typing import Protocol

import aiosmtplib

from windlass.core.config.mail import MailSection

# For everything: name, connection, TLS, log-in and the message.
SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Mail:
    """A message in plain text."""

    # The same for each try, so that a mailbox may tell a repetition.
    id: str
    to: str
    subject: str
    text: str
    created_at: int


class NotMailed(Exception):
    """The server has not got a message, or does not say so; the text is for its organization."""

    def __init__(self, message: str, *, final: bool = False):
        """`final`: it will never be taken, however often it is tried."""
        super().__init__(message)
        self.final = final


class MailSender(Protocol):
    """Hands mail over."""

    async def send(self, mail: Mail) -> None:
        """Returns once the server has it; raises NotMailed."""


class SmtpServer:
    """The operator's server."""

    def __init__(self, settings: MailSection):
        self._settings = settings

    async def send(self, mail: Mail) -> None:
        """See MailSender.send."""
        settings = self._settings
        try:
            password = await asyncio.to_thread(settings.user_password) if settings.user else None
            trusted = await asyncio.to_thread(self._trusted)
            # The library's own is for each answer of the server, which may be slow on purpose.
            async with asyncio.timeout(SECONDS):
                await aiosmtplib.send(
                    message_of(mail, settings.sender),
                    sender=settings.sender,
                    recipients=[mail.to],
                    hostname=settings.host,
                    port=settings.port,
                    username=settings.user or None,
                    password=password,
                    use_tls=settings.tls == "implicit",
                    start_tls=settings.tls == "starttls",
                    tls_context=trusted,
                    timeout=SECONDS,
                )
        except aiosmtplib.SMTPRecipientsRefused as error:
            code = error.recipients[0].code
            raise NotMailed(f"the address was refused with {code}", final=code >= 500) from error
        except aiosmtplib.SMTPResponseException as error:
            raise NotMailed(f"the mail server refused it with {error.code}") from error
        except (aiosmtplib.SMTPException, OSError, ValueError) as error:
            why = type(error).__name__
            raise NotMailed(
                f"the mail server could not be reached, or broke off ({why})"
            ) from error

    def _trusted(self) -> ssl.SSLContext | None:
        if self._settings.tls == "none":
            return None
        return ssl.create_default_context(cafile=self._settings.ca)


def message_of(mail: Mail, sender: str) -> EmailMessage:
    """The message as it is sent, which asks that no machine answers it (RFC 3834)."""
    message = EmailMessage(policy=SMTP)
    message["From"], message["To"], message["Subject"] = sender, mail.to, mail.subject
    # The same for each try.
    message["Date"] = datetime.fromtimestamp(mail.created_at, UTC)
    message["Message-ID"] = f"<{mail.id}@{sender.rpartition('@')[2]}>"
    message["Auto-Submitted"] = "auto-generated"
    message.set_content(mail.text)
    return message
