"""One HTTP session with a server, and the verbs that the client's resources stand on."""

import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from types import TracebackType
from typing import Any, Self

import httpx

from windlass.client.errors import decoded, raise_for, translated, unexpected

PAGE = 100


class Session:
    """Calls under one API key.

    Every method raises WindlassError for a refusal and ConnectionFailed when
    the server does not answer; the constructor raises ValueError for what no
    URL or header can hold.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str,
        *,
        project: str = "",
        organization: str = "",
        timeout: float = 60.0,
        ca: str = "",
        certificate: str = "",
    ):
        # None trusts the machine's own authorities, and shows no certificate.
        self.tls = _tls(ca, certificate) if ca or certificate else None
        self.base_url = base_url.rstrip("/").removesuffix("/v1")
        self._api_key = api_key
        _require_visible("API key", api_key)
        _require_visible("project", project)
        _require_visible("organization", organization)
        headers = {"Authorization": f"Bearer {api_key}"}
        if project:
            headers["OpenAI-Project"] = project
        if organization:
            headers["OpenAI-Organization"] = organization
        self._headers = headers
        # What surrounds a call while its answer is awaited, such as a line on a terminal.
        self.awaiting: Callable[[], AbstractContextManager[object]] = nullcontext
        try:
            self.http = httpx.Client(
                base_url=self.base_url, headers=headers, timeout=timeout, verify=self.tls or True
            )
        except httpx.InvalidURL as error:
            raise ValueError(f"{base_url!r} is not a URL: {error}.") from error

    def trust(self, url: str) -> ssl.SSLContext | bool:
        """Returns how a URL's certificate is checked: by `ca` only where it is the server's."""
        theirs, ours = httpx.URL(url), httpx.URL(self.base_url)
        is_ours = (theirs.host, theirs.port) == (ours.host, ours.port)
        return self.tls if self.tls and is_ours else True

    def request(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        params: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> Any:
        """The JSON that a call answers; `timeout` in seconds, the session's unless given."""
        return decoded(self._answer(method, path, json=json, params=params, timeout=timeout))

    def get(self, path: str, **params: Any) -> Any:
        """GET."""
        return self.request("GET", path, params=params)

    def post(self, path: str, body: Any = None) -> Any:
        """POST with a JSON body."""
        return self.request("POST", path, json=body if body is not None else {})

    def put(self, path: str, body: Any) -> Any:
        """PUT with a JSON body."""
        return self.request("PUT", path, json=body)

    def delete(self, path: str, **params: Any) -> Any:
        """DELETE."""
        return self.request("DELETE", path, params=params)

    def pages(self, path: str, *, limit: int | None = None, **params: Any) -> Iterator[Any]:
        """Items of a list, page after page; at most `limit` of them."""
        given, after = 0, ""
        while True:
            size = PAGE if limit is None else min(PAGE, limit - given)
            if size <= 0:
                return
            asked = {"limit": size, "after": after, **params}
            response = self._answer("GET", path, params=asked)
            page = decoded(response) or {}
            if not isinstance(page.get("data"), list):
                raise unexpected(response, "a list")
            yield from page["data"]
            given += len(page["data"])
            if not page.get("has_more") or not page["data"]:
                return
            last = page["data"][-1]
            # Members have no id of their own: their cursor is the person's.
            after = page.get("next") or page.get("last_id") or last.get("id") or last["user_id"]

    @contextmanager
    def stream(
        self,
        path: str,
        *,
        method: str = "GET",
        json: Any = None,
        headers: Mapping[str, str] | None = None,
        **params: Any,
    ) -> Iterator[httpx.Response]:
        """A call whose answer is read as it comes; silence is no failure."""
        timeout = httpx.Timeout(60.0, read=None)
        with translated(), ExitStack() as opened:
            with self.awaiting():
                response = opened.enter_context(
                    self.http.stream(
                        method,
                        path,
                        json=json,
                        params=_asked(params),
                        headers=headers,
                        timeout=timeout,
                    )
                )
            if not response.is_success:
                response.read()
                raise_for(response)
            yield response

    def _answer(
        self,
        method: str,
        path: str,
        *,
        json: Any = None,
        params: Mapping[str, Any] | None = None,
        timeout: float | None = None,
    ) -> httpx.Response:
        patience = httpx.USE_CLIENT_DEFAULT if timeout is None else timeout
        with self.awaiting(), translated():
            response = self.http.request(
                method, path, json=json, params=_asked(params or {}), timeout=patience
            )
        raise_for(response)
        return response

    def close(self) -> None:
        """Closes the session."""
        self.http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _tls(ca: str, certificate: str) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=ca or None)
    if certificate:
        context.load_cert_chain(certificate)
    return context


def _asked(params: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in params.items() if value not in (None, "")}


def _require_visible(what: str, value: str) -> None:
    """Raises ValueError for what no header can hold, such as the sign of a shortened key."""
    if strange := next((sign for sign in value if not "!" <= sign <= "~"), ""):
        raise ValueError(
            f"The {what} contains {strange!r}; was it copied from where it is shortened?"
        )
