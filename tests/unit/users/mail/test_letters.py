"""Texts of mail, in which nothing that a tenant chose is an address."""

import re

from hypothesis import given
from hypothesis import strategies as st

from windlass.core.outbound.mail import Mail, message_of
from windlass.users.mail.letters import harmless, invitation, key_expires, key_unused

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
    message = message_of(Mail("mail_1", "ann@example.com", letter.subject, letter.text), "a@b.c")
    assert [*message] == [
        "From", "To", "Subject", "Message-ID", "Auto-Submitted",
        "Content-Type", "Content-Transfer-Encoding", "MIME-Version",
    ]  # fmt: skip


def test_times_are_of_no_zone_in_doubt() -> None:
    assert "2026-11-21 12:00 UTC" in invitation("Acme", "Ann", LINK, NOON).text
    for letter in (key_expires, key_unused):
        assert "2026-11-21 12:00 UTC" in letter("Acme", "ci", "key_1", NOON).text
