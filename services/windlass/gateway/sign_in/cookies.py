"""Cookies of a sign-in and of the session that it leads to."""

import base64
import binascii

from fastapi import Request, Response

from windlass.api.users.v1 import sign_in_pb2 as pb
from windlass.core.clock import now_seconds
from windlass.gateway.authentication.credentials import SESSION_COOKIE

FLOW, REFRESH = "windlass_login", "windlass_refresh"
FLOW_SECONDS = 600
_PATH = "/login"


class SignInCookies:
    """Sets cookies that no script reads and no other site sends along."""

    def __init__(self, *, secure: bool):
        self._secure = secure

    def keep_flow(self, response: Response, flow: bytes) -> None:
        """Has the browser keep a step of its sign-in."""
        self._set(response, FLOW, base64.urlsafe_b64encode(flow).decode(), _PATH, FLOW_SECONDS)

    def drop_flow(self, response: Response) -> None:
        """Makes the browser forget the sign-in, which is over."""
        self._set(response, FLOW, "", _PATH, 0)

    def keep_session(self, response: Response, session: pb.SessionSecrets) -> None:
        """Signs the browser in."""
        now = now_seconds()
        self._set(response, SESSION_COOKIE, session.secret, "/", session.expires_at - now)
        self._set(response, REFRESH, session.refresh_token, _PATH, session.idle_until - now)

    def drop_session(self, response: Response) -> None:
        """Signs the browser out."""
        self._set(response, SESSION_COOKIE, "", "/", 0)
        self._set(response, REFRESH, "", _PATH, 0)

    def _set(self, response: Response, name: str, value: str, path: str, seconds: int) -> None:
        response.set_cookie(
            name,
            value,
            max_age=max(seconds, 0),
            path=path,
            secure=self._secure,
            httponly=True,
            # An issuer sends the browser back from another site.
            samesite="lax",
        )


def flow_of(request: Request) -> bytes:
    """The step that the browser kept; empty for none."""
    try:
        return base64.urlsafe_b64decode(request.cookies.get(FLOW, "").encode())
    except (binascii.Error, ValueError):
        return b""
