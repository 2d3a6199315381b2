"""Pages of a sign-in: plain HTML, in which whatever others have written is escaped."""

from collections.abc import Mapping, Sequence
from html import escape
from urllib.parse import urlencode

from fastapi.responses import HTMLResponse

from windlass.api.users.v1 import sign_in_pb2 as pb

# The answer to a form may lead on to a program on the person's machine.
_HEADERS = {
    "content-security-policy": (
        "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; "
        "form-action 'self' http://127.0.0.1:* http://[::1]:*"
    ),
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
  :root {{ color-scheme: light dark; }}
  body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 30rem; margin: 4rem auto;
    padding: 0 1rem; }}
  a.button, button {{ display: block; width: 100%; box-sizing: border-box; margin: .6rem 0;
    padding: .6rem; font: inherit; text-align: center; border: 1px solid #8886;
    border-radius: 6px; background: #8881; color: inherit; text-decoration: none; }}
  code {{ font-size: 1.2em; }}
</style>
<h1>{title}</h1>
{body}
"""


def page(title: str, body: str, *, status: int = 200) -> HTMLResponse:
    """A page; `body` is HTML."""
    return HTMLResponse(_PAGE.format(title=escape(title), body=body), status, headers=_HEADERS)


def ways_page(
    ways: Sequence[pb.WayIn], query: Mapping[str, str], *, asks_address: bool
) -> HTMLResponse:
    """The choice of a provider, or the question for the address of somebody's organization."""
    if not ways and not asks_address:
        return page(
            "Sign in",
            "<p>Nobody can sign in here yet. An operator adds an issuer with <code>windlass "
            "identity-providers create</code>; an organization's own is reached by the link that "
            "its owners give out.</p>",
            status=404,
        )
    links = "".join(
        f'<a class="button" href="{escape(start_url(way.provider_id, query))}">'
        f"{escape(way.name)}</a>"
        for way in ways
    )
    asked = f"<p>With whom are you known?</p>{links}" if ways else ""
    return page("Sign in", (_address_form(query) if asks_address else "") + asked)


def _address_form(query: Mapping[str, str]) -> str:
    return (
        f'<form method="get" action="/login">{_hidden(query)}<p><label>Your mail address: <input '
        'name="email" type="email" autocomplete="username" required maxlength="320"></label></p>'
        "<button>Go on</button></form>"
    )


def _hidden(fields: Mapping[str, str]) -> str:
    return "".join(
        f'<input type="hidden" name="{escape(name)}" value="{escape(value)}">'
        for name, value in fields.items()
    )


def start_url(provider_id: str, query: Mapping[str, str]) -> str:
    """The address at which a sign-in by a provider begins."""
    return f"/login/start?{urlencode({'provider': provider_id, **query})}"


def question_page(question: pb.SignInQuestion) -> HTMLResponse:
    """The choice of an organization, whether to join it, and whether to let a device in."""
    hidden = f'<input type="hidden" name="confirmation" value="{escape(question.confirmation)}">'
    label = "Join " if question.invited_by else ""
    buttons = "".join(
        f'<button name="organization_id" value="{escape(one.organization_id)}">'
        f"{label}{escape(one.title)}</button>"
        for one in question.choices
    )
    title, said = "Sign in", ""
    if question.invited_by:
        title, said = "Join an organization?", _invitation(question)
    if question.user_code:
        title = "Let a device in?"
        said += _device(question)
        buttons += '<button name="denied" value="true">No, refuse it</button>'
    elif question.invited_by:
        buttons += '<button name="denied" value="true">No</button>'
    if not question.invited_by:
        said += "<p>For which organization?</p>"
    form = f'<form method="post" action="/login/confirm">{hidden}{buttons}</form>'
    return page(title, said + form)


def _invitation(question: pb.SignInQuestion) -> str:
    known_as = f" as its member {escape(question.invited_as)}" if question.invited_as else ""
    return (
        f"<p>{escape(question.invited_by)} invites you to "
        f"<b>{escape(question.choices[0].title)}</b>. You will be known there{known_as} by this "
        "sign-in, and what you do there is the organization's. Go on only if you expect it.</p>"
    )


def _device(question: pb.SignInQuestion) -> str:
    code = f"{question.user_code[:4]}-{question.user_code[4:]}"
    return (
        f"<p>A device asks to act as you: {escape(question.device) or 'it has no name'}, from "
        f"{escape(question.address) or 'an unknown address'}. Go on only if it is yours and "
        f"shows <code>{escape(code)}</code>.</p>"
    )


def code_page(along: Mapping[str, str]) -> HTMLResponse:
    """The question for a device's code, with what goes along to the sign-in."""
    return page(
        "Let a device in",
        f'<form method="get" action="/login">{_hidden(along)}'
        "<p><label>The code that it shows: "
        '<input name="user_code" autocomplete="off" required maxlength="16"></label></p>'
        "<button>Go on</button></form>",
    )


def done_page(message: str, *, title: str = "Signed in") -> HTMLResponse:
    """The end of a sign-in."""
    return page(title, f"<p>{escape(message)}</p>")


def failure_page(status: int, message: str, request_id: str) -> HTMLResponse:
    """A failure, with the id under which the server has logged it."""
    body = (
        f'<p>{escape(message)}</p><p><a class="button" href="/login">Begin anew</a></p>'
        f"<p><small>Request {escape(request_id)}</small></p>"
    )
    return page("Sign-in did not work", body, status=status)
