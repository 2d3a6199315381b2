"""The object stores that one suite is run against."""

import asyncio
import os
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import boto3
import pytest
import uvicorn
from tests.support.environments import swift as servers
from tests.support.environments.swift import Swift
from tests.support.keepers.object_keys import PROJECT, FixedKeys

from windlass.core.objects import (
    FilesystemStore,
    ObjectRoutes,
    ObjectStore,
    SealedStore,
    ServedStore,
)
from windlass.core.objects.s3 import S3Store
from windlass.core.objects.sealing.frames import sealed_bytes

BUCKET = "windlass-test"


@dataclass
class Subject:
    """A store, and what lies in it that no key shows."""

    store: ObjectStore
    leftovers: Callable[[], Awaitable[list[str]]]
    # More objects than one page of a listing holds.
    pageful: int
    # The bytes that an object takes there, by those that it has.
    taken: Callable[[int], int] = int


@pytest.fixture(scope="session")
def swift(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Swift]:
    with servers.start_swift(tmp_path_factory.mktemp("swift")) as running:
        s3_client(running).create_bucket(Bucket=BUCKET)
        yield running


def s3_client(swift: Swift) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=swift.url,
        region_name=servers.REGION,
        aws_access_key_id=servers.ACCESS_KEY,
        aws_secret_access_key=servers.SECRET_KEY,
    )


@pytest.fixture
async def s3(swift: Swift) -> AsyncIterator[Subject]:
    prefix = f"p-{secrets.token_hex(6)}"
    store = S3Store(
        bucket=BUCKET,
        prefix=prefix,
        endpoint_url=swift.url,
        region=servers.REGION,
        access_key_id=servers.ACCESS_KEY,
        secret_access_key=servers.SECRET_KEY,
    )

    async def leftovers() -> list[str]:
        found = await asyncio.to_thread(
            s3_client(swift).list_multipart_uploads, Bucket=BUCKET, Prefix=prefix
        )
        return [upload["Key"] for upload in found.get("Uploads", ())]

    yield Subject(store, leftovers, pageful=205)
    await store.close()


@asynccontextmanager
async def serving(make: Callable[[str], ServedStore]) -> AsyncIterator[ServedStore]:
    """Serves the signed URLs of the store that `make` makes of the server's URL."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        store = make(f"http://127.0.0.1:{listener.getsockname()[1]}")
        config = uvicorn.Config(ObjectRoutes(store), log_level="warning", lifespan="off")
        server = uvicorn.Server(config)
        running = asyncio.create_task(server.serve(sockets=[listener]))
        yield store
        server.should_exit = True
        await running
        await store.close()


@pytest.fixture
async def filesystem(tmp_path: Path) -> AsyncIterator[Subject]:
    async def leftovers() -> list[str]:
        return [path.name for path in (tmp_path / "objects" / "incoming").iterdir()]

    async with serving(
        lambda url: FilesystemStore(tmp_path / "objects", public_url=url, secret=os.urandom(32))
    ) as store:
        yield Subject(store, leftovers, pageful=1005)


async def sealed(inner: Subject) -> AsyncIterator[Subject]:
    """The same store, in which everything is sealed."""
    async with serving(lambda url: everything_sealed(inner.store, url)) as store:
        yield replace(inner, store=store, taken=sealed_bytes)


def everything_sealed(inner: ObjectStore, url: str = "http://127.0.0.1") -> SealedStore:
    """A store in which every object is one project's, which has a key."""
    return SealedStore(
        inner, FixedKeys(PROJECT), public_url=url, secret=b"s" * 32, project_of=lambda _: PROJECT
    )


@pytest.fixture
async def sealed_filesystem(filesystem: Subject) -> AsyncIterator[Subject]:
    async for subject in sealed(filesystem):
        yield subject


@pytest.fixture
async def sealed_s3(s3: Subject) -> AsyncIterator[Subject]:
    async for subject in sealed(s3):
        yield subject


@pytest.fixture(params=["filesystem", "s3", "sealed_filesystem", "sealed_s3"])
def subject(request: pytest.FixtureRequest) -> Subject:
    """Each store in turn."""
    found: Subject = request.getfixturevalue(request.param)
    return found
