"""What an operation costs in trips to the database, and how it finds who holds its run."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from tests.integration.tuning.conftest import BASE_MODEL
from tests.integration.tuning.test_log import Client
from tests.support.services.front import Front, running_front

STEPS = 40
PROMPT = {"chunks": [{"type": "encoded_text", "tokens": [1, 2, 3]}]}
# To write it, and to write what became of it; what looks after the rest is rare.
TRIPS = 3


@pytest.fixture
def statements() -> Iterator[list[str]]:
    """Yields the statements on operations, as they come."""
    found: list[str] = []

    def note(_: Any, __: Any, statement: str, *___: Any) -> None:
        if "tuning_operations" in statement:
            found.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", note)
    yield found
    sa.event.remove(sa.Engine, "before_cursor_execute", note)


async def test_an_operation_is_written_and_answered_in_two_trips(
    front: Front, statements: list[str]
) -> None:
    async with front.http() as http:
        client = Client(http)
        await client.begin()
        await client.result(await client.step(1))
        statements.clear()
        for number in range(2, STEPS + 2):
            found = await client.result(await client.step(number))
            assert found["metrics"]["step:max"] == number
    assert STEPS < len(statements) < TRIPS * STEPS


async def test_a_sample_is_written_and_answered_in_two_trips(
    front: Front, statements: list[str]
) -> None:
    async with front.http() as http:
        client = Client(http)
        await client.begin()
        body = {
            "session_id": client.session, "sampling_session_seq_id": 0, "base_model": "toy",
        }  # fmt: skip
        sampler = (await client.post("create_sampling_session", body))["sampling_session_id"]
        asked: dict[str, Any] = {
            "sampling_session_id": sampler, "prompt": PROMPT, "sampling_params": {"max_tokens": 2},
        }  # fmt: skip
        await client.result(await client.post("asample", asked | {"seq_id": 0}))
        statements.clear()
        for number in range(1, STEPS + 1):
            found = await client.result(await client.post("asample", asked | {"seq_id": number}))
            assert "sequences" in found
    assert STEPS < len(statements) < TRIPS * STEPS


async def test_what_another_process_takes_reaches_who_holds_the_run(
    front: Front, database_url: str, tmp_path: Path
) -> None:
    tuning = {"trainer": "null", "base_models": [BASE_MODEL]}
    async with (
        running_front(database_url, tmp_path / "data", tuning=tuning) as other,
        front.http() as http,
        other.http(front.owner_key) as far,
    ):
        client = Client(http)
        await client.begin()
        assert (await client.result(await client.step(1)))["metrics"]["step:max"] == 1.0
        client.http = far
        # Its state is in the first one's trainer alone.
        assert (await client.result(await client.step(2)))["metrics"]["step:max"] == 2.0
        client.http = http
        assert (await client.result(await client.step(3)))["metrics"]["step:max"] == 3.0
