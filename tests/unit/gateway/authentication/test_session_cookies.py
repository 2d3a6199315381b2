"""Cookies of a browser's session: of this very host alone, where it is served by https."""

import pytest
from fastapi import Request, Response

from windlass.api.users.v1 import sign_in_pb2 as pb
from windlass.core.clock import now_seconds
from windlass.core.errors import Unauthenticated
from windlass.gateway.authentication.credentials import session_cookie, shown_by
from windlass.gateway.sign_in.cookies import SignInCookies

PLAIN = {"windlass_session": "/", "windlass_refresh": "/login", "windlass_login": "/login"}


def cookies_set(cookies: SignInCookies) -> dict[str, tuple[str, set[str]]]:
    """The values and attributes of all that a sign-in sets."""
    response, now = Response(), now_seconds()
    session = pb.SessionSecrets(
        secret="wl-secret", refresh_token="wlr-token", expires_at=now + 60, idle_until=now + 60
    )
    cookies.keep_flow(response, b"a step")
    cookies.keep_session(response, session)
    found = {}
    for line in response.headers.getlist("set-cookie"):
        pair, *attributes = line.split("; ")
        name, _, value = pair.partition("=")
        found[name] = (value.strip('"'), {one.lower() for one in attributes})
    return found


def sent(values: dict[str, str]) -> bytes:
    return "; ".join(f"{name}={value}" for name, value in values.items()).encode()


def test_by_https_they_are_of_this_host_alone() -> None:
    found = cookies_set(SignInCookies(secure=True))
    assert found.keys() == {f"__Host-{name}" for name in PLAIN}
    for name, (_, attributes) in found.items():
        # A browser drops one with the prefix that has another path, or a domain.
        assert {"secure", "path=/", "httponly", "samesite=lax"} <= attributes, name
        assert not any(one.startswith("domain") for one in attributes), name


def test_by_http_they_have_no_prefix_that_browsers_would_drop() -> None:
    found = cookies_set(SignInCookies(secure=False))
    assert found.keys() == PLAIN.keys()
    for name, (_, attributes) in found.items():
        assert f"path={PLAIN[name]}" in attributes
        assert "secure" not in attributes


@pytest.mark.parametrize("secure", [True, False])
def test_a_cookie_of_the_other_name_is_none(secure: bool) -> None:
    """A neighbouring host can plant a cookie without the prefix, and none with it."""
    cookies = SignInCookies(secure=secure)
    own = {name: value for name, (value, _) in cookies_set(cookies).items()}
    foreign = {
        name: value for name, (value, _) in cookies_set(SignInCookies(secure=not secure)).items()
    }
    for values, secret, token, step in (
        (own, "wl-secret", "wlr-token", b"a step"),
        ({**foreign, **own}, "wl-secret", "wlr-token", b"a step"),
        (foreign, "", "", b""),
    ):
        headers = {b"cookie": sent(values), b"sec-fetch-site": b"same-origin"}
        request = Request({"type": "http", "headers": list(headers.items())})
        assert cookies.refresh_token(request) == token
        assert cookies.flow(request) == step
        if secret:
            assert shown_by(headers, session_cookie(secure=secure))[0] == secret
        else:
            with pytest.raises(Unauthenticated):
                shown_by(headers, session_cookie(secure=secure))
