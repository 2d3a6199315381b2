"""How mail is handed over: only where TLS is as the operator says, and to whom it trusts."""

import asyncio
import contextlib
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from tests.support.environments.certificates import self_signed
from tests.support.processes.windlass import free_port
from tests.support.services.mail_server import MailServer, running_mail_server
from tests.support.waiting import soon

from windlass.core.config.mail import MailSection
from windlass.core.outbound import mail
from windlass.core.outbound.mail import Mail, NotMailed, SmtpServer

MAIL = Mail("mail_1", "ann@example.com", "Grüße", "Join, Ann — open it.\n", 1_795_262_400)


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    return self_signed(tmp_path)


@pytest.fixture
def secure(certificate: tuple[Path, Path]) -> Iterator[MailServer]:
    """A server that asks for STARTTLS, and for a log-in."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    with running_mail_server(tls=context, log_in=True) as running:
        yield running


def to(server: MailServer, **changed: Any) -> SmtpServer:
    given = {"host": "127.0.0.1", "port": server.port, "sender": "windlass@example.com", **changed}
    return SmtpServer(MailSection(**given))


async def test_it_is_encrypted_and_logged_in(
    secure: MailServer, certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    password = tmp_path / "password"
    password.write_text("right\n")
    sender = to(secure, ca=certificate[0], user="windlass", password_file=password)
    await sender.send(MAIL)
    (came,) = secure.mails
    assert came["Subject"] == MAIL.subject
    assert came.get_content().splitlines() == MAIL.text.splitlines()
    assert came["Message-ID"] == "<mail_1@example.com>"
    assert came["Date"].datetime.timestamp() == MAIL.created_at
    assert secure.user == "windlass"


async def test_a_wrong_password_is_told_as_the_servers_refusal(
    secure: MailServer, certificate: tuple[Path, Path]
) -> None:
    wrong = SecretStr("a-secret")
    with pytest.raises(NotMailed, match="refused it with 535") as caught:
        await to(secure, ca=certificate[0], user="windlass", password=wrong).send(MAIL)
    assert not caught.value.final
    assert "a-secret" not in str(caught.value)


async def test_who_is_not_trusted_gets_nothing(secure: MailServer) -> None:
    with pytest.raises(NotMailed, match="could not be reached"):
        await to(secure, user="windlass", password=SecretStr("right")).send(MAIL)
    assert (secure.mails, secure.user) == ([], "")


async def test_nothing_is_sent_in_the_clear_where_tls_was_asked_for() -> None:
    with running_mail_server() as plain:
        for tls in ("starttls", "implicit"):
            with pytest.raises(NotMailed):
                await to(plain, tls=tls).send(MAIL)
        assert plain.mails == []


async def test_nobody_there_is_told_without_details() -> None:
    nobody = SmtpServer(MailSection(host="127.0.0.1", port=free_port(), tls="none", sender="a@b.c"))
    with pytest.raises(NotMailed, match=r"could not be reached, or broke off \(\w+\)"):
        await nobody.send(MAIL)


async def test_a_server_that_dawdles_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its answers comes in time, and all of them together do not."""
    monkeypatch.setattr(mail, "SECONDS", 1.0)

    async def dawdle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while True:
                writer.write(b"220-wait\r\n")
                await writer.drain()
                await asyncio.sleep(0.2)

    async with await asyncio.start_server(dawdle, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        slow = SmtpServer(MailSection(host="127.0.0.1", port=port, tls="none", sender="a@b.c"))
        async with soon(10):
            with pytest.raises(NotMailed, match="could not be reached"):
                await slow.send(MAIL)


async def test_a_password_file_that_is_gone_stops_no_loop(secure: MailServer) -> None:
    sender = to(secure, user="windlass", password_file=Path("/nonexistent"))
    with pytest.raises(NotMailed):
        await sender.send(MAIL)
