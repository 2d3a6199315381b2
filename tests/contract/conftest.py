"""The object stores that one suite is run against."""

import asyncio
import os
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
import uvicorn
from tests.support.environments import swift as servers
from tests.support.environments.swift import Swift

from windlass.core.objects import FilesystemStore, ObjectRoutes, ObjectStore
from windlass.core.objects.s3 import S3Store

BUCKET = "windlass-test"


@dataclass
class Subject:
    """A store, and what lies in it that no key shows."""

    store: ObjectStore
    leftovers: Callable[[], Awaitable[list[str]]]
    # More objects than one page of a listing holds.
    pageful: int


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


@pytest.fixture
async def filesystem(tmp_path: Path) -> AsyncIterator[Subject]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        store = FilesystemStore(tmp_path / "objects", public_url=url, secret=os.urandom(32))
        config = uvicorn.Config(ObjectRoutes(store), log_level="warning", lifespan="off")
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listener]))

        async def leftovers() -> list[str]:
            return [path.name for path in (tmp_path / "objects" / "incoming").iterdir()]

        yield Subject(store, leftovers, pageful=1005)
        server.should_exit = True
        await serving
        await store.close()


@pytest.fixture(params=["filesystem", "s3"])
def subject(request: pytest.FixtureRequest) -> Subject:
    """Each store in turn."""
    found: Subject = request.getfixturevalue(request.param)
    return found
