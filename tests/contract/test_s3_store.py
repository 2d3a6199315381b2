"""Contract of object stores over a network only."""

import os
from collections.abc import AsyncIterator

import pytest
from tests.contract.conftest import BUCKET, Subject
from tests.contract.object_content import MIB, read, repeated, stream
from tests.support.environments import swift as servers
from tests.support.environments.swift import Swift

from windlass.core.objects import ObjectStoreError, StoreUnavailable
from windlass.core.objects.s3 import S3Store


async def test_the_server_dies_in_the_middle(s3: Subject, swift: Swift) -> None:
    async def deadly() -> AsyncIterator[bytes]:
        async for chunk in repeated(os.urandom(MIB), 20):
            yield chunk
        swift.kill("proxy")
        async for chunk in repeated(os.urandom(MIB), 20):
            yield chunk

    await s3.store.put("key", stream(b"before"))
    try:
        with pytest.raises(StoreUnavailable):
            await s3.store.put("key", deadly())
        with pytest.raises(StoreUnavailable):
            await s3.store.check()
    finally:
        swift.start("proxy")
        swift.wait_ready("proxy")
    assert await read(s3.store, "key") == b"before"
    content = os.urandom(10 * MIB)
    await s3.store.put("key", stream(content))
    assert await read(s3.store, "key") == content


async def test_a_wrong_secret(swift: Swift) -> None:
    store = S3Store(
        bucket=BUCKET,
        endpoint_url=swift.url,
        region=servers.REGION,
        access_key_id=servers.ACCESS_KEY,
        secret_access_key="wrong",
    )
    with pytest.raises(ObjectStoreError):
        await store.put("key", stream(b"x"))
    with pytest.raises(ObjectStoreError):
        await store.check()
    await store.close()


async def test_a_missing_bucket_is_no_missing_object(swift: Swift) -> None:
    store = S3Store(
        bucket="no-such-bucket",
        endpoint_url=swift.url,
        region=servers.REGION,
        access_key_id=servers.ACCESS_KEY,
        secret_access_key=servers.SECRET_KEY,
    )
    with pytest.raises(ObjectStoreError):
        await store.check()
    with pytest.raises(ObjectStoreError):
        await read(store, "key")
    await store.close()
