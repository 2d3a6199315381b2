"""The how-to on llama.cpp, as printed, with its real server, until two organizations share it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import psutil
import pytest
from tests.integration.engine_kinds.page import (
    LONG,
    ask,
    cached,
    engines,
    fine_tuned,
    serving,
    started_by_page,
    used,
)
from tests.support.environments.llama_server import llama_server
from tests.support.factories.tenants import Tenants, make_tenants, new_key
from tests.support.processes.shell import Shell
from tests.support.processes.windlass import NO_SPARE, Windlass, make_single, running
from tests.support.waiting import wait_until
from transformers import AutoTokenizer

from windlass.client import Windlass as Client

# The server may have to be built first.
pytestmark = [pytest.mark.torch, pytest.mark.timeout(1800)]
PAGE = "how-to/serve-with-llama-cpp.md"
START_SECONDS = 120.0
WEATHER: Any = {"type": "function", "function": {"name": "weather"}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Iterator[Windlass]:
    settings: dict[str, Any] = {
        "inference": {"hold_seconds": START_SECONDS},
        "agent": {**NO_SPARE["agent"], "llama_server": str(llama_server())},
    }
    root = tmp_path_factory.mktemp("llamacpp")
    with running(make_single(root / "data", settings)) as made:
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
    return started_by_page(PAGE, server, folder, program="engines.llamacpp", seconds=START_SECONDS)


def test_the_page_is_true(server: Windlass, engine: psutil.Process, tiny_model: Path) -> None:
    found = serving(server)
    chosen = {name: value for name, value in found["arguments"].items() if value is not None}
    assert (found["engine"], chosen) == (
        "llamacpp", {"context_length": 512, "max_concurrency": 2}
    )  # fmt: skip
    assert "--max-model-len=512" in engine.cmdline()
    client = server.openai(max_retries=0)
    usage = ask(client).usage
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": LONG}], add_generation_prompt=True, return_dict=True
    )
    assert (usage.prompt_tokens, usage.completion_tokens) == (len(prompt["input_ids"]), 4)
    with pytest.raises(openai.BadRequestError, match="512"):
        ask(client, max_tokens=513)


@pytest.mark.usefixtures("engine")
def test_no_organization_learns_what_another_has_asked(tenants: Tenants) -> None:
    member, stranger = tenants.member.openai(), tenants.strange_member.openai()
    assert cached(ask(member)) == 0
    assert cached(ask(tenants.sibling.openai())) >= 128, "of the same organization"
    assert cached(ask(stranger)) == 0
    assert cached(ask(stranger)) >= 128
    steering: dict[str, Any] = {
        "cache_salt": "x", "id_slot": 0, "cache_prompt": True, "lora": [], "grammar": "root ::= x",
    }  # fmt: skip
    for name, value in steering.items():
        with pytest.raises(openai.BadRequestError, match=name):
            ask(stranger, extra_body={name: value})


@pytest.mark.usefixtures("engine")
def test_forms_and_log_probabilities_come_as_openai_s(server: Windlass) -> None:
    client = server.openai(max_retries=0)
    with pytest.raises(openai.BadRequestError, match="does not render tools"):
        ask(client, tools=[WEATHER])
    form: Any = {
        "type": "json_schema",
        "json_schema": {"name": "n", "schema": {"type": "string", "enum": ["north", "south"]}},
    }
    formed = ask(client, max_tokens=40, response_format=form)
    assert formed.choices[0].message.content in ('"north"', '"south"')
    likely = ask(client, logprobs=True, top_logprobs=2).choices[0].logprobs.content
    assert [len(token.top_logprobs) for token in likely] == [2] * 4
    for unknown in ({"n": 2}, {"extra_body": {"no_such": 1}}):
        with pytest.raises(openai.BadRequestError):
            ask(client, **unknown)
    with pytest.raises(openai.NotFoundError, match="/v1/embeddings"):
        client.embeddings.create(model="my-base", input="x")


def told(engine: psutil.Process, *names: str) -> list[int]:
    """Values of the server's own metrics, which its keeper shows nobody."""
    (scratch,) = [word[10:] for word in engine.cmdline() if word.startswith("--scratch=")]
    (socket,) = Path(scratch).glob("*.sock")
    with httpx.Client(transport=httpx.HTTPTransport(uds=str(socket)), base_url="http://e") as http:
        lines = http.get("/metrics").text.splitlines()
    values = dict(line.split(" ") for line in lines if not line.startswith("#"))
    return [int(float(values[f"llamacpp:{name}"])) for name in names]


