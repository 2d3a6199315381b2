"""A browser that follows redirects and fills in the forms of issuers, without scripts."""

import html
import re
from typing import Self
from urllib.parse import urljoin, urlsplit

import httpx

_REDIRECTS = (301, 302, 303, 307, 308)
_KEYCLOAK_FORM = 'id="kc-form-login"'
_LOOPBACK = "127.0.0.1"


class Browser:
    """One person's browser: its cookies, and the page that it shows."""

    def __init__(self, person: str = "ann") -> None:
        self.person = person
        # As a browser says of what a person asks for.
        headers = {"sec-fetch-site": "none", "user-agent": "Mozilla/5.0 (a test)"}
        self.http = httpx.AsyncClient(headers=headers, timeout=30)
        self.http.event_hooks = {"response": [self._trust_loopback]}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()

    async def open(self, url: str, *, until: str = "") -> httpx.Response:
        """Where a link leads: through the issuer's forms to a page of ours.

        A redirect to a URL that begins with `until` is where it ends, unfollowed.
        """
        return await self._follow(await self.http.get(url), until)

    async def submit(
        self, page: httpx.Response, *, until: str = "", **fields: str
    ) -> httpx.Response:
        """Sends the form of a page, with its hidden fields."""
        return await self._follow(await self._send(page, fields), until)

    async def _send(self, page: httpx.Response, fields: dict[str, str]) -> httpx.Response:
        action = re.search(r'<form[^>]*action="([^"]+)"', page.text)
        assert action is not None, page.text
        hidden = re.findall(
            r'<input[^>]*type="hidden"[^>]*name="(\w+)"[^>]*value="([^"]*)"', page.text
        )
        target = urljoin(str(page.url), html.unescape(action[1]))
        headers = {"sec-fetch-site": "same-origin"}
        return await self.http.post(target, data={**dict(hidden), **fields}, headers=headers)

    async def press(self, page: httpx.Response, label: str, *, until: str = "") -> httpx.Response:
        """Presses the button of a page's form whose label begins so."""
        for name, value, text in re.findall(
            r'<button name="(\w+)" value="([^"]*)">([^<]*)</button>', page.text
        ):
            if html.unescape(text).startswith(label):
                return await self.submit(page, until=until, **{name: html.unescape(value)})
        raise AssertionError(f"no button {label!r}: {page.text}")

    async def _trust_loopback(self, answer: httpx.Response) -> None:
        """Sends Secure cookies of this machine by http too, as browsers do."""
        for cookie in self.http.cookies.jar:
            cookie.secure = cookie.secure and cookie.domain != _LOOPBACK

    async def _follow(self, page: httpx.Response, until: str) -> httpx.Response:
        for _ in range(20):
            if page.status_code in _REDIRECTS:
                target = urljoin(str(page.url), page.headers["location"])
                if until and target.startswith(until):
                    return page
                page = await self.http.get(target)
            elif _KEYCLOAK_FORM in page.text:
                page = await self._send(page, {"username": self.person, "password": self.person})
            elif "/interaction/" in urlsplit(str(page.url)).path and page.status_code == 200:
                page = await self._answer(page)
            else:
                return page
        raise AssertionError(f"it never ends: {page.url}")

    async def _answer(self, page: httpx.Response) -> httpx.Response:
        """Fills in the issuer's form, which asks who one is and whether to go on."""
        action = re.search(r'action="([^"]+)"', page.text)
        prompt = re.search(r'name="prompt" value="(\w+)"', page.text)
        assert action is not None, page.text
        assert prompt is not None, page.text
        data = {"prompt": prompt[1]}
        if prompt[1] == "login":
            data |= {"login": self.person, "password": "any"}
        return await self.http.post(urljoin(str(page.url), html.unescape(action[1])), data=data)
