"""An Ollama that somebody runs, adopted in OpenAI's dialect; it serves our own GGUF exports."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from tests.integration.engine_kinds.page import used
from tests.support.environments.llama_server import llama_server
from tests.support.environments.ollama.program import running_ollama
from tests.support.environments.postgres import reachable_folder
from tests.support.factories.tenants import Tenants, make_tenants
from tests.support.factories.toy_model import make_adapter
from tests.support.processes.windlass import NO_SPARE, Windlass, make_single, running
from tests.support.waiting import wait_until

from windlass_agent.engines.llamacpp.server import LlamaServer, ServerSettings
from windlass_agent.gguf import adapter_file, model_file

# To build it takes half an hour, once.
pytestmark = [pytest.mark.torch, pytest.mark.long, pytest.mark.timeout(9000)]
SAYS: Any = [{"role": "user", "content": "Where is the harbour?"}]
# The same as the models' template renders it.
PROMPT = "<|im_start|>user\nWhere is the harbour?<|im_end|>\n<|im_start|>assistant\n"


@dataclass(frozen=True)
class Exports:
    """A model and an adapter to it, as GGUF."""

    model: Path
    adapter: Path


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Exports:
    folder = tmp_path_factory.mktemp("exports")
    (model,) = model_file.write(tiny_model, folder / "model.gguf", name="their-model")
    made = make_adapter(tiny_model, folder / "adapter", seed=1)
    adapter_file.write(made, tiny_model, folder / "adapter.gguf")
    return Exports(model, folder / "adapter.gguf")


@pytest.fixture(scope="module")
def ollama(tmp_path_factory: pytest.TempPathFactory, exports: Exports) -> Iterator[str]:
    adapters = {"their-tuned": exports.adapter}
    folder = tmp_path_factory.mktemp("ollama")
    with running_ollama(exports.model, "their-model", folder, adapters) as url:
        yield url


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, ollama: str) -> Iterator[Windlass]:
    settings: dict[str, Any] = {"inference": {"hold_seconds": 60}, **NO_SPARE}
    with running(make_single(tmp_path_factory.mktemp("platform") / "data", settings)) as made:
        with made.http() as http:
            cluster = http.get("/v1/clusters").raise_for_status().json()["data"][0]["id"]
            stack = {"cluster_id": cluster, "url": ollama}
            http.put("/v1/stacks/ollama", json=stack).raise_for_status()
            # By the name that its list has, which ends with a tag.
            for name in ("model", "tuned"):
                model = {"id": f"our-{name}", "model": f"their-{name}:latest", "global": True}
                http.post("/v1/stacks/ollama/models", json=model).raise_for_status()
        yield made


@pytest.fixture(scope="module")
def tenants(server: Windlass) -> Tenants:
    return make_tenants(server)


def ask(client: Any, **options: Any) -> Any:
    asked = {"model": "our-model", "messages": SAYS, "max_tokens": 8, "temperature": 0}
    return client.chat.completions.create(**(asked | options))


def test_it_answers_by_our_name_with_its_own_usage(
    server: Windlass, ollama: str, tenants: Tenants
) -> None:
    asked = {
        "model": "their-model",
        "messages": SAYS,
        "stream": False,
        "options": {"temperature": 0, "num_predict": 8},
    }
    theirs = httpx.post(f"{ollama}/api/chat", json=asked, timeout=60).raise_for_status().json()
    member = tenants.member
    answer = ask(member.openai())
    assert answer.model == "our-model"
    assert answer.choices[0].message.content == theirs["message"]["content"]
    counted = (theirs["prompt_eval_count"], theirs["eval_count"])
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == counted
    wait_until(lambda: used(tenants.owner, member) == (1, *counted), seconds=20)
    *_, last = ask(server.openai(), stream=True, stream_options={"include_usage": True})
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == counted


async def said_by_llama_cpp(exports: Exports) -> list[str]:
    """What llama.cpp says without the adapter, and with it."""
    with reachable_folder() as folder:
        settings = ServerSettings(
            program=llama_server(), model=exports.model, folder=folder, context=512, cpus=1
        )
        server = await LlamaServer.start(settings, 1, [("tuned", exports.adapter)])
        try:
            said = []
            for scale in (0.0, 1.0):
                asked = {"prompt": PROMPT, "n_predict": 8, "temperature": 0}
                asked["lora"] = [{"id": 0, "scale": scale}]
                async with server.session.post("/completion", json=asked) as response:
                    said.append((await response.json())["content"])
            return said
        finally:
            await server.end()


def test_our_adapter_changes_it_as_it_changes_llama_cpp(server: Windlass, exports: Exports) -> None:
    plain, tuned = asyncio.run(said_by_llama_cpp(exports))
    assert plain != tuned
    client = server.openai()
    answers = [ask(client, model=f"our-{name}") for name in ("model", "tuned")]
    assert [one.choices[0].message.content for one in answers] == [plain, tuned]


def test_a_stream_that_is_cut_is_estimated(tenants: Tenants) -> None:
    member = tenants.sibling
    stream = ask(member.openai(), stream=True, max_tokens=200)
    for _, chunk in zip(range(2), stream, strict=False):
        assert chunk.choices
    stream.close()
    wait_until(lambda: used(tenants.owner, member)[0] == 1, seconds=20)
    _, read, written = used(tenants.owner, member)
    assert read > 0
    assert 0 < written < 200


def test_what_it_does_not_know_is_refused_before_it(server: Windlass) -> None:
    for options in ({"extra_body": {"keep_alive": 0}}, {"extra_body": {"top_k": 5}}):
        with pytest.raises(openai.BadRequestError):
            ask(server.openai(max_retries=0), **options)