def counted(engine: psutil.Process) -> list[int]:
    """Tokens read and written of the requests that went to their end."""
    return told(engine, "prompt_tokens_total", "tokens_predicted_total")


def test_usage_is_what_the_server_counts(tenants: Tenants, engine: psutil.Process) -> None:
    key = new_key(tenants.project_owner, "project_member", tenants.project_owner.project_id)
    client, fixed, before = key.openai(), {"ignore_eos": True}, counted(engine)
    whole = ask(client, max_tokens=5, extra_body=fixed)
    assert whole.usage.completion_tokens == 5
    chunks = list(ask(client, max_tokens=5, stream=True, extra_body=fixed))
    assert all(chunk.usage is None for chunk in chunks)
    options = {"include_usage": True}
    *_, last = ask(client, max_tokens=5, stream=True, stream_options=options, extra_body=fixed)
    assert last.usage.completion_tokens == 5
    wait_until(lambda: used(tenants.owner, key)[0] == 3)
    _, read, written = used(tenants.owner, key)
    now = counted(engine)
    # The server counts what it read, not what it knew.
    known = cached(last) * 2 + cached(whole)
    assert (read - known, written) == (now[0] - before[0], now[1] - before[1])
    # A client that leaves pays for what the server had told by then; the server counts none of it.
    stream = ask(client, max_tokens=300, stream=True, extra_body=fixed)
    next(iter(stream))
    stream.close()
    wait_until(lambda: used(tenants.owner, key)[0] == 4)
    _, _, paid = used(tenants.owner, key)
    assert 1 <= paid - written < 300
    wait_until(lambda: told(engine, "requests_processing") == [0])


def test_what_a_job_made_answers_while_a_stream_goes_on(
    server: Windlass, engine: psutil.Process, tmp_path: Path
) -> None:
    client = server.openai(max_retries=0)
    tuned = fine_tuned(client, tmp_path)
    fixed = {"ignore_eos": True}
    stream = ask(client, max_tokens=250, stream=True, temperature=0, extra_body=fixed)
    first = next(iter(stream))
    assert first.model == "my-base"
    answer = ask(client, model=tuned)
    assert answer.model == tuned
    *_, last = stream
    assert last.choices[0].finish_reason == "length"
    assert [one.pid for one in engines(server, "engines.llamacpp")] == [engine.pid]


@pytest.mark.long
def test_an_adapter_that_it_does_not_load_answers_as_its_merged_copy(
    server: Windlass, engine: psutil.Process, tmp_path: Path
) -> None:
    client = server.openai(max_retries=0)
    tuned = fine_tuned(client, tmp_path, config={"use_dora": True}, export=["merged"])
    answer = ask(client, model=tuned)
    assert answer.model == tuned
    own = Shell(server, tmp_path).data("engines", "list")
    assert "runs the adapter's merged copy: it is a DoRA adapter" in own
    assert len(engines(server, "engines.llamacpp")) == 2
    # The base's engine was not troubled with it.
    assert engine.is_running()
    (checkpoint,) = [one.id for one in client.models.list() if f"{tuned}:ckpt-step-" in one.id]
    with pytest.raises(openai.ConflictError, match=f"1 engine .*answers for {tuned}"):
        client.models.delete(f"{tuned}:merged")
    with pytest.raises(openai.InternalServerError, match=r"DoRA adapter.*--export merged"):
        ask(client, model=checkpoint)
