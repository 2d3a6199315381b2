"""A thin client of the Kubernetes API: paths and JSON in, JSON out."""

import random
from collections.abc import AsyncGenerator, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self

import aiohttp
import msgspec

from windlass_agent.kube.access import Access, from_kubeconfig, in_cluster
from windlass_agent.kube.errors import ApiServerUnavailable, Object, ResourceNotFound, error_of
from windlass_agent.kube.lines import split_lines
from windlass_agent.kube.resources import Resource
from windlass_agent.kube.transport import LOG, WATCH, Body, Transport, Value, decoded

FIELD_MANAGER = "windlass-agent"
_PAGE = 200
_WATCH_SECONDS = (240, 360)
_PATCHES = {
    "apply": "application/apply-patch+yaml",
    "json": "application/json-patch+json",
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
}


class _ListMeta(msgspec.Struct):
    resource_version: str = msgspec.field(name="resourceVersion", default="")
    further: str = msgspec.field(name="continue", default="")


class Page(msgspec.Struct):
    """A part of a list; all its parts are of one version."""

    metadata: _ListMeta
    raw: list[msgspec.Raw] | None = msgspec.field(name="items", default=None)

    @property
    def resource_version(self) -> str:
        """The version to watch from."""
        return self.metadata.resource_version

    @property
    def items(self) -> Iterator[Object]:
        """Yields its objects, decoded one by one: a page of pods would fill 15 MiB at once."""
        return (msgspec.json.decode(item) for item in self.raw or ())


class Kube:
    """One cluster's API. Raises KubeError; no call is repeated, that is its caller's to judge."""

    def __init__(self, access: Access, *, fields: Mapping[str, str] | None = None) -> None:
        """`fields` are added to each request's headers, such as `Impersonate-User`."""
        self.access = access
        self._transport = Transport(access, fields or {}, FIELD_MANAGER)

    @classmethod
    async def connect(cls, kubeconfig: Path | None = None, *, context: str = "") -> Self:
        """Connects to the cluster of a kubeconfig, or without one to the cluster of this pod."""
        if kubeconfig is None:
            return cls(await in_cluster())
        return cls(await from_kubeconfig(kubeconfig, context=context))

    async def close(self) -> None:
        """Ends every call."""
        await self._transport.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def get(self, path: str, **query: Value) -> Object:
        """Returns one object, or the JSON at a path."""
        return await self._call("GET", path, query=query)

    async def list(
        self, path: str, *, label_selector: str = "", field_selector: str = ""
    ) -> list[Object]:
        """All objects of a collection, fetched in pages."""
        found: list[Object] = []
        pages = self.pages(path, label_selector=label_selector, field_selector=field_selector)
        async for page in pages:
            found += page.items
        return found

    async def pages(
        self, path: str, *, label_selector: str = "", field_selector: str = ""
    ) -> AsyncGenerator[Page]:
        """A collection page by page; raises Expired when it took too long, begin again then."""
        query: dict[str, Value] = {"limit": _PAGE, **_selectors(label_selector, field_selector)}
        while True:
            page = decoded(await self._transport.content("GET", path, query=query), Page)
            yield page
            if not page.metadata.further:
                return
            query["continue"] = page.metadata.further

    async def watch(
        self,
        path: str,
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
    ) -> AsyncGenerator[tuple[str, Object]]:
        """Yields what changes after a version: (`ADDED`, `MODIFIED`, `DELETED` or `BOOKMARK`,
        object).

        Ends when the server ends it or the line is cut; the last version seen is where to go
        on. Raises Expired when that is too old, KubeError for whatever else is refused.
        """
        query: dict[str, Value] = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": random.randint(*_WATCH_SECONDS),  # noqa: S311 - spreads load
            **_selectors(label_selector, field_selector),
        }
        async with self._transport.request("GET", path, query=query, timeout=WATCH) as answer:
            try:
                async for line in split_lines(answer.content.iter_any()):
                    event = msgspec.json.decode(line)
                    if event["type"] == "ERROR":
                        status = event["object"]
                        raise error_of(status.get("code") or 500, status)
                    yield event["type"], event["object"]
            except (aiohttp.ClientError, OSError, TimeoutError, ValueError):
                return

    async def apply(
        self,
        path: str,
        body: Object,
        *,
        force: bool = True,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Object:
        """Server-side apply; unknown fields are refused, and with `force` ours win."""
        if subresource:
            path = f"{path}/{subresource}"
        return await self._call(
            "PATCH",
            path,
            query={"fieldManager": FIELD_MANAGER, "force": force, **_writing(dry_run)},
            body=body,
            content_type=_PATCHES["apply"],
        )

    async def create(self, path: str, body: Object, *, dry_run: bool = False) -> Object:
        """A new object of a collection; raises Conflict when the name is taken."""
        query: dict[str, Value] = {"fieldManager": FIELD_MANAGER, **_writing(dry_run)}
        return await self._call("POST", path, query=query, body=body)

    async def patch(
        self,
        path: str,
        body: Body,
        kind: Literal["merge", "json", "strategic"] = "merge",
    ) -> Object:
        """Changes an object, or its part when the path says so."""
        query: dict[str, Value] = {"fieldManager": FIELD_MANAGER}
        return await self._call("PATCH", path, query=query, body=body, content_type=_PATCHES[kind])

    async def delete(
        self,
        path: str,
        *,
        propagation: Literal["Background", "Foreground", "Orphan"] = "Background",
        uid: str = "",
        grace_seconds: int | None = None,
    ) -> Object:
        """Deletes an object; with a `uid`, only that one and no later one of its name."""
        body: Object = {"propagationPolicy": propagation}
        if uid:
            body["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        return await self._call("DELETE", path, body=body)

    async def stream_log(
        self,
        path: str,
        *,
        container: str = "",
        follow: bool = False,
        timestamps: bool = False,
        since: str = "",
        tail_lines: int | None = None,
        previous: bool = False,
    ) -> AsyncGenerator[bytes]:
        """Bytes of a container's log as they come; `path` is the pod's, `since` RFC 3339.

        Raises Unavailable when the line is cut.
        """
        query: dict[str, Value] = {
            "container": container or None,
            "follow": follow,
            "timestamps": timestamps,
            "sinceTime": since or None,
            "tailLines": tail_lines,
            "previous": previous,
        }
        async with self._transport.request(
            "GET", f"{path}/log", query=query, timeout=LOG
        ) as answer:
            try:
                async for part in answer.content.iter_any():
                    yield part
            except (aiohttp.ClientError, OSError, TimeoutError) as error:
                raise ApiServerUnavailable(0, "Cut", f"the log was cut: {error}") from error

    async def serves(self, resource: Resource) -> bool:
        """Returns True if the cluster knows this kind in this version."""
        try:
            answer = await self.get(resource.root)
        except ResourceNotFound:
            return False
        return any(kind["name"] == resource.plural for kind in answer.get("resources") or [])

    async def _call(self, method: str, path: str, **request: Any) -> Object:
        return decoded(await self._transport.content(method, path, **request), dict)


def _selectors(label_selector: str, field_selector: str) -> dict[str, Value]:
    return {"labelSelector": label_selector or None, "fieldSelector": field_selector or None}


def _writing(dry_run: bool) -> dict[str, Value]:
    return {"fieldValidation": "Strict", "dryRun": "All" if dry_run else None}
