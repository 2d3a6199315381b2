"""The log of operations: written once, carried out in order, and ended whatever happens."""

import asyncio
import struct
from dataclasses import dataclass
from typing import Any

import httpx
import psycopg
import pytest
import zstandard
from tests.support.services.front import Front
from tests.support.waiting import until

from windlass.api.tinker.v1 import tinker_pb2 as wire
from windlass.metrics.database import CONNECTIONS

ADAM = {"learning_rate": 1e-4}
BINARY = "application/x-protobuf"


@dataclass
class Client:
    """A client without the SDK, which may ask what the SDK would not."""

    http: httpx.AsyncClient
    session: str = ""
    run: str = ""

    async def post(self, path: str, body: Any, status: int = 200) -> Any:
        answer = await self.http.post(f"/api/v1/{path}", json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    async def begin(self, **settings: Any) -> None:
        made = await self.post("create_session", {"sdk_version": "x", **settings})
        self.session = made["session_id"]
        body = {"session_id": self.session, "model_seq_id": 0, "base_model": "toy"}
        future = await self.post("create_model", body)
        self.run = (await self.result(future))["model_id"]

    async def step(self, seq_id: int | None, status: int = 200, **params: float) -> Any:
        body = {"model_id": self.run, "seq_id": seq_id, "adam_params": ADAM | params}
        return await self.post("optim_step", body, status)

    async def result(self, future: dict[str, Any]) -> Any:
        body = {"request_id": future["request_id"]}
        while (found := await self.post("retrieve_future", body)).get("type") == "try_again":
            pass
        return found


@pytest.fixture
async def client(front: Front) -> Any:
    async with front.http() as http:
        made = Client(http)
        await made.begin()
        yield made


def loss(client: Client, seq_id: int, *tokens: int) -> wire.ForwardBackwardRequest:
    packed = struct.pack(f"<{len(tokens)}i", *tokens)
    chunk = wire.Chunk(encoded_text=wire.EncodedText(tokens=packed))
    datum = wire.Datum(model_input=[chunk])
    return wire.ForwardBackwardRequest(
        model_id=client.run, seq_id=seq_id, data=[datum], loss_fn="cross_entropy"
    )


async def send(client: Client, body: bytes, **headers: str) -> httpx.Response:
    given = {"content-type": BINARY} | {
        name.replace("_", "-"): one for name, one in headers.items()
    }
    return await client.http.post("/api/v1/forward_backward", content=body, headers=given)


async def test_numbers_are_an_order_however_they_arrive(client: Client) -> None:
    late = [await client.step(seq_id) for seq_id in (3, 2)]
    first = await client.step(1)
    found = [await client.result(one) for one in (first, late[1], late[0])]
    assert [one["metrics"]["step:max"] for one in found] == [1.0, 2.0, 3.0]


async def test_what_has_no_number_is_done_as_it_arrives(client: Client) -> None:
    futures = [await client.step(seq_id) for seq_id in (0, None)]
    found = [await client.result(one) for one in futures]
    assert [one["metrics"]["step:max"] for one in found] == [1.0, 2.0]


async def test_a_repeat_is_the_same_future_and_another_body_a_conflict(client: Client) -> None:
    first, again = await client.step(1), await client.step(1)
    assert first == again
    refused = await client.step(1, 409, weight_decay=0.5)
    assert refused["code"] == "body_differs"
    await client.result(first)
    # After its result too.
    assert await client.step(1) == first
    following = await client.result(await client.step(2))
    assert following["metrics"]["step:max"] == 2.0


@pytest.mark.parametrize("front", [{"gap_seconds": 1}], indirect=True)
async def test_a_gap_that_is_never_filled_ends_what_waits(client: Client) -> None:
    waiting = [await client.step(seq_id) for seq_id in (5, 6)]
    for future in waiting:
        found = await client.result(future)
        assert (found["category"], "never came" in found["error"]) == ("user", True)
    after = await client.result(await client.step(7))
    assert after["metrics"]["step:max"] == 1.0


async def test_a_deleted_model_ends_what_waits(client: Client) -> None:
    waiting = await client.step(5)
    await client.post("unload_model", {"model_id": client.run})
    assert "was deleted" in (await client.result(waiting))["error"]
    assert (await client.step(6, 410))["code"] == "run_deleted"


async def test_a_session_finishes_once_and_takes_nothing_more(client: Client) -> None:
    path = f"sessions/{client.session}/finish"
    await client.post(path, {"reason": {"type": "success"}, "detail": None})
    await client.post(path, {"reason": {"type": "errored"}, "detail": "late"})
    refused = await client.post("session_heartbeat", {"session_id": client.session}, 410)
    assert refused["code"] == "session_finished"
    await client.step(1, 410)


async def test_a_silent_session_is_parked_and_comes_back(front: Front, client: Client) -> None:
    await client.result(await client.step(1))
    url = front.app.database.url.replace("+psycopg", "")
    parked = "SELECT state_checkpoint_id FROM tuning_runs WHERE id = %s"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE tuning_sessions SET heartbeat_at = 1000000000000")
        connection.execute(
            "UPDATE tuning_sessions SET heartbeat_at = extract(epoch FROM now()) - 3600"
        )

        async def is_parked() -> bool:
            row = connection.execute(parked, (client.run,)).fetchone()
            return row is not None and bool(row[0])

        await until(is_parked)
    await client.post("session_heartbeat", {"session_id": client.session})
    found = await client.result(await client.step(2))
    assert found["metrics"]["step:max"] == 2.0


async def test_a_result_is_gone_after_its_time(front: Front, client: Client) -> None:
    future = await client.step(1)
    await client.result(future)
    url = front.app.database.url.replace("+psycopg", "")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE tuning_operations SET finished_at = 1")

    async def status() -> int:
        body = {"request_id": future["request_id"]}
        return (await client.http.post("/api/v1/retrieve_future", json=body)).status_code

    assert await until(status, holds=lambda found: found != 200) == 410


async def test_binary_bodies_with_and_without_zstd(client: Client) -> None:
    plain = loss(client, 1, 1, 2, 3).SerializeToString()
    packed = zstandard.ZstdCompressor().compress(loss(client, 2, 4, 5).SerializeToString())
    for answer in (await send(client, plain), await send(client, packed, content_encoding="zstd")):
        assert answer.status_code == 200, answer.text
        body = {"request_id": answer.json()["request_id"]}
        found = await client.http.post(
            "/api/v1/retrieve_future", json=body, headers={"accept": BINARY}
        )
        assert found.headers["content-type"] == BINARY
        output = wire.ForwardBackwardOutput.FromString(found.content)
        assert output.loss_fn_outputs[0].num_datums == 1


async def test_a_large_body_goes_its_way_as_an_object(client: Client) -> None:
    answer = await send(client, loss(client, 1, *range(30_000)).SerializeToString())
    found = await client.result(answer.json())
    assert len(found["loss_fn_outputs"][0]["logprobs"]["data"]) == 30_000


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (zstandard.ZstdCompressor().compress(bytes(2**28)), {"content_encoding": "zstd"}, 413),
        (b"not zstd", {"content_encoding": "zstd"}, 400),
        (zstandard.ZstdCompressor().compress(b"cut")[:-1], {"content_encoding": "zstd"}, 400),
        (2 * zstandard.ZstdCompressor().compress(b""), {"content_encoding": "zstd"}, 400),
        (b"x", {"content_encoding": "gzip"}, 415),
        (b"x", {"content_type": "text/plain"}, 415),
        (b"\xff\xff\xff", {}, 400),
        (b"{}", {"content_type": "application/json"}, 400),
        (b"{" * 100_000, {"content_type": "application/json"}, 400),
        (b'{"model_id": "\\u0000"}', {"content_type": "application/json"}, 400),
    ],
    ids=lambda value: str(value)[:20],
)
async def test_a_bad_body_is_refused(
    client: Client, body: bytes, headers: dict[str, str], status: int
) -> None:
    answer = await send(client, body, **headers)
    assert answer.status_code == status, answer.text
    assert answer.json()["category"] == "user"


