"""Holds of runs on the engines that they train, in Postgres."""

from collections.abc import AsyncIterator

import pytest

from windlass.core.db import Database
from windlass.core.errors import FailedPrecondition
from windlass.inference.trainings.holds import EngineHold, EngineHoldStore


@pytest.fixture
async def holds(database_url: str) -> AsyncIterator[EngineHoldStore]:
    database = Database(database_url)
    yield EngineHoldStore(database)
    await database.close()


def hold(run: str, version: str) -> EngineHold:
    return EngineHold(version, "org", "project", f"model of {version}", run)


async def test_a_run_that_goes_on_with_another_engine_frees_the_first(
    holds: EngineHoldStore,
) -> None:
    await holds.hold(hold("a", "v1"))
    await holds.hold(hold("a", "v2"))
    assert [await holds.holder(one) for one in ("v1", "v2")] == ["", "a"]
    await holds.hold(hold("b", "v1"))
    assert await holds.holder("v1") == "b"


async def test_who_is_refused_another_engine_keeps_its_own(holds: EngineHoldStore) -> None:
    await holds.hold(hold("a", "v1"))
    await holds.hold(hold("b", "v2"))
    with pytest.raises(FailedPrecondition, match="model of v2"):
        await holds.hold(hold("a", "v2"))
    assert [await holds.holder(one) for one in ("v1", "v2")] == ["a", "b"]
    await holds.release("another project", "a")
    assert await holds.holder("v1") == "a"
    await holds.release("project", "a")
    assert await holds.holder("v1") == ""
