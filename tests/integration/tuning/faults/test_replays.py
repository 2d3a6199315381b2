"""A run whose trainer is lost goes on: from its last saved state, and its log after that."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.integration.tuning.test_log import Client, loss, send
from tests.support.services.front import Front, running_front
from tests.support.waiting import until

from windlass.tuning_api.trainers.null import NullTrainer
from windlass.tuning_api.trainers.port import TrainerLost
from windlass.tuning_api.trainers.records import LoadState, Operation, OptimStep, Outcome, SaveState

SETTINGS = {"trainer": "null", "base_models": ["toy"], "snapshot_operations": 10}
Begin = Callable[[], AbstractAsyncContextManager[Front]]


@pytest.fixture
def begin(database_url: str, tmp_path: Path) -> Begin:
    return lambda: running_front(database_url, tmp_path / "data", tuning=SETTINGS)


class FallingTrainer:
    """Loses everything it holds when it is told to, and remembers what it was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.asked: list[Operation] = []
        self.falls = 0
        self._execute = NullTrainer.execute
        trainer = self

        async def execute(
            self: NullTrainer, run_id: str, operations: Sequence[Operation]
        ) -> Sequence[Outcome]:
            outcomes = await trainer._execute(self, run_id, operations)
            trainer.asked += operations
            if trainer.falls:
                # After the work, of which nobody hears.
                trainer.falls -= 1
                await self.stop()
                raise TrainerLost
            return outcomes

        monkeypatch.setattr(NullTrainer, "execute", execute)

    def count(self, kind: type[Operation]) -> int:
        return sum(isinstance(one, kind) for one in self.asked)


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch) -> FallingTrainer:
    return FallingTrainer(monkeypatch)


async def step(client: Client, number: int) -> Any:
    return (await client.result(await client.step(number)))["metrics"]["step:max"]


@pytest.mark.parametrize("falls", [1, 2])
async def test_each_step_counts_once_though_the_trainer_falls(
    begin: Begin, trainer: FallingTrainer, falls: int
) -> None:
    async with begin() as front, front.http() as http:
        client = Client(http)
        await client.begin()
        for number in range(1, 30):
            if number % 7 == 0:
                trainer.falls = falls
            assert await step(client, number) == number
        # Of states that were saved on the way: no replay began at the beginning.
        assert trainer.count(SaveState) >= 2
        assert trainer.count(LoadState) >= 2
        assert trainer.count(OptimStep) < 30 + 4 * falls * (10 + 7)


async def test_what_was_loaded_is_not_replayed_over(begin: Begin, trainer: FallingTrainer) -> None:
    async with begin() as front, front.http() as http:
        client = Client(http)
        await client.begin()
        assert await step(client, 1) == 1
        body: dict[str, Any] = {"model_id": client.run, "path": "one", "seq_id": 2}
        path = (await client.result(await client.post("save_weights", body)))["path"]
        assert await step(client, 3) == 2
        # Without the optimizer, the null trainer counts anew.
        body = {"model_id": client.run, "path": path, "optimizer": False, "seq_id": 4}
        await client.result(await client.post("load_weights", body))
        assert await step(client, 5) == 1
        run, _, checkpoint = path.removeprefix("tinker://").partition("/")
        gone = await http.delete(f"/api/v1/training_runs/{run}/checkpoints/{checkpoint}")
        assert gone.status_code == 204, gone.text
        trainer.falls = 1
        assert await step(client, 6) == 2


async def test_what_was_refused_or_changed_nothing_is_not_computed_again(
    begin: Begin, trainer: FallingTrainer
) -> None:
    async with begin() as front, front.http() as http:
        client = Client(http)
        await client.begin()
        assert await step(client, 1) == 1
        answer = await send(client, loss(client, 2, -1).SerializeToString())
        assert (await client.result(answer.json()))["category"] == "user"
        message = loss(client, 3, 1, 2)
        message.forward_only = True
        await client.result((await send(client, message.SerializeToString())).json())
        trainer.falls, before = 1, len(trainer.asked)
        assert await step(client, 4) == 2
        # The step that was lost, the first one again, and the step.
        assert [type(one) for one in trainer.asked[before:]] == [OptimStep] * 3


async def test_a_log_with_a_hole_is_not_replayed(begin: Begin, trainer: FallingTrainer) -> None:
    async with begin() as front, front.http() as http:
        client = Client(http)
        await client.begin()
        for number in (1, 2, 3):
            await step(client, number)
        url = front.app.database.url.replace("+psycopg", "")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("UPDATE tuning_operations SET place = 0 WHERE place = 2")
        trainer.falls = 1
        found = await client.result(await client.step(4))
        assert (found["category"], "could not be replayed" in found["error"]) == ("server", True)


async def test_a_result_goes_at_its_time_and_its_body_once_no_replay_needs_it(
    begin: Begin, trainer: FallingTrainer
) -> None:
    async with begin() as front, front.http() as http:
        client = Client(http)
        await client.begin()
        for number in (1, 2):
            await step(client, number)
        url = front.app.database.url.replace("+psycopg", "")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("UPDATE tuning_operations SET finished_at = 1")

            async def bodies(state: str) -> int:
                query = (
                    "SELECT count(*) FROM tuning_operations"
                    " WHERE place > 0 AND body IS NOT NULL AND state = %s"
                )
                row = connection.execute(query, (state,)).fetchone()
                return int(row[0]) if row else -1

            await until(lambda: bodies("done"), holds=lambda number: number == 0)
            assert await bodies("expired") == 2
            trainer.falls = 1
            assert await step(client, 3) == 3
            body: dict[str, Any] = {"model_id": client.run, "path": "s", "seq_id": 4}
            await client.result(await client.post("save_weights", body))
            await until(lambda: bodies("expired"), holds=lambda number: number == 0)
