"""Messages to tenants never contain the store's address."""

import aiohttp
import pytest

from windlass_agent.download import DownloadError, said_of_store


async def test_a_store_that_cannot_be_reached_keeps_its_address() -> None:
    with pytest.raises(aiohttp.ClientConnectorError) as caught:
        async with aiohttp.ClientSession() as session:
            await session.get("http://127.0.0.1:9/secret-bucket?signature=1")
    assert "127.0.0.1" in str(caught.value)
    assert said_of_store(caught.value) == "the object store cannot be reached"


def test_every_failure_has_words() -> None:
    assert said_of_store(DownloadError("only 3 of 4 bytes arrived")) == "only 3 of 4 bytes arrived"
    assert said_of_store(TimeoutError()) == "the object store did not answer in time"
    broke = said_of_store(aiohttp.ServerDisconnectedError("http://minio.internal"))
    assert broke == "the connection to the object store was lost (ServerDisconnectedError)"