async def test_wrong_tensors_end_their_operation_and_not_the_run(client: Client) -> None:
    bad = []
    for seq_id, tokens in ((1, (-1,)), (2, (32_000,)), (3, ()), (4, (1, 2))):
        bad.append(loss(client, seq_id, *tokens))
    tensor = bad[3].data[0].loss_fn_inputs["target_tokens"]
    tensor.CopyFrom(wire.Tensor(dense=bytes(7), dtype=wire.DTYPE_INT64, shape=[1]))
    for message in bad:
        answer = await send(client, message.SerializeToString())
        found = await client.result(answer.json())
        assert found["category"] == "user", found
    after = await client.result(await client.step(5))
    assert after["metrics"]["step:max"] == 1.0


async def test_options_are_known_ones(client: Client) -> None:
    body = {"sdk_version": "x", "user_metadata": {"windlass.exclusif": "true"}}
    refused = await client.post("create_session", body, 400)
    assert refused["code"] == "unknown_option"
    assert "windlass.exclusive" in refused["error"]
    made: dict[str, Any] = {
        "session_id": client.session, "model_seq_id": 1, "base_model": "toy",
        "user_metadata": {"windlass.exclusive": True, "mine": "x"},
    }  # fmt: skip
    await client.result(await client.post("create_model", made))


