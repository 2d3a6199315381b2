"""Responses of identity providers, mail domains, invites and sessions."""

from windlass.api.users.v1 import mail_domains_pb2, sign_in_pb2
from windlass.gateway.openapi.messages import Schema, message, nullable, obj
from windlass.gateway.openapi.objects import COUNT, FLAG, TEXT, deleted, kind, listed, page, ref

_PROVIDER = message(
    sign_in_pb2.IdentityProvider.DESCRIPTOR, "identity_provider", default_role=nullable(TEXT)
)
_INVITE: dict[str, Schema] = {
    "id": TEXT,
    "object": kind("organization.invite"),
    "email": TEXT,
    "role": {"type": "string", "enum": ["owner", "reader"]},
    "status": {"type": "string", "enum": ["accepted", "expired", "pending"]},
    "projects": listed(obj({"id": TEXT, "role": TEXT})),
    "created_at": COUNT,
    "expires_at": COUNT,
    "accepted_at": nullable(COUNT),
    "accepted_by": nullable(TEXT),
    "user_id": nullable(TEXT),
}
_SESSION = obj(
    {
        "id": TEXT,
        "object": kind("session"),
        "user_id": TEXT,
        "client": TEXT,
        "created_at": COUNT,
        "secret_expires_at": COUNT,
        "last_used_at": nullable(COUNT),
        "last_used_address": nullable(TEXT),
    }
)

_EXPLANATION = message(sign_in_pb2.ExplainAccessResponse.DESCRIPTOR, "access_explanation")
_MAIL_DOMAIN = message(
    mail_domains_pb2.MailDomain.DESCRIPTOR,
    "mail_domain",
    id=TEXT,
    default_role=nullable(TEXT),
    verified=FLAG,
)

SIGN_IN: dict[str, Schema] = {
    "IdentityProvider": _PROVIDER,
    "Invite": obj(_INVITE),
    "MailDomain": _MAIL_DOMAIN,
    "Session": _SESSION,
    "SignInPolicy": message(sign_in_pb2.SignInPolicy.DESCRIPTOR, "sign_in_policy"),
}
SIGN_IN_RESPONSES: dict[str, Schema] = {
    "create_identity_provider": ref("IdentityProvider"),
    "list_identity_providers": page("IdentityProvider"),
    "get_identity_provider": ref("IdentityProvider"),
    "update_identity_provider": ref("IdentityProvider"),
    "create_mail_domain": ref("MailDomain"),
    "list_mail_domains": page("MailDomain"),
    "get_mail_domain": ref("MailDomain"),
    "verify_mail_domain": ref("MailDomain"),
    "update_mail_domain": ref("MailDomain"),
    "delete_mail_domain": deleted("mail_domain.deleted"),
    "delete_identity_provider": deleted("identity_provider.deleted"),
    "create_invite": obj({**_INVITE, "link": TEXT}),
    "list_invites": page("Invite"),
    "get_invite": ref("Invite"),
    "delete_invite": deleted("organization.invite.deleted"),
    "get_sign_in_policy": ref("SignInPolicy"),
    "put_sign_in_policy": ref("SignInPolicy"),
    "explain_access": _EXPLANATION,
    "explain_member_access": _EXPLANATION,
    "list_sessions": page("Session"),
    "end_session": deleted("session.deleted"),
}
