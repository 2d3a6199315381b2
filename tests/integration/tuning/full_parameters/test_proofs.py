"""Runs of all parameters are proved by their log, and forked in it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.integration.tuning.full_parameters.test_trained import begun, nothing_is_left
from tests.integration.tuning.replaying.test_proofs import fork, loaded, proof, saved
from tests.integration.tuning.test_log import Client
from tests.integration.tuning.test_trained import learned
from tests.support.factories import tuning_engines as make
from tests.support.services.front import Front, running_front
from tests.support.trainers import trainers


@pytest.fixture
async def front(database_url: str, tmp_path: Path) -> AsyncIterator[Front]:
    folder = tmp_path / "model"
    make.network().save_pretrained(folder)
    tuning = {
        "trainer": "lora",
        "model_folders": {"toy": str(folder)},
        "full_parameter_trainers": 2,
        "seats": {"max_residents": 4},
    }
    async with running_front(database_url, tmp_path / "data", tuning=tuning) as made:
        yield made
    assert trainers() == []


def rows(front: Front, query: str) -> list[Any]:
    url = front.app.database.url.replace("+psycopg", "")
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(query)
        return cursor.fetchall() if cursor.description else []


async def test_a_run_is_computed_again_to_the_bit_and_goes_on_elsewhere(front: Front) -> None:
    async with front.http() as http:
        # A proof is answered when it is made: it starts a trainer.
        http.timeout = 120
        client = await begun(http)
        for seq_id in (1, 3):
            await learned(client, seq_id)
        path = await saved(client, 5, "half")
        await learned(client, 6)
        await loaded(client, 8, path)
        expected = await learned(client, 9)
        found = await proof(client)
        assert (found["first_difference"], found["agrees"]) == (None, True), found
        assert (found["began_at"], found["gaps"], found["not_compared"]) == ("seed", [], 0)
        assert found["weights_compared"] == 2
        rows(
            front,
            "UPDATE tuning_operations SET result_digest = '\\x00', result = NULL, state = 'expired'"
            f" WHERE run_id = '{client.run}' AND seq_id = 9",
        )
        changed = await proof(client)
        assert changed["agrees"] is False
        assert changed["first_difference"]["seq_id"] == 9
        other = await fork(client, "8", name="again")
        branch = Client(http, other["session_id"], other["training_run_id"])
        await client.result({"request_id": other["request_id"]})
        assert (await branch.post("get_info", {"model_id": branch.run}))["is_lora"] is False
        assert await learned(branch, 1) == expected
        for one in (client, branch):
            await one.post("unload_model", {"model_id": one.run})
        await nothing_is_left(front)