@pytest.mark.parametrize("name", ["a/b", "..", "x" * 129, "a b", "ä"])
async def test_names_are_one_segment(client: Client, name: str) -> None:
    body = {"model_id": client.run, "path": name, "seq_id": 1}
    found = await client.result(await client.post("save_weights", body))
    assert found["category"] == "user"
    # It had its place: what follows need not wait for it.
    assert (await client.result(await client.step(2)))["metrics"]["step:max"] == 1.0


async def test_a_checkpoint_goes_at_its_time(front: Front, client: Client) -> None:
    body = {"model_id": client.run, "path": "a", "seq_id": 1}
    await client.result(await client.post("save_weights", body))
    path = f"/api/v1/training_runs/{client.run}/checkpoints"
    kept = await client.http.put(f"{path}/weights/a/ttl", json={"ttl_seconds": 3600})
    assert kept.status_code == 204, kept.text
    (shown,) = (await client.http.get(path)).json()["checkpoints"]
    assert shown["expires_at"] is not None
    url = front.app.database.url.replace("+psycopg", "")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("UPDATE tuning_checkpoints SET expires_at = 1")

        async def is_gone() -> bool:
            return not connection.execute("SELECT 1 FROM tuning_checkpoints").fetchall()

        assert (await client.http.get(path)).json()["checkpoints"] == []
        # Its content stays for as long as the run would go on from it.
        await client.post("unload_model", {"model_id": client.run})
        await until(is_gone)
    assert await front.app.objects.count("tuning/") == (0, 0)


async def test_a_name_is_taken_once_or_replaced(client: Client) -> None:
    body: dict[str, Any] = {"model_id": client.run, "path": "a"}
    futures = [
        await client.post("save_weights", body | {"seq_id": seq_id, "overwrite": seq_id == 3})
        for seq_id in (1, 2, 3)
    ]
    first, second, third = [await client.result(one) for one in futures]
    assert first["path"] == third["path"]
    assert "exists already" in second["error"]


@pytest.mark.parametrize("front", [{"quotas": {"tuning_operations": 2}}], indirect=True)
async def test_more_that_waits_than_a_project_may_have_is_put_off(client: Client) -> None:
    waiting = [await client.step(seq_id) for seq_id in (2, 3)]
    body = {"model_id": client.run, "seq_id": 4, "adam_params": ADAM}
    answer = await client.http.post("/api/v1/optim_step", json=body)
    assert (answer.status_code, answer.json()["code"]) == (429, "quota_exceeded")
    assert int(answer.headers["retry-after"]) >= 1
    # What is there already is no more.
    assert await client.step(3) == waiting[1]


async def test_polls_hold_no_connection(front: Front, client: Client) -> None:
    waiting = await client.step(9)
    body = {"request_id": waiting["request_id"]}
    polls = [
        asyncio.create_task(client.http.post("/api/v1/retrieve_future", json=body))
        for _ in range(64)
    ]
    fast = await client.result(await client.step(1))
    assert fast["metrics"]["step:max"] == 1.0
    front.app.database.expose()

    async def used() -> float:
        samples = [one for metric in CONNECTIONS.collect() for one in metric.samples]
        return sum(one.value for one in samples if one.labels["state"] == "used")

    await until(used, holds=lambda number: number == 0)
    assert not any(one.done() for one in polls)
    await client.post("unload_model", {"model_id": client.run})
    answers = await asyncio.gather(*polls)
    assert {one.json().get("category") for one in answers} == {"user"}


async def test_what_comes_while_a_gap_is_passed_is_late(front: Front, client: Client) -> None:
    await client.step(5)
    url = front.app.database.url.replace("+psycopg", "")
    with psycopg.connect(url) as sweeper, psycopg.connect(url, autocommit=True) as watcher:
        # As the sweeper passes a gap, stopped in the middle of it.
        sweeper.execute("SELECT FROM tuning_runs WHERE id = %s FOR UPDATE", (client.run,))
        coming = asyncio.create_task(client.step(1))

        async def waits() -> bool:
            blocked = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            row = watcher.execute(blocked + " AND query LIKE '%tuning_operations%'").fetchone()
            return row is not None and row[0] > 0

        await until(waits)
        sweeper.execute("UPDATE tuning_runs SET next_seq = 6 WHERE id = %s", (client.run,))
        sweeper.execute("UPDATE tuning_operations SET state = 'done' WHERE seq_id = 5")
        sweeper.commit()
        found = await client.result(await coming)
    assert "had gone on without it" in found["error"]
    # It has changed nothing.
    assert (await client.result(await client.step(6)))["metrics"]["step:max"] == 1.0


async def test_more_sequences_than_one_operation_takes_are_refused(client: Client) -> None:
    message = loss(client, 1, 1, 2)
    message.data.extend([message.data[0]] * 1024)
    found = await client.result((await send(client, message.SerializeToString())).json())
    assert (found["category"], found["error"]) == ("user", "data must have 1 to 1024 items.")
