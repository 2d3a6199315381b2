"""A run is proved by its log, and another one begun within it; what is gone is said."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from tests.integration.tuning.test_log import Client, loss, send
from tests.integration.tuning.test_trained import BODY
from tests.support.factories import tuning_engines as make
from tests.support.services.front import Front, running_front
from tests.support.waiting import until

from windlass.api.tuning.v1 import tuning_pb2 as pb
from windlass.tuning_api.trainers.null import NullTrainer


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("base") / "model"
    make.network().save_pretrained(path)
    return path


@pytest.fixture
async def trained(database_url: str, tmp_path: Path, folder: Path) -> AsyncIterator[Front]:
    """Yields a front that trains, and saves states by itself soon."""
    tuning = {
        "trainer": "lora", "model_folders": {"toy": str(folder)}, "snapshot_operations": 3,
    }  # fmt: skip
    async with running_front(database_url, tmp_path / "data", tuning=tuning) as made:
        yield made


@pytest.fixture
def rows(front: Front) -> Iterator[psycopg.Connection[Any]]:
    url = front.app.database.url.replace("+psycopg", "")
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


async def proof(client: Client, operation: str = "", status: int = 200) -> Any:
    path = f"training_runs/{client.run}/replay"
    return await client.post(path, {"operation": operation}, status)


async def fork(client: Client, operation: str, status: int = 200, **body: str) -> Any:
    path = f"training_runs/{client.run}/fork"
    return await client.post(path, {"operation": operation, **body}, status)


async def saved(client: Client, seq_id: int, name: str) -> str:
    body = {"model_id": client.run, "path": name, "seq_id": seq_id}
    return str((await client.result(await client.post("save_weights", body)))["path"])


async def loaded(client: Client, seq_id: int, path: str) -> None:
    body = {"model_id": client.run, "path": path, "optimizer": True, "seq_id": seq_id}
    await client.result(await client.post("load_weights", body))


async def steps(client: Client, first: int, last: int) -> list[float]:
    found = [await client.result(await client.step(seq)) for seq in range(first, last + 1)]
    return [one["metrics"]["step:max"] for one in found]


async def begun(http: httpx.AsyncClient, *, is_exclusive: bool) -> Client:
    client = Client(http)
    await client.begin()
    body = {
        "session_id": client.session, "model_seq_id": 7, "base_model": "toy",
        "lora_config": {"rank": 4}, "user_metadata": {"windlass.exclusive": is_exclusive},
    }  # fmt: skip
    client.run = (await client.result(await client.post("create_model", body)))["model_id"]
    return client


async def learned(client: Client, seq_id: int) -> Any:
    body = {"model_id": client.run, "seq_id": seq_id, "forward_backward_input": BODY}
    computed = await client.post("forward_backward", body)
    stepped = await client.step(seq_id + 1, learning_rate=1e-2)
    await client.result(stepped)
    return (await client.result(computed))["metrics"]


@pytest.mark.parametrize("is_exclusive", [True, False])
async def test_what_a_real_trainer_computed_is_computed_again_to_the_bit(
    trained: Front, is_exclusive: bool
) -> None:
    async with trained.http() as http:
        client = await begun(http, is_exclusive=is_exclusive)
        for seq_id in (1, 3):
            await learned(client, seq_id)
        path = await saved(client, 5, "half")
        await learned(client, 6)
        await loaded(client, 8, path)
        expected = await learned(client, 9)
        sampler = {"model_id": client.run, "path": "end", "seq_id": 11}
        await client.result(await client.post("save_weights_for_sampler", sampler))
        found = await proof(client)
        assert found["first_difference"] is None, found
        assert (found["agrees"], found["began_at"], found["gaps"]) == (True, "seed", [])
        assert (found["operations"], found["results_compared"]) == (11, 8)
        assert (found["weights_compared"], found["not_compared"]) == (3, 0)
        assert found["exclusive"] is is_exclusive
        # It goes on from what it was, before the operation that follows.
        other = await fork(client, "8", name="again")
        branch = Client(http, other["session_id"], other["training_run_id"])
        await client.result({"request_id": other["request_id"]})
        assert await learned(branch, 1) == expected


async def test_one_bit_of_a_result_is_found(trained: Front) -> None:
    async with trained.http() as http:
        client = await begun(http, is_exclusive=True)
        for seq_id in (1, 3):
            await learned(client, seq_id)
        assert (await proof(client))["agrees"]
        url = trained.app.database.url.replace("+psycopg", "")
        with psycopg.connect(url, autocommit=True) as connection:
            where = "run_id = %s AND seq_id = 3"
            row = connection.execute(
                f"SELECT result FROM tuning_operations WHERE {where}", (client.run,)
            ).fetchone()
            assert row is not None
            result = pb.Result.FromString(row[0])
            metrics = result.forward_backward.metrics
            metrics["loss:sum"] += 1e-7
            connection.execute(
                f"UPDATE tuning_operations SET result = %s WHERE {where}",
                (result.SerializeToString(), client.run),
            )
        found = await proof(client)
        first = found["first_difference"]
        assert (found["agrees"], found["differing"]) == (False, 1)
        assert (first["seq_id"], first["kind"], first["what"]) == (
            3, "forward_backward", "loss:sum",
        )  # fmt: skip
        assert float(first["recorded"]) > float(first["computed"])
        # Up to the one before it, all is well.
        assert (await proof(client, "2"))["agrees"]


async def test_a_tampered_digest_is_found_once_the_result_has_gone(
    front: Front, rows: psycopg.Connection[Any]
) -> None:
    async with front.http() as http:
        client = Client(http)
        await client.begin()
        await steps(client, 1, 3)
        await saved(client, 4, "one")
        rows.execute("UPDATE tuning_operations SET state = 'expired', result = NULL")
        found = await proof(client)
        assert (found["agrees"], found["results_compared"], found["weights_compared"]) == (
            True, 3, 1,
        )  # fmt: skip
        for column, kind in (("weights_digest", "save_state"), ("result_digest", "optim_step")):
            rows.execute(
                f"UPDATE tuning_operations SET {column} = decode('00', 'hex')"
                f" WHERE {column} IS NOT NULL AND place > 1"
            )
            assert (await proof(client))["first_difference"]["kind"] == kind


async def test_nothing_of_the_run_changes_and_nothing_is_left(
    front: Front, rows: psycopg.Connection[Any]
) -> None:
    tables = ("tuning_runs", "tuning_operations", "tuning_checkpoints", "tuning_sessions")

    def everything() -> list[Any]:
        # But leases and heartbeats.
        return [
            sorted(
                repr(row)
                for row in rows.execute(
                    f"SELECT to_jsonb(t) - 'lease_until' - 'lease_owner' FROM {table} t"
                )
            )
            for table in tables
        ]

    async with front.http() as http:
        client = Client(http)
        await client.begin()
        await steps(client, 1, 3)
        before = everything()
        found = [await proof(client) for _ in range(2)]
        assert [one["agrees"] for one in found] == [True, True]
        assert everything() == before
        assert await steps(client, 4, 4) == [4.0]

        async def audited() -> str:
            return (await http.get("/v1/audit_events")).text

        await until(audited, holds=lambda events: events.count("ReplayRun") == 2)


async def test_a_fork_goes_on_from_where_it_was_begun(front: Front) -> None:
    async with front.http() as http:
        client = Client(http)
        await client.begin()
        await steps(client, 1, 5)
        made = await fork(client, "3")
        branch = Client(http, made["session_id"], made["training_run_id"])
        await client.result({"request_id": made["request_id"]})
        assert await steps(branch, 1, 2) == [4.0, 5.0]
        assert await steps(client, 6, 6) == [6.0]
        # A loop goes on from its path in a session of its own, and it is proved as others are.
        body = {
            "session_id": client.session, "model_seq_id": 3, "path": made["tinker_path"],
            "optimizer": True,
        }  # fmt: skip
        third = Client(http, client.session)
        third.run = (await third.result(await third.post("load_weights", body)))["model_id"]
        assert await steps(third, 1, 1) == [4.0]
        for one in (branch, third):
            found = await proof(one)
            assert (found["agrees"], found["began_at"]) == (True, made["tinker_path"])


async def test_what_is_gone_is_said_and_the_rest_is_proved(
    front: Front, rows: psycopg.Connection[Any]
) -> None:
    async with front.http() as http:
        client = Client(http)
        await client.begin()
        await steps(client, 1, 2)
        path = await saved(client, 3, "kept")
        await steps(client, 4, 6)
        rows.execute("UPDATE tuning_operations SET body = NULL WHERE place BETWEEN 1 AND 2")
        found = await proof(client)
        assert (found["agrees"], found["began_at"]) == (True, path)
        assert (found["operations"], len(found["gaps"])) == (3, 1)
        assert (await fork(client, "5"))["tinker_path"]
        assert (await fork(client, "2", 410))["code"] == "log_gone"
        assert (await proof(client, "2", 410))["code"] == "log_gone"
        rows.execute("UPDATE tuning_operations SET body = NULL WHERE place = 6")
        assert (await proof(client, "", 410))["code"] == "log_gone"


async def test_what_was_loaded_and_is_gone_is_passed_over(front: Front) -> None:
    async with front.http() as http:
        client = Client(http)
        await client.begin()
        await steps(client, 1, 2)
        path = await saved(client, 3, "gone")
        await loaded(client, 4, path)
        await steps(client, 5, 6)
        run, _, checkpoint = path.removeprefix("tinker://").partition("/")
        await http.delete(f"/api/v1/training_runs/{run}/checkpoints/{checkpoint}")
        found = await proof(client)
        assert (found["agrees"], found["last_place"]) == (True, 6)
        # Before it, and after the state that was saved of it.
        assert (found["results_compared"], len(found["gaps"])) == (4, 1)
        made = await fork(client, "5")
        branch = Client(http, made["session_id"], made["training_run_id"])
        await client.result({"request_id": made["request_id"]})
        assert await steps(branch, 1, 1) == [4.0]


async def test_failures_are_compared_as_results_are(front: Front) -> None:
    async with front.http() as http:
        client = Client(http)
        await client.begin()
        await client.result((await send(client, loss(client, 1, -1).SerializeToString())).json())
        await steps(client, 2, 2)
        found = await proof(client)
        assert (found["agrees"], found["results_compared"]) == (True, 2)


@pytest.mark.parametrize(
    ("operation", "status"), [("9", 404), ("op_nothing", 404), ("\u0660", 404), ("9" * 30, 404)]
)
async def test_an_operation_that_is_not_the_runs_is_unknown(
    front: Front, operation: str, status: int
) -> None:
    async with front.http() as http:
        client = Client(http)
        await client.begin()
        await steps(client, 1, 1)
        await proof(client, operation, status)
        await fork(client, operation, status)
        assert await client.post(f"training_runs/{client.run}/fork", {"operation": 1}, 400)
        assert (await fork(client, "1", 400, name="a/b"))["param"] == "path"


async def test_what_still_waits_is_not_replayed(front: Front) -> None:
    async with front.http() as http:
        client = Client(http)
        await client.begin()
        await steps(client, 1, 1)
        await client.step(3)
        refused = await proof(client, "3", 409)
        assert refused["code"] == "not_carried_out"


async def test_a_replay_ends_with_its_client_and_there_is_one_at_a_time(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrived, closed = asyncio.Event(), asyncio.Event()
    opened: list[str] = []
    execute, close = NullTrainer.execute, NullTrainer.close

    async def hang(self: NullTrainer, run_id: str, operations: Any) -> Any:
        if not run_id.startswith("replay-"):
            return await execute(self, run_id, operations)
        opened.append(run_id)
        arrived.set()
        return await asyncio.Event().wait()

    async def note(self: NullTrainer, run_id: str) -> None:
        await close(self, run_id)
        if run_id in opened:
            closed.set()

    async with front.http() as http:
        client = Client(http)
        await client.begin()
        await steps(client, 1, 1)
        monkeypatch.setattr(NullTrainer, "execute", hang)
        monkeypatch.setattr(NullTrainer, "close", note)
        async with front.http() as leaving:
            asking = asyncio.create_task(proof(Client(leaving, run=client.run)))
            await asyncio.wait_for(arrived.wait(), 30)
            assert (await proof(client, "", 429))["code"] == "too_many_replays"
            asking.cancel()
            await asyncio.wait([asking])
        await asyncio.wait_for(closed.wait(), 30)
        monkeypatch.setattr(NullTrainer, "execute", execute)

        async def answered() -> bool:
            path = f"/api/v1/training_runs/{client.run}/replay"
            return (await http.post(path, json={})).status_code == 200

        await until(answered)
