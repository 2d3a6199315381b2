"""Sign-in of a person from a terminal: by a browser on this machine, or by a code elsewhere.

Sources: RFC 8252 (a loopback address), RFC 7636 (PKCE), RFC 8628 (devices).
"""

import base64
import hashlib
import hmac
import secrets
import time
import webbrowser
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from windlass.cli.framework.failures import Problem
from windlass.cli.framework.renewal import post

WAIT_SECONDS = 600.0
_DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
Note = Callable[[str], None]


def by_browser(base_url: str, along: Mapping[str, str], *, ca: str, note: Note) -> dict[str, Any]:
    """The secrets of a session that a person began in a browser of this machine; raises Problem.

    `along` goes to the page of the sign-in, as far as it is not empty.
    """
    verifier, state = secrets.token_urlsafe(48), secrets.token_urlsafe(24)
    digest = hashlib.sha256(verifier.encode()).digest()
    with _Listener() as listener:
        asked = {
            "redirect_uri": listener.url,
            "state": state,
            "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
            "code_challenge_method": "S256",
            **{name: text for name, text in along.items() if text},
        }
        url = _page(base_url, asked)
        note(f"Sign in at {url}")
        webbrowser.open(url)
        answer = listener.answer()
    if not hmac.compare_digest(answer.get("state", ""), state):
        raise Problem("The browser brought the answer to another sign-in. Begin anew.")
    if "code" not in answer:
        raise Problem("The question in the browser was answered with no: nobody is signed in.")
    form = {
        "grant_type": "authorization_code",
        "code": answer["code"],
        "code_verifier": verifier,
        "redirect_uri": listener.url,
    }
    return _granted(post(base_url, "/login/token", form, ca=ca))


def by_code(base_url: str, asked: Mapping[str, str], *, ca: str, note: Note) -> dict[str, Any]:
    """The secrets of a session that a person let in from elsewhere; raises Problem.

    `asked` names the device, and the organization whose own issuers are offered, if any.
    """
    begun = post(base_url, "/login/device_authorization", asked, ca=ca)
    if "device_code" not in begun:
        raise Problem(str(begun.get("error_description", "The server lets no device in.")))
    note(
        f"Open {begun['verification_uri']} anywhere and enter {begun['user_code']}, or open "
        f"{begun['verification_uri_complete']}"
    )
    pause, ends = float(begun["interval"]), time.monotonic() + float(begun["expires_in"])
    while time.monotonic() < ends:
        time.sleep(pause)
        form = {"grant_type": _DEVICE_GRANT, "device_code": str(begun["device_code"])}
        answer = post(base_url, "/login/token", form, ca=ca)
        if answer.get("error") == "slow_down":
            pause += 5
        elif answer.get("error") != "authorization_pending":
            return _granted(answer)
    raise Problem("Nobody let this machine in in time. Begin anew.")


def end(base_url: str, refresh_token: str, *, ca: str) -> None:
    """Ends a session."""
    post(base_url, "/login/revoke", {"token": refresh_token}, ca=ca)


def _page(base_url: str, asked: dict[str, str]) -> str:
    if "invite" in asked:
        # As a link or what ends one.
        asked["invite"] = urlsplit(asked["invite"]).path.rpartition("/")[2]
    return f"{base_url.rstrip('/').removesuffix('/v1')}/login?{urlencode(asked)}"


def _granted(answer: dict[str, Any]) -> dict[str, Any]:
    if "access_token" not in answer:
        raise Problem(str(answer.get("error_description") or "The server gave no session."))
    return answer


class _Answer(BaseHTTPRequestHandler):
    """Takes the browser that comes back."""

    def do_GET(self) -> None:
        query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        is_answer = "code" in query or "error" in query
        said = b"You may close this page: the command line goes on.\n"
        self.send_response(200 if is_answer else 404)
        self.send_header("content-type", "text/plain")
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)
        if is_answer:
            self.server.found = query  # type: ignore[attr-defined]  # ours, below

    def log_message(self, *args: Any) -> None:
        """Says nothing: a code would be on the terminal."""


class _Listener(HTTPServer):
    """A port of this machine that a browser comes back to."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.found: dict[str, str] = {}
        self.url = f"http://127.0.0.1:{self.server_port}/callback"

    def answer(self) -> dict[str, str]:
        """The query that the browser brought; raises Problem."""
        ends = time.monotonic() + WAIT_SECONDS
        while not self.found and (left := ends - time.monotonic()) > 0:
            self.timeout = left
            self.handle_request()
        if not self.found:
            raise Problem("Nobody signed in in time. Without a browser here, use --device.")
        return self.found
