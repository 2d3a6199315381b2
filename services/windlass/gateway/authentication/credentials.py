"""Credentials that requests show for a key, and the refusal of what cannot be one."""

from windlass.core.errors import Unauthenticated
from windlass.core.oidc.tokens import TOKEN_BYTES
from windlass.core.rpc import auth

CREDENTIAL_BYTES = 512
# Of a person who signed in with this browser.
SESSION_COOKIE = "windlass_session"
_COOKIE = SESSION_COOKIE.encode()
MISSING = (
    "You didn't provide an API key. Send it in an Authorization header: "
    "Authorization: Bearer YOUR_KEY, or as X-API-Key."
)
INCORRECT = "Incorrect API key provided."
# In a workload's own token, and in no secret of ours.
_DOT = b"."

# A digest, and the headers that name a project and an organization.
CacheKey = tuple[bytes, bytes, bytes]


class MadeUpKey(Unauthenticated):
    """A key that was never made, or a workload's token that is not taken."""


def is_token(credential: str) -> bool:
    """Returns True for what can be a workload's own token, and no secret of ours."""
    return "." in credential


def shown_by(headers: dict[bytes, bytes]) -> tuple[str, CacheKey]:
    """The credential of a request, and what the answer about it is kept by.

    Raises Unauthenticated for one of another form; a workload's token is a bearer alone.
    """
    authorization = headers.get(b"authorization")
    if authorization:
        scheme, _, credential = authorization.partition(b" ")
        if scheme.lower() != b"bearer":
            raise Unauthenticated(MISSING)
    else:
        credential = headers.get(b"x-api-key", b"") or _of_cookie(headers)
    credential = credential.strip()
    if not credential:
        raise Unauthenticated(MISSING)
    longest = CREDENTIAL_BYTES
    if _DOT in credential:
        if not authorization:
            raise MadeUpKey(INCORRECT)
        longest = TOKEN_BYTES
    project = headers.get(b"openai-project", b"")
    organization = headers.get(b"openai-organization", b"")
    if len(credential) > longest or max(len(project), len(organization)) > CREDENTIAL_BYTES:
        raise Unauthenticated(INCORRECT)
    text = credential.decode("latin-1")
    return text, (auth.digest(text), project, organization)


def _of_cookie(headers: dict[bytes, bytes]) -> bytes:
    """The secret of a browser's session, in requests of our own pages alone.

    Browsers say so themselves, and no page can have them say otherwise (Fetch Metadata).
    """
    if headers.get(b"sec-fetch-site") not in (b"same-origin", b"none"):
        return b""
    for pair in headers.get(b"cookie", b"").split(b";"):
        name, _, value = pair.strip().partition(b"=")
        if name == _COOKIE:
            return value
    return b""
