"""Cookies of a sign-in and of the session that it leads to."""

import base64
import binascii

from fastapi import Request, Response

from windlass.api.users.v1 import sign_in_pb2 as pb
from windlass.core.clock import now_seconds
from windlass.gateway.authentication.credentials import SESSION_COOKIE, cookie_name

FLOW, REFRESH = "windlass_login", "windlass_refresh"
FLOW_SECONDS = 600
_PATH = "/login"


class SignInCookies:
    """Sets and reads cookies that no script reads and no other site sends along.

    By https they are of this host alone (`__Host-`), which browsers grant those of all paths.
    """

    def __init__(self, *, secure: bool):
        self._secure = secure

    def flow(self, request: Request) -> bytes:
        """The step that the browser kept; empty for none."""
        try:
            return base64.urlsafe_b64decode(self._get(request, FLOW).encode())
        except (binascii.Error, ValueError):
            return b""

    def refresh_token(self, request: Request) -> str:
        """The refresh token of the browser's session; empty for none."""
        return self._get(request, REFRESH)

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

    def _get(self, request: Request, name: str) -> str:
        return request.cookies.get(cookie_name(name, secure=self._secure), "")

    def _set(self, response: Response, name: str, value: str, path: str, seconds: int) -> None:
        response.set_cookie(
            cookie_name(name, secure=self._secure),
            value,
            max_age=max(seconds, 0),
            path="/" if self._secure else path,
            secure=self._secure,
            httponly=True,
            # An issuer sends the browser back from another site.
            samesite="lax",
        )
