"""A gateway's requests at the agent's end of the tunnel, where a picker chooses among replicas."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.support.agents.replica_stage import (
    HOSTS,
    ReplicaStage,
    ask,
    check_choices,
    replica_stage,
    said,
)
from tests.support.environments.certificates import self_signed
from tests.support.fakes.picker import FakePicker, fake_picker, header, metadata, refusal
from tests.support.processes.windlass import free_port
from tests.support.waiting import until

from windlass.gateway.inference.engines.connection import EngineBroken
from windlass_agent.executors.kubernetes.engine_settings import PickerSettings
from windlass_agent.executors.kubernetes.engines.replicas import ServingReplica
from windlass_agent.tunnel.picking import picker as picker_module
from windlass_agent.tunnel.picking.chooser import BODY_BYTES

Reader = asyncio.StreamReader
Writer = asyncio.StreamWriter


@dataclass
class Site:
    """Three replicas, of which the gateway has chosen the first, and a picker."""

    picker: FakePicker
    stage: ReplicaStage


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with fake_picker() as picker, replica_stage(picker.address) as stage:
        yield Site(picker, stage)


async def test_the_fake_one_does_what_the_real_one_does(site: Site) -> None:
    async def prefer(name: str) -> None:
        site.picker.names(f"{HOSTS[name]}:8080")

    await check_choices(site.stage, prefer)


async def test_the_replica_that_it_names_answers_and_it_hears_of_the_end(site: Site) -> None:
    connection = await site.stage.open()
    site.picker.names("127.0.0.3:8080")
    assert await ask(connection) == {"by": "eng-2"}
    (heard,) = site.picker.calls
    assert heard.headers[":path"] == "/v1/completions"
    assert heard.headers["x-request-id"] == "req-1"
    assert heard.json == {"model": "toy", "prompt": "the quick"}
    assert sorted(heard.hint) == [f"{host}:8080" for host in sorted(HOSTS.values())]
    await until(lambda: heard.state == "ended")
    assert (heard.later, heard.status) == (["response_headers", "response_body"], "200")
    # On the same connection another request goes elsewhere, and one to the gateway's own choice.
    site.picker.answers = lambda _: [metadata("127.0.0.9:1, 127.0.0.4:8080")]
    assert await ask(connection) == {"by": "eng-3"}
    site.picker.names("127.0.0.2:8080")
    assert await ask(connection) == {"by": "eng-1"}
    assert connection.reusable
    assert site.stage.counted() == {"moved": 2, "kept": 1}


@pytest.mark.parametrize(
    "endpoints",
    [
        "10.9.8.7:8080",
        "127.0.0.1:8080",
        "eng-2:8080",
        "127.0.0.3",
        ":8080",
        "x" * 70_000,
        "[::1]:1",
    ],
    ids=["a pod of others", "itself", "a name", "no port", "no host", "long", "IPv6"],
)
async def test_what_may_not_answer_is_not_asked(site: Site, endpoints: str) -> None:
    connection = await site.stage.open()
    site.picker.names(endpoints)
    assert await ask(connection) == {"by": "eng-1"}
    assert site.stage.counted() == {"unfit": 1}
    await until(lambda: site.picker.calls[0].state == "cut")


async def test_a_picker_that_refuses_breaks_or_says_nothing_costs_no_request(site: Site) -> None:
    connection = await site.stage.open()
    site.picker.answers = lambda _: [refusal(429)]
    assert await ask(connection) == {"by": "eng-1"}
    site.picker.answers = lambda _: [header("127.0.0.3:1" + "x" * 300_000)]
    assert await ask(connection) == {"by": "eng-1"}
    # Without end, and never an endpoint.
    site.picker.answers = lambda _: [header("")] * 500
    assert await ask(connection) == {"by": "eng-1"}
    assert site.stage.counted() == {"refused": 1, "failed": 2}


async def test_one_that_hangs_at_the_end_is_forgotten(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(picker_module, "END_SECONDS", 0.1)
    site.picker.names("127.0.0.3:8080")
    site.picker.lingers = True
    assert await ask(await site.stage.open()) == {"by": "eng-2"}
    (picker,) = site.stage.chooser._pickers.values()
    await until(lambda: not picker._telling)


async def test_one_that_hangs_is_left_alone_for_a_while(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(picker_module, "REST_SECONDS", 3600)
    impatient = PickerSettings(
        namespace="team-a", model="toy", address=site.picker.address, timeout_ms=20
    )
    site.stage.chooser._settings["team-a", "toy"] = impatient
    site.picker.hangs = True
    connection = await site.stage.open()
    for _ in range(picker_module.FAILURES + 2):
        assert await ask(connection) == {"by": "eng-1"}
    assert site.stage.counted() == {"timeout": picker_module.FAILURES, "resting": 2}


async def test_a_picker_that_is_away_costs_no_request(site: Site) -> None:
    gone = PickerSettings(namespace="team-a", model="toy", address=f"127.0.0.1:{free_port()}")
    site.stage.chooser._settings["team-a", "toy"] = gone
    connection = await site.stage.open()
    assert await ask(connection) == {"by": "eng-1"}
    assert sum(site.stage.counted().values()) == 1


async def test_one_that_nothing_certifies_is_told_nothing(site: Site, tmp_path: Path) -> None:
    certificate, _ = self_signed(tmp_path)
    async with replica_stage(site.picker.address, ca=certificate.read_text()) as stage:
        assert await ask(await stage.open()) == {"by": "eng-1"}
        assert stage.counted() == {"failed": 1}
    assert not site.picker.calls


async def test_too_many_questions_at_once_are_not_asked(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(picker_module, "MAX_ASKED_BYTES", 0)
    assert await ask(await site.stage.open()) == {"by": "eng-1"}
    assert site.stage.counted() == {"busy": 1}


async def test_a_replica_that_has_left_gives_way_to_the_gateway_s(site: Site) -> None:
    connection = await site.stage.open()
    site.stage.away.add("eng-2")
    site.picker.names("127.0.0.3:8080")
    assert await ask(connection) == {"by": "eng-1"}
    assert site.stage.counted() == {"unreachable": 1}
    await until(lambda: site.picker.calls[0].state == "cut")
    # It is no candidate for a while, so that no other request waits for it.
    assert await ask(connection) == {"by": "eng-1"}
    assert site.picker.calls[1].hint == ["127.0.0.2:8080", "127.0.0.4:8080"]
    assert site.stage.counted() == {"unfit": 1}


async def test_adapters_and_long_bodies_go_where_they_can_be_answered(site: Site) -> None:
    one, two, three = site.stage.replicas
    site.stage.replicas[:] = [
        replace(one, adapters={"ft:a": "mv-2"}),
        replace(two, adapters={"ft:a": "mv-1"}),
        replace(three, adapters={"ft:a": "mv-2"}),
    ]
    connection = await site.stage.open()
    # Of the version before, which it names all the same.
    site.picker.names("127.0.0.3:8080")
    assert await ask(connection, "ft:a") == {"by": "eng-1"}
    assert site.picker.calls[0].hint == ["127.0.0.2:8080", "127.0.0.4:8080"]
    # Who has it not at all, and nobody but the gateway's choice, are not asked about.
    assert await ask(connection, "ft:b") == {"by": "eng-1"}
    site.stage.replicas[2] = three
    assert await ask(connection, "ft:a") == {"by": "eng-1"}
    assert site.stage.counted() == {"unfit": 1}
    long = "x" * (BODY_BYTES + 300_000)
    assert await ask(connection, prompt=long) == {"by": "eng-1"}
    assert json.loads(site.stage.bodies["eng-1"][-1])["prompt"] == long
    assert len(site.picker.calls) == 1
    await connection.exchange(said().replace(b'{"model": "toy"', b'["model", "toy"'))
    assert (connection.status, site.stage.counted()) == (500, {"unread": 2})


async def test_no_salt_leaves_the_agent_and_engines_get_what_was_sent(site: Site) -> None:
    site.picker.names("127.0.0.3:8080")
    connection = await site.stage.open()
    for salt in ("secret", "secret", "other"):
        assert await ask(connection, cache_salt=salt) == {"by": "eng-2"}
    shown = [call.json["cache_salt"] for call in site.picker.calls]
    assert shown[0] == shown[1] != shown[2]
    assert not any(b"secret" in call.body for call in site.picker.calls)
    assert json.loads(site.stage.bodies["eng-2"][0])["cache_salt"] == "secret"


async def test_a_client_that_leaves_ends_it_at_the_replica_and_at_the_picker(site: Site) -> None:
    site.picker.names("127.0.0.3:8080")
    connection = await site.stage.open()
    await connection.exchange(said(stream=True))
    assert await connection.readany() == b'{"by":'
    (heard,) = site.picker.calls
    await until(lambda: heard.later == ["response_headers"])
    assert heard.state == "open"
    connection.close()
    await until(lambda: site.stage.cut == ["eng-2"] and heard.state == "cut")
    # One that stays hears all of it.
    connection = await site.stage.open()
    await connection.exchange(said(stream=True))
    assert await connection.readany() == b'{"by":'
    site.stage.goes_on.set()
    assert await connection.read() == b'"eng-2"}'
    assert connection.reusable


async def test_without_a_picker_or_a_choice_nobody_is_asked(site: Site) -> None:
    del site.stage.replicas[1:]
    assert await ask(await site.stage.open()) == {"by": "eng-1"}
    site.stage.chooser._settings.clear()
    assert await ask(await site.stage.open()) == {"by": "eng-1"}
    assert not site.picker.calls
    assert site.stage.counted() == {}


def raw_replica(*answers: bytes) -> Callable[[Reader, Writer], Awaitable[None]]:
    """A replica that says something else to each request, and then ends."""
    said = iter(answers)

    async def serve(reader: Reader, writer: Writer) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(next(said))
            await writer.drain()
        writer.close()

    return serve


OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n"


@pytest.mark.parametrize(
    "answer",
    [b"", b"HTTP/1.1 200 OK\r\ncont", OK + b"{", b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 101 X\r\n\r\n"],
    ids=["nothing", "half a head", "half a body", "no HTTP", "another protocol"],
)
async def test_a_replica_that_breaks_cuts_the_connection_and_its_pick(
    site: Site, answer: bytes
) -> None:
    async with await asyncio.start_server(raw_replica(answer), "127.0.0.5", site.stage.port):
        site.stage.replicas.append(ServingReplica("eng-5", "team-a", "toy", "127.0.0.5"))
        site.picker.names("127.0.0.5:1")
        connection = await site.stage.open()
        with pytest.raises(EngineBroken):
            await ask(connection)
    await until(lambda: site.picker.calls[0].state == "cut")


async def test_one_that_answers_before_it_has_read_all_is_heard(site: Site) -> None:
    early = OK.replace(b"200 OK", b"413 Much") + b"{}"
    async with await asyncio.start_server(raw_replica(early), "127.0.0.5", site.stage.port):
        site.stage.replicas.insert(0, ServingReplica("eng-5", "team-a", "toy", "127.0.0.5"))
        connection = await site.stage.open("eng-5")
        await connection.exchange(said(prompt="x" * 4 * BODY_BYTES))
        assert (connection.status, await connection.read()) == (413, b"{}")


async def test_an_answer_that_ends_its_connection_ends_the_gateway_s(site: Site) -> None:
    last = OK.replace(b"content", b"connection: close\r\ncontent") + b"{}"
    async with await asyncio.start_server(raw_replica(last), "127.0.0.5", site.stage.port):
        site.stage.replicas.append(ServingReplica("eng-5", "team-a", "toy", "127.0.0.5"))
        site.picker.names("127.0.0.5:1")
        connection = await site.stage.open()
        assert await ask(connection) == {}
        await site.stage.serving
        assert not connection.reusable
    await until(lambda: site.picker.calls[0].state == "ended")
