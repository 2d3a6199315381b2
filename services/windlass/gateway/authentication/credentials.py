"""Credentials that requests show for a key, and the refusal of what cannot be one."""

from windlass.core.errors import Unauthenticated
from windlass.core.oidc.tokens import TOKEN_BYTES
from windlass.core.rpc import auth

CREDENTIAL_BYTES = 512
# Of a person who signed in with this browser.
SESSION_COOKIE = "windlass_session"
# Of cookies that a browser takes by https from this very host alone: no page of a neighbouring host
# can plant one (RFC 6265bis).
_HOST = "__Host-"
MISSING = (
    "You didn't provide an API key. Send it in an Authorization header: "
    "Authorization: Bearer YOUR_KEY, or as X-API-Key."
)
INCORRECT = "Incorrect API key provided."
# Before any key of ours, for a client that takes no other form: the tinker SDK.
_FOREIGN = "tml-"
# In a workload's own token, and in no secret of ours.
_DOT = b"."

# A digest, and the headers that name a project and an organization.
CacheKey = tuple[bytes, bytes, bytes]


class MadeUpKey(Unauthenticated):
    """A key that was never made, or a workload's token that is not taken."""


def is_token(credential: str) -> bool:
    """Returns True for what can be a workload's own token, and no secret of ours."""
    return "." in credential


def cookie_name(name: str, *, secure: bool) -> str:
    """The name of one of our cookies, where the gateway is served by https, or is not."""
    return f"{_HOST}{name}" if secure else name


def session_cookie(*, secure: bool) -> bytes:
    """The name of the cookie that has the secret of a browser's session, as it is sent."""
    return cookie_name(SESSION_COOKIE, secure=secure).encode()


def shown_by(headers: dict[bytes, bytes], cookie: bytes) -> tuple[str, CacheKey]:
    """The credential of a request, and what the answer about it is kept by.

    `cookie` is the name of the session's. Raises Unauthenticated for one of another form; a
    workload's token is a bearer alone.
    """
    authorization = headers.get(b"authorization")
    if authorization:
        scheme, _, credential = authorization.partition(b" ")
        if scheme.lower() != b"bearer":
            raise Unauthenticated(MISSING)
    else:
        credential = headers.get(b"x-api-key", b"") or _of_cookie(headers, cookie)
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
    text = _ours(credential.decode("latin-1"))
    return text, (auth.digest(text), project, organization)


def _ours(text: str) -> str:
    """A key without what a client has put before it."""
    rest = text.removeprefix(_FOREIGN)
    # Where keys themselves begin so, nothing is left that is one.
    return rest if auth.may_be_secret(rest) else text


def _of_cookie(headers: dict[bytes, bytes], cookie: bytes) -> bytes:
    """The secret of a browser's session, in requests of our own pages alone.

    Browsers say so themselves, and no page can have them say otherwise (Fetch Metadata).
    """
    if headers.get(b"sec-fetch-site") not in (b"same-origin", b"none"):
        return b""
    for pair in headers.get(b"cookie", b"").split(b";"):
        name, _, value = pair.strip().partition(b"=")
        if name == cookie:
            return value
    return b""
