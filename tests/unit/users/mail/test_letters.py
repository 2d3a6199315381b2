"""Texts of mail, in which nothing that a tenant chose is an address."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.outbound.mail import Mail, message_of
from windlass.users.mail.letters import (
    harmless,
    invitation,
    is_mailable,
    key_expires,
    key_unused,
)

LINK = "https://windlass.example/invites/secret"
NOON = 1_795_262_400


@given(st.text(max_size=300))
def test_a_title_is_one_short_line_without_addresses(title: str) -> None:
    shown = harmless(title)
    assert 0 < len(shown) <= 80
    assert not re.search(r"[\r\n\t.:/@<>]", shown)


@given(st.text(max_size=200), st.text(max_size=200))
def test_an_invitation_has_our_link_alone_and_fits_a_message(title: str, inviter: str) -> None:
    letter = invitation(title, inviter, LINK, NOON)
    assert re.findall(r"\w+://\S+", letter.text) == [LINK]
    assert letter.subject == invitation("", "", LINK, NOON).subject
    message = message_of(
        Mail("mail_1", "ann@example.com", letter.subject, letter.text, NOON), "a@b.c"
    )
    assert [*message] == [
        "From", "To", "Subject", "Date", "Message-ID", "Auto-Submitted",
        "Content-Type", "Content-Transfer-Encoding", "MIME-Version",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "address",
    ["a@b.c", "first.last+tag@sub.example.com", "o'hara@example.com"],
)
def test_a_plain_address_is_mailed(address: str) -> None:
    assert is_mailable(address)


@pytest.mark.parametrize(
    "address",
    [
        "evil.example/win<victim@corp.com>", "a b@c.d", '"a"@b.c', "a@b@c", "a@b.c\n", "", "ä@b.c",
        "a@ex_ample.com", "a,b@c.d", "x" * 65 + "@b.c", "a@" + "b." * 130 + "c",
    ],
)  # fmt: skip
def test_what_a_header_could_take_for_text_is_not(address: str) -> None:
    assert not is_mailable(address)


def test_times_are_of_no_zone_in_doubt() -> None:
    assert "2026-11-21 12:00 UTC" in invitation("Acme", "Ann", LINK, NOON).text
    for letter in (key_expires, key_unused):
        assert "2026-11-21 12:00 UTC" in letter("Acme", "ci", "key_1", NOON).text
