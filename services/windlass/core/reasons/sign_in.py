"""Reasons of sign-in; those of OAuth have its names (RFC 6749, 5.2; RFC 8628, 3.5)."""

from windlass.core.errors import (
    FailedPrecondition,
    InvalidArgument,
    PermissionDenied,
    ResourceExhausted,
)
from windlass.core.reasons.reason import reason

REASONS = {
    "sign_in_refused": reason(
        "The issuer or the organization does not let this person in; the message says why.",
        PermissionDenied,
    ),
    "issuer_unavailable": reason(
        "The issuer's configuration or keys cannot be had from its URL; the message says why.",
        FailedPrecondition,
    ),
    "domain_not_proven": reason(
        "DNS does not show the record that proves the domain; the message has it.",
        FailedPrecondition,
    ),
    "domain_taken": reason(
        "Another organization proves that the domain is its own.", FailedPrecondition
    ),
    "lost_sign_in": reason(
        "The answer belongs to no sign-in of this browser, or came after ten minutes; begin anew.",
        InvalidArgument,
    ),
    "invite_accepted": reason(
        "The invite was used; remove the member whom it brought instead.", FailedPrecondition
    ),
    "mail_not_set_up": reason(
        "The operator has named no mail server; send the link of the invite yourself.",
        FailedPrecondition,
    ),
    "too_many_mails": reason(
        "The organization has had as many mails sent today as it may.", ResourceExhausted
    ),
    "sign_in_too_weak": reason(
        "The organization asks more of its administrators' sign-ins than this session's; sign in "
        "anew.",
        PermissionDenied,
    ),
    "fresh_sign_in_required": reason(
        "The step is dangerous, and this session's person showed long ago who they are, or the "
        "issuer does not say when; sign in anew (`windlass auth login --web --fresh`).",
        PermissionDenied,
    ),
    "sign_in_required": reason(
        "The organization lets people in by issuers of its own alone, and people make keys while "
        "signed in.",
        FailedPrecondition,
        PermissionDenied,
    ),
    "no_owner_signed_in": reason(
        "The policy would lock the owners out; sign in as one of them first.", FailedPrecondition
    ),
    "invalid_grant": reason(
        "The code or the refresh token is not good any more; sign in again.", InvalidArgument
    ),
    "unsupported_grant_type": reason(
        "The token endpoint gives nothing for this grant; use one of those it names.",
        InvalidArgument,
    ),
    "authorization_pending": reason(
        "Nobody has let the device in yet; ask again after the interval.", InvalidArgument
    ),
    "slow_down": reason("The device asks too often; wait longer.", InvalidArgument),
    "expired_token": reason("The device's sign-in is over; begin anew.", InvalidArgument),
    "access_denied": reason("A person has refused the device.", PermissionDenied),
}
