"""The how-to on SGLang, as printed, before its wheel without a model, until two organizations share
it: SGLang itself needs a GPU.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import psutil
import pytest
from tests.integration.engine_kinds.page import ask, cached, serving, started_by_page, used
from tests.support.environments.sglang.env import sglang_python
from tests.support.factories.tenants import Tenants, make_tenants, new_key
from tests.support.processes.windlass import NO_SPARE, Windlass, make_single, running
from tests.support.waiting import wait_until

from windlass.client import Windlass as Client

pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]
PAGE = "how-to/serve-with-sglang.md"
START_SECONDS = 120.0
# Of the prompt that `ask` sends, by the stand-in's counting: its words and the role.
PROMPT_TOKENS = 61


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Iterator[Windlass]:
    settings: dict[str, Any] = {
        "inference": {"hold_seconds": START_SECONDS},
        "agent": {**NO_SPARE["agent"], "sglang_python": str(sglang_python())},
    }
    root = tmp_path_factory.mktemp("sglang")
    with running(make_single(root / "data", settings)) as made:
        with Client(made.url, made.owner_key) as client:
            client.models.import_folder("my-base", tiny_model, for_everyone=True)
        yield made


@pytest.fixture(scope="module")
def tenants(server: Windlass) -> Tenants:
    return make_tenants(server)


@pytest.fixture(scope="module", autouse=True)
def engine(server: Windlass, tmp_path_factory: pytest.TempPathFactory) -> psutil.Process:
    """The keeper of the engine that the commands of the page start."""
    folder = tmp_path_factory.mktemp("shell")
    program = "windlass_agent.engines.sglang"
    return started_by_page(PAGE, server, folder, program=program, seconds=START_SECONDS)


def test_the_page_is_true(server: Windlass, engine: psutil.Process) -> None:
    found = serving(server)
    chosen = {name: value for name, value in found["arguments"].items() if value is not None}
    assert (found["engine"], chosen) == ("sglang", {"context_length": 512, "max_concurrency": 8})
    assert {"--context-length=512", "--max-running-requests=8"} <= set(engine.cmdline())
    client = server.openai(max_retries=0)
    answer = ask(client)
    assert answer.model == "my-base"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (PROMPT_TOKENS, 4)
    with pytest.raises(openai.BadRequestError, match="512") as refused:
        ask(client, max_tokens=513)
    assert refused.value.code == "context_length_exceeded"
    for unknown in ({"seed": 1}, {"extra_body": {"lora_path": "x"}}):
        with pytest.raises(openai.BadRequestError):
            ask(client, **unknown)


def test_no_organization_learns_what_another_has_asked(tenants: Tenants) -> None:
    member, stranger = tenants.member.openai(), tenants.strange_member.openai()
    assert cached(ask(member)) == 0
    assert cached(ask(tenants.sibling.openai())) == PROMPT_TOKENS - 1, "of the same organization"
    assert cached(ask(stranger)) == 0
    for name in ("cache_salt", "extra_key", "priority"):
        with pytest.raises(openai.BadRequestError, match=name):
            ask(stranger, extra_body={name: "x"})


def test_usage_is_what_the_engine_says_cut_or_not(tenants: Tenants) -> None:
    key = new_key(tenants.project_owner, "project_member", tenants.project_owner.project_id)
    client = key.openai()
    assert ask(client, max_tokens=5).usage.completion_tokens == 5
    chunks = list(ask(client, max_tokens=5, stream=True))
    assert {chunk.model for chunk in chunks} == {"my-base"}
    assert all(chunk.usage is None for chunk in chunks)
    options = {"include_usage": True}
    *_, last = ask(client, max_tokens=5, stream=True, stream_options=options)
    assert last.usage.completion_tokens == 5
    wait_until(lambda: used(tenants.owner, key) == (3, 3 * PROMPT_TOKENS, 15))
    stream = ask(client, max_tokens=400, stream=True)
    chunks = iter(stream)
    assert all(next(chunks) for _ in range(3))
    stream.close()
    wait_until(lambda: used(tenants.owner, key)[0] == 4)
    _, read, written = used(tenants.owner, key)
    assert read == 4 * PROMPT_TOKENS
    assert 15 < written < 15 + 400
