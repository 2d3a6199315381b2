"""/login/token and its neighbours: OAuth 2.0 for the command line and for devices.

Sources: RFC 6749 (codes, refresh), RFC 7009 (revocation), RFC 7636 (PKCE), RFC 8628 (devices),
OpenID Connect Back-Channel Logout 1.0.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Form, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from pydantic import Field as PydanticField

from windlass.api.users.v1 import sign_in_pb2 as pb
from windlass.api.users.v1 import sign_in_pb2_grpc as rpc
from windlass.core.app import App
from windlass.core.clock import now_seconds
from windlass.core.errors import AppError, InvalidArgument, PermissionDenied, Unauthenticated
from windlass.gateway.sign_in.routes import Guesses, counted

TEXT_LENGTH = 4096
# A logout token, of whatever an issuer puts into it.
TOKEN_LENGTH = 16 * 1024
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
Field = Annotated[str, Form(max_length=TEXT_LENGTH)]
Token = Annotated[str, Form(max_length=TOKEN_LENGTH)]
_HEADERS = {"cache-control": "no-store"}
# Reasons that are errors of OAuth by the same name.
_OAUTH = frozenset(
    {
        "access_denied",
        "authorization_pending",
        "expired_token",
        "invalid_grant",
        "slow_down",
        "unsupported_grant_type",
    }
)
# Who polls as it should makes no guess.
_EXPECTED = frozenset({"authorization_pending", "slow_down"})


class TokenGrant(BaseModel):
    """The form of a token request (RFC 6749, 4.1.3 and 6; RFC 8628, 3.4)."""

    grant_type: Annotated[str, PydanticField(max_length=TEXT_LENGTH)]
    code: Annotated[str, PydanticField(max_length=TEXT_LENGTH)] = ""
    code_verifier: Annotated[str, PydanticField(max_length=TEXT_LENGTH)] = ""
    redirect_uri: Annotated[str, PydanticField(max_length=TEXT_LENGTH)] = ""
    refresh_token: Annotated[str, PydanticField(max_length=TEXT_LENGTH)] = ""
    device_code: Annotated[str, PydanticField(max_length=TEXT_LENGTH)] = ""


def programs_router(app: App, guesses: Guesses) -> APIRouter:
    """Endpoints for programs."""
    router = APIRouter(include_in_schema=False)
    sign_in = app.clients.stub(rpc.SignInServiceStub)

    @router.post("/login/token")
    async def token(request: Request, grant: Annotated[TokenGrant, Form()]) -> Response:
        async def ask() -> pb.SessionSecrets:
            return await _session(sign_in, grant, request.headers.get("user-agent", ""))

        return await _answered(guesses, request, ask)

    @router.post("/login/revoke")
    async def revoke(request: Request, token: Field) -> Response:
        async def ask() -> None:
            await sign_in.EndSession(pb.EndSessionRequest(refresh_token=token))

        return await _answered(guesses, request, ask)

    @router.post("/login/backchannel/{provider_id}")
    async def backchannel(request: Request, provider_id: str, logout_token: Token) -> Response:
        async def ask() -> None:
            asked = pb.LogOutByIssuerRequest(provider_id=provider_id, logout_token=logout_token)
            await sign_in.LogOutByIssuer(asked)

        return await _answered(guesses, request, ask)

    return router


def devices_router(app: App, guesses: Guesses) -> APIRouter:
    """The endpoint at which a device without a browser begins (RFC 8628, 3.1)."""
    router = APIRouter(include_in_schema=False)
    sign_in = app.clients.stub(rpc.SignInServiceStub)
    public_url = app.settings.http.public_url.rstrip("/")

    @router.post("/login/device_authorization")
    async def device_authorization(
        request: Request, device: Field = "", organization: Field = "", fresh: Field = ""
    ) -> Response:
        address = guesses.enter(request)
        # Each is a row, which anybody may have made.
        guesses.count(address)
        begun = await sign_in.StartDevice(pb.StartDeviceRequest(device=device))
        page = f"{public_url or str(request.base_url).rstrip('/')}/login"
        # Whose own issuers the pages offer.
        of = {"organization": organization} if organization else {}
        if fresh == "true":
            of["fresh"] = fresh
        complete = urlencode({"user_code": begun.user_code, **of})
        body = {
            "device_code": begun.device_code,
            "user_code": begun.user_code,
            "verification_uri": f"{page}/device" + (f"?{urlencode(of)}" if of else ""),
            "verification_uri_complete": f"{page}?{complete}",
            "expires_in": begun.expires_in,
            "interval": begun.interval,
        }
        return JSONResponse(body, headers=_HEADERS)

    return router


async def _session(
    sign_in: rpc.SignInServiceAsyncStub, grant: TokenGrant, user_agent: str
) -> pb.SessionSecrets:
    """The session of a grant; raises InvalidArgument for one that there is not."""
    if grant.grant_type == "authorization_code":
        return await sign_in.RedeemCode(
            pb.RedeemCodeRequest(
                code=grant.code,
                code_verifier=grant.code_verifier,
                redirect_uri=grant.redirect_uri,
            )
        )
    if grant.grant_type == "refresh_token":
        asked = pb.RefreshSessionRequest(refresh_token=grant.refresh_token)
        return await sign_in.RefreshSession(asked)
    if grant.grant_type == DEVICE_GRANT:
        poll = pb.PollDeviceRequest(device_code=grant.device_code, user_agent=user_agent)
        return await sign_in.PollDevice(poll)
    raise InvalidArgument(
        f"grant_type must be authorization_code, refresh_token or {DEVICE_GRANT}.",
        reason="unsupported_grant_type",
        param="grant_type",
    )


async def _answered(
    guesses: Guesses, request: Request, ask: Callable[[], Awaitable[pb.SessionSecrets | None]]
) -> Response:
    """A session as OAuth's token response, or OAuth's error."""
    try:
        with counted(guesses, request, unless=_EXPECTED):
            found = await ask()
    except (InvalidArgument, PermissionDenied, Unauthenticated) as error:
        return _refused(error)
    return JSONResponse(_rendered(found) if found else {}, headers=_HEADERS)


def _refused(error: AppError) -> Response:
    name = error.reason if error.reason in _OAUTH else "invalid_request"
    body = {"error": name, "error_description": error.message}
    return JSONResponse(body, 400, headers=_HEADERS)


def _rendered(given: pb.SessionSecrets) -> dict[str, Any]:
    now = now_seconds()
    return {
        "access_token": given.secret,
        "token_type": "Bearer",
        "expires_in": given.expires_at - now,
        "refresh_token": given.refresh_token,
        "refresh_token_expires_in": given.idle_until - now,
        "session_id": given.session.id,
        "session_ends_at": given.ends_at,
        "organization_id": given.session.organization_id,
        "user_id": given.session.user_id,
    }
