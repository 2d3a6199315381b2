"""The client and its informers on a real API server."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from functools import partial
from typing import Any

import pytest
from tests.cluster.cluster import TestCluster
from tests.support.waiting import until, wait_until

from windlass_agent.kube import (
    ApiServerUnavailable,
    Conflict,
    Expired,
    Forbidden,
    Informer,
    Invalid,
    Kube,
    ResourceNotFound,
    Unauthorized,
    client,
)
from windlass_agent.kube.resources import (
    CONFIGMAPS,
    JOBSETS,
    NODES,
    PODS,
    TRAINJOBS,
    WORKLOADS,
    Resource,
)

SHELL: dict[str, Any] = {
    "restartPolicy": "Never",
    "securityContext": {
        "runAsNonRoot": True,
        "runAsUser": 10_001,
        "seccompProfile": {"type": "RuntimeDefault"},
    },
}
LOCKED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


@asynccontextmanager
async def reached(cluster: TestCluster, **fields: str) -> AsyncIterator[Kube]:
    async with await Kube.connect(cluster.kubeconfig) as kube:
        if not fields:
            yield kube
            return
        async with Kube(kube.access, fields=fields) as other:
            yield other


def settings(namespace: str, name: str, **data: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": data,
    }


async def test_objects_come_change_and_go(east: TestCluster) -> None:
    namespace = east.namespace()
    path = CONFIGMAPS.path(namespace, "a")
    async with reached(east) as kube:
        made = await kube.apply(path, settings(namespace, "a", x="1"))
        again = await kube.apply(path, settings(namespace, "a", x="1"))
        assert again["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
        await kube.apply(path, settings(namespace, "a", x="2"), dry_run=True)
        assert (await kube.get(path))["data"] == {"x": "1"}
        await kube.patch(path, {"data": {"y": "2"}})
        await kube.patch(path, [{"op": "remove", "path": "/data/x"}], kind="json")
        assert (await kube.get(path))["data"] == {"y": "2"}
        with pytest.raises(Conflict):
            await kube.create(CONFIGMAPS.path(namespace), settings(namespace, "a"))
        with pytest.raises(Conflict):
            await kube.delete(path, uid="00000000-0000-0000-0000-000000000000")
        await kube.delete(path, uid=made["metadata"]["uid"])
        with pytest.raises(ResourceNotFound):
            await kube.get(path)


async def test_what_others_own_is_taken_only_by_force(east: TestCluster) -> None:
    namespace = east.namespace()
    east.apply(settings(namespace, "a", x="theirs"))
    path = CONFIGMAPS.path(namespace, "a")
    async with reached(east) as kube:
        with pytest.raises(Conflict, match="conflict"):
            await kube.apply(path, settings(namespace, "a", x="ours"), force=False)
        await kube.apply(path, settings(namespace, "a", x="ours"))
        assert (await kube.get(path))["data"] == {"x": "ours"}


async def test_what_is_wrong_is_said_to_be_so(east: TestCluster) -> None:
    namespace = east.namespace()
    async with reached(east) as kube:
        odd = settings(namespace, "a") | {"colour": "blue"}
        with pytest.raises(Invalid, match="colour"):
            await kube.apply(CONFIGMAPS.path(namespace, "a"), odd)
        with pytest.raises(Invalid):
            await kube.create(CONFIGMAPS.path(namespace), settings(namespace, "No_Name"))
        assert await kube.serves(WORKLOADS)
        assert await kube.serves(JOBSETS)
        assert await kube.serves(TRAINJOBS)
        assert not await kube.serves(Resource("", "v1", "unicorns", "Unicorn"))
        assert not await kube.serves(Resource("example.com", "v1", "pods", "Pod"))
    async with reached(
        east, **{"Impersonate-User": f"system:serviceaccount:{namespace}:x"}
    ) as kube:
        with pytest.raises(Forbidden):
            await kube.list(NODES.path())


async def test_lists_come_in_pages(east: TestCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_PAGE", 3)
    namespace = east.namespace()
    east.apply(*(settings(namespace, f"c{number}") for number in range(10)))
    path = CONFIGMAPS.path(namespace)
    async with reached(east) as kube:
        pages = [page async for page in kube.pages(path)]
        # Beside the cluster's own `kube-root-ca.crt`.
        assert [len(list(page.items)) for page in pages] == [3, 3, 3, 2]
        assert len({page.resource_version for page in pages}) == 1
        found = await kube.list(path, field_selector="metadata.name=c7")
    assert [item["metadata"]["name"] for item in found] == ["c7"]


async def test_a_watch_goes_on_from_a_version(east: TestCluster) -> None:
    namespace = east.namespace()
    path = CONFIGMAPS.path(namespace)
    async with reached(east) as kube:
        made = await kube.create(path, settings(namespace, "a"))
        version = made["metadata"]["resourceVersion"]
        await kube.patch(CONFIGMAPS.path(namespace, "a"), {"data": {"x": "1"}})
        await kube.delete(CONFIGMAPS.path(namespace, "a"))
        seen = []
        async with (
            asyncio.timeout(30),
            aclosing(kube.watch(path, resource_version=version)) as events,
        ):
            async for kind, item in events:
                seen.append((kind, item.get("data")))
                if kind == "DELETED":
                    break
        assert seen == [("MODIFIED", {"x": "1"}), ("DELETED", {"x": "1"})]


async def test_a_log_is_read_while_it_is_written(east: TestCluster) -> None:
    namespace = east.namespace()
    script = "for n in 1 2 3; do echo line $n; sleep 0.2; done"
    shell = {"name": "a", "image": east.image, "command": ["sh", "-c", script]}
    spec = SHELL | {"containers": [shell | {"securityContext": LOCKED}]}
    metadata = {"name": "talker", "namespace": namespace}
    east.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    started = ("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/talker", "-n", namespace)
    east.kubectl(*started, "--timeout=120s")
    async with reached(east) as kube:
        path = PODS.path(namespace, "talker")
        parts = [part async for part in kube.stream_log(path, follow=True)]
        assert b"".join(parts) == b"line 1\nline 2\nline 3\n"
        tail = [part async for part in kube.stream_log(path, tail_lines=1, timestamps=True)]
        assert b"".join(tail).split(b" ", 1)[1] == b"line 3\n"
        with pytest.raises(ResourceNotFound):
            async for _ in kube.stream_log(PODS.path(namespace, "absent")):
                pass


class Followed:
    """An informer of a namespace's ConfigMaps, and what has changed in it."""

    def __init__(self, kube: Kube, namespace: str) -> None:
        self._turned = asyncio.Event()
        self.informer = Informer(
            kube,
            CONFIGMAPS.path(namespace),
            trim=lambda item: item.get("data"),
            changed=self._turned.set,
        )

    async def until(self, holds: Callable[[], bool], seconds: float = 120) -> None:
        async with asyncio.timeout(seconds):
            while not holds():
                await self._turned.wait()
                self._turned.clear()


