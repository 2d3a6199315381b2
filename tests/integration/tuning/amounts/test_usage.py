"""What loops took is counted once: by project, key, person and model, whatever was lost between."""

import json
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from tests.integration.tuning.faults.test_replays import FallingTrainer
from tests.integration.tuning.replaying.test_proofs import proof, steps
from tests.integration.tuning.test_log import Client, loss, send
from tests.integration.tuning.test_trained import BODY, another_project
from tests.support.factories import tuning_engines as make
from tests.support.services.front import Front, running_front
from tests.support.services.front_usage import START
from tests.support.waiting import until

PROMPT = {"chunks": [{"type": "encoded_text", "tokens": [1, 2, 3]}]}


async def usage(http: httpx.AsyncClient, **query: str) -> list[dict[str, Any]]:
    """The sums of usage, by kind and what else is asked for."""
    asked = {"start_time": str(START), "limit": "31", **query}
    answer = await http.get("/v1/usage", params=asked)
    assert answer.status_code == 200, answer.text
    return [one for bucket in answer.json()["data"] for one in bucket["results"]]


async def counted(http: httpx.AsyncClient, requests: int, **query: str) -> dict[str, Any]:
    """The sums by kind once so many requests are counted; never more."""

    async def sums() -> list[dict[str, Any]]:
        return await usage(http, **query)

    def total(found: list[dict[str, Any]]) -> int:
        return sum(one["num_model_requests"] for one in found)

    found = await until(sums, holds=lambda found: total(found) >= requests)
    assert total(found) == requests
    return {one["kind"]: one for one in found}


async def test_tokens_are_counted_by_what_was_done_with_them(front: Front) -> None:
    async with front.http() as http:
        client = Client(http)
        await client.begin()
        await client.result((await send(client, loss(client, 1, 1, 2).SerializeToString())).json())
        message = loss(client, 2, 1, 2, 3)
        message.forward_only = True
        await client.result((await send(client, message.SerializeToString())).json())
        await client.result((await send(client, loss(client, 3, -1).SerializeToString())).json())
        await steps(client, 4, 4)
        body = {
            "session_id": client.session, "sampling_session_seq_id": 0, "base_model": "toy",
        }  # fmt: skip
        sampler = (await client.post("create_sampling_session", body))["sampling_session_id"]
        asked = {
            "sampling_session_id": sampler, "seq_id": 0, "prompt": PROMPT, "num_samples": 2,
            "sampling_params": {"max_tokens": 5},
        }  # fmt: skip
        await client.result(await client.post("asample", asked))
        found = await counted(http, 4, group_by="model")
        tokens = {kind: (one["input_tokens"], one["output_tokens"]) for kind, one in found.items()}
        assert tokens == {"training": (2, 0), "forward": (3, 0), "sample": (3, 10)}
        assert {one["model"] for one in found.values()} == {"toy"}
        # A proof is computed, and is no usage.
        assert (await proof(client))["agrees"]
        assert len(await counted(http, 4)) == 3


async def test_usage_is_of_the_key_that_asked_and_of_its_project(front: Front) -> None:
    theirs = await another_project(front)
    async with front.http() as http, front.http(theirs) as other:
        for one in (http, other):
            client = Client(one)
            await client.begin()
            await steps(client, 1, 2)
            me = (await one.get("/v1/me")).json()
            found = await usage_of_all(one)
            assert found["api_key_id"]
            said = json.dumps(me)
            assert all(found[name] in said for name in ("api_key_id", "user_id", "project_id"))


async def usage_of_all(http: httpx.AsyncClient) -> dict[str, Any]:
    async def sums() -> list[dict[str, Any]]:
        groups = [("group_by", name) for name in ("api_key_id", "user_id", "project_id")]
        answer = await http.get("/v1/usage", params=[("start_time", str(START)), *groups])
        return [one for bucket in answer.json()["data"] for one in bucket["results"]]

    [found] = await until(sums, holds=lambda found: [x["num_model_requests"] for x in found] == [2])
    return found


async def test_what_a_lost_trainer_computes_again_is_counted_once(
    front: Front, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = FallingTrainer(monkeypatch)
    async with front.http() as http:
        client = Client(http)
        await client.begin()
        for number in range(1, 6):
            trainer.falls = number % 2
            await steps(client, number, number)
        assert len(trainer.asked) > 5
        assert list(await counted(http, 5)) == ["training"]


async def test_what_was_told_and_not_noted_is_told_again_and_counted_once(front: Front) -> None:
    columns = "id, organization_id, project_id, user_id, key_id, model, kind, input_tokens"
    columns += ", output_tokens, device_time_ms, at_ms"
    url = front.app.database.url.replace("+psycopg", "")
    async with front.http() as http:
        client = Client(http)
        await client.begin()
        with psycopg.connect(url, autocommit=True) as connection:
            # As if each telling were cut off before it was noted.
            connection.execute("CREATE TABLE seen AS SELECT * FROM tuning_owed_usage")
            connection.execute(
                "CREATE FUNCTION keep() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
                " INSERT INTO seen SELECT OLD.*; RETURN OLD; END $$"
            )
            connection.execute(
                "CREATE TRIGGER keep BEFORE DELETE ON tuning_owed_usage"
                " FOR EACH ROW EXECUTE FUNCTION keep()"
            )
            await steps(client, 1, 3)
            await counted(http, 3)

            async def left() -> int:
                row = connection.execute("SELECT count(*) FROM tuning_owed_usage").fetchone()
                return int(row[0]) if row else -1

            await until(left, holds=lambda number: number == 0)
            connection.execute("DROP TRIGGER keep ON tuning_owed_usage")
            told = connection.execute(
                f"INSERT INTO tuning_owed_usage ({columns}) SELECT {columns} FROM seen"
            )
            assert told.rowcount == 3
            await until(left, holds=lambda number: number == 0)
            assert list(await counted(http, 3)) == ["training"]


async def test_the_time_of_the_device_is_shown_by_model_and_run(
    database_url: str, tmp_path: Path
) -> None:
    make.network().save_pretrained(tmp_path / "model")
    tuning = {"trainer": "lora", "model_folders": {"toy": str(tmp_path / "model")}}
    async with (
        running_front(database_url, tmp_path / "data", tuning=tuning) as front,
        front.http() as http,
    ):
        client = Client(http)
        await client.begin()
        for seq_id in (1, 2, 3):
            body = {"model_id": client.run, "seq_id": seq_id, "forward_backward_input": BODY}
            await client.result(await client.post("forward_backward", body))
        await steps(client, 4, 4)
        spent = (await counted(http, 4))["training"]["device_seconds"]
        run = (await http.get(f"/api/v1/training_runs/{client.run}")).json()
        assert 0 < spent < 60
        assert run["device_seconds"] == pytest.approx(spent)
