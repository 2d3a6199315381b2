"""The how-to on vLLM, as printed, with vLLM's build for CPUs, until two organizations share it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import psutil
import pytest
from tests.integration.engine_kinds.page import (
    ask,
    cached,
    fine_tuned,
    serving,
    started_by_page,
    used,
)
from tests.support.environments.vllm_env import turn, vllm_python
from tests.support.factories.tenants import Tenants, make_tenants, new_key
from tests.support.processes.windlass import NO_SPARE, Windlass, make_single, running
from tests.support.waiting import wait_until

from windlass.client import Windlass as Client

# It may wait for its turn, and then starts for minutes on a machine that is busy.
pytestmark = [pytest.mark.torch, pytest.mark.vllm, pytest.mark.timeout(1800)]
PAGE = "how-to/serve-with-vllm.md"
START_SECONDS = 600.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Iterator[Windlass]:
    settings: dict[str, Any] = {
        "inference": {"hold_seconds": START_SECONDS},
        "agent": {
            **NO_SPARE["agent"],
            "vllm_python": str(vllm_python()),
            "vllm_flags": ["--seed=7"],
        },
    }
    root = tmp_path_factory.mktemp("vllm")
    with turn(), running(make_single(root / "data", settings)) as made:
        with Client(made.url, made.owner_key) as client:
            client.models.import_folder("my-base", tiny_model, for_everyone=True)
        yield made


@pytest.fixture(scope="module")
def tenants(server: Windlass) -> Tenants:
    return make_tenants(server)


@pytest.fixture(scope="module")
def engine(server: Windlass, tmp_path_factory: pytest.TempPathFactory) -> psutil.Process:
    """The engine that the commands of the page start."""
    folder = tmp_path_factory.mktemp("shell")
    return started_by_page(PAGE, server, folder, program="vllm.entrypoints", seconds=START_SECONDS)


def test_the_page_is_true_and_the_last_arguments_hold(
    server: Windlass, engine: psutil.Process
) -> None:
    found = serving(server)
    chosen = {name: value for name, value in found["arguments"].items() if value is not None}
    assert (found["engine"], chosen) == (
        "vllm", {"context_length": 384, "dtype": "float32", "eager": True}
    )  # fmt: skip
    with server.http() as http:
        (listed,) = http.get("/v1/engines").raise_for_status().json()["data"]
    assert (listed["engine"], listed["phase"]) == ("vllm", "running")
    assert {"--max-model-len=384", "--seed=7"} <= set(engine.cmdline())
    client = server.openai(max_retries=0)
    assert ask(client).usage.completion_tokens == 4
    with pytest.raises(openai.BadRequestError, match="384"):
        ask(client, max_tokens=385)


@pytest.mark.usefixtures("engine")
def test_no_organization_learns_what_another_has_asked(tenants: Tenants) -> None:
    member, stranger = tenants.member.openai(), tenants.strange_member.openai()
    assert cached(ask(member)) == 0
    assert cached(ask(tenants.sibling.openai())) >= 128, "of the same organization"
    assert cached(ask(stranger)) == 0
    assert cached(ask(stranger)) >= 128
    for name, value in (("cache_salt", "x"), ("priority", -1), ("kv_transfer_params", {})):
        with pytest.raises(openai.BadRequestError, match=name):
            ask(stranger, extra_body={name: value})


@pytest.mark.usefixtures("engine")
def test_its_own_parameters_are_taken_and_other_tasks_refused(server: Windlass) -> None:
    client = server.openai(max_retries=0)
    choice = {"structured_outputs": {"choice": ["north", "south"]}}
    answer = ask(client, max_tokens=12, extra_body=choice)
    assert answer.choices[0].message.content in ("north", "south")
    with pytest.raises(openai.NotFoundError, match="/v1/embeddings"):
        client.embeddings.create(model="my-base", input="x")
    with pytest.raises(openai.BadRequestError, match="no_such"):
        ask(client, extra_body={"no_such": 1})


def metrics_of(engine: psutil.Process) -> str:
    (socket,) = [word[6:] for word in engine.cmdline() if word.startswith("--uds=")]
    with httpx.Client(transport=httpx.HTTPTransport(uds=socket), base_url="http://engine") as http:
        return http.get("/metrics").text


def counted(engine: psutil.Process) -> tuple[int, int]:
    """Tokens read and written by the engine's own counters."""
    metrics = metrics_of(engine)
    read, written = (
        re.search(rf"^vllm:{name}_tokens_total{{.*}} ([\d.e+]+)$", metrics, re.MULTILINE)
        for name in ("prompt", "generation")
    )
    assert read
    assert written
    return int(float(read[1])), int(float(written[1]))


def test_keys_and_values_take_what_was_estimated(server: Windlass, engine: psutil.Process) -> None:
    with server.http() as http:
        model = http.get("/v1/models/my-base").raise_for_status().json()
    found = re.search(r"^vllm:cache_config_info{(.*)} 1", metrics_of(engine), re.MULTILINE)
    assert found
    said = dict(re.findall(r'(\w+)="(.*?)"', found[1]))
    tokens = int(said["num_gpu_blocks"]) * int(said["block_size"])
    # In float32, and in the gibibyte that an engine without a GPU gets.
    estimated = tokens * model["windlass"]["footprint"]["kv_bytes"] * 2
    assert 0.99 * 2**30 < estimated <= 2**30


def test_usage_is_what_the_engine_counts(tenants: Tenants, engine: psutil.Process) -> None:
    key = new_key(tenants.project_owner, "project_member", tenants.project_owner.project_id)
    client, fixed, before = key.openai(), {"ignore_eos": True}, counted(engine)
    assert ask(client, max_tokens=5, extra_body=fixed).usage.completion_tokens == 5
    chunks = list(ask(client, max_tokens=5, stream=True, extra_body=fixed))
    assert all(chunk.usage is None for chunk in chunks)
    options = {"include_usage": True}
    *_, last = ask(client, max_tokens=5, stream=True, stream_options=options, extra_body=fixed)
    assert last.usage.completion_tokens == 5
    wait_until(lambda: used(tenants.owner, key)[0] == 3)
    _, read, written = used(tenants.owner, key)
    now = counted(engine)
    assert (read, written) == (now[0] - before[0], now[1] - before[1])
    assert written == 15
    # A client that leaves pays for what the engine had told by then, which may be a step ahead.
    stream = ask(client, max_tokens=250, stream=True, extra_body=fixed)
    chunks = iter(stream)
    # The first has a role and no token.
    assert all(next(chunks) for _ in range(2))
    stream.close()
    wait_until(lambda: used(tenants.owner, key)[0] == 4)
    _, read, written = used(tenants.owner, key)
    now = counted(engine)
    assert read == now[0] - before[0]
    assert 16 <= written <= now[1] - before[1] < 15 + 250


@pytest.mark.usefixtures("engine")
def test_what_a_job_made_answers_without_a_restart(
    server: Windlass, engine: psutil.Process, tmp_path: Path
) -> None:
    client = server.openai(max_retries=0)
    tuned = fine_tuned(client, tmp_path)
    answer = ask(client, model=tuned)
    assert answer.model == tuned
    assert engine.is_running()