@asynccontextmanager
async def followed(kube: Kube, namespace: str) -> AsyncIterator[Followed]:
    reader = Followed(kube, namespace)
    running = asyncio.create_task(reader.informer.run())
    try:
        yield reader
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


@pytest.mark.alone
@pytest.mark.parametrize("program", ["apiserver", "etcd"])
async def test_an_informer_outlives_a_restart(east: TestCluster, program: str) -> None:
    namespace = east.namespace()
    key = f"{namespace}/a"
    async with reached(east) as kube, followed(kube, namespace) as reader:
        await kube.apply(CONFIGMAPS.path(namespace, "a"), settings(namespace, "a", x="1"))
        await reader.until(lambda: reader.informer.items.get(key) == {"x": "1"})
        await asyncio.to_thread(east.restart, program)
        applied = json.dumps(settings(namespace, "a", x="2"))
        words = ("apply", "--server-side", "--force-conflicts", "-f-")
        again = partial(east.kubectl.works, *words, input=applied)
        await asyncio.to_thread(wait_until, again, "the API server is back")
        await reader.until(lambda: reader.informer.items.get(key) == {"x": "2"})
        await asyncio.to_thread(east.kubectl, "delete", "configmap", "a", "-n", namespace)
        await reader.until(lambda: key not in reader.informer.items)


async def test_an_informer_does_not_trust_a_version_from_the_future(east: TestCluster) -> None:
    """As after etcd was restored from a backup: the server is silent until its time comes."""
    namespace = east.namespace()
    async with reached(east) as kube:
        await kube.apply(CONFIGMAPS.path(namespace, "a"), settings(namespace, "a", x="1"))
        reader = Followed(kube, namespace)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(client, "_WATCH_SECONDS", (2, 2))
            async with asyncio.timeout(30):
                await reader.informer._follow(str(10**15))
        assert not reader.informer.items


@pytest.mark.alone
async def test_a_version_from_before_a_restart_has_expired(east: TestCluster) -> None:
    """A server that was restarted remembers no change from before."""
    await asyncio.to_thread(east.restart, "apiserver")
    async with reached(east) as kube:
        path = CONFIGMAPS.path("kube-system")

        async def watched() -> None:
            async for _ in kube.watch(path, resource_version="1"):
                pass

        async with asyncio.timeout(120):
            with pytest.raises(Expired):
                await _insist(watched)


async def _insist(call: Callable[[], Awaitable[None]]) -> None:
    """Calls again and again while a server that is starting refuses; other errors are raised."""

    async def answered() -> None:
        with contextlib.suppress(ApiServerUnavailable, Unauthorized, Forbidden):
            await call()

    await until(answered, 120, every=0.1)
