"""An Ollama that somebody runs, adopted in OpenAI's dialect; it serves our own GGUF export."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from tests.integration.engine_kinds.page import used
from tests.support.environments.ollama.program import running_ollama
from tests.support.factories.tenants import Tenants, make_tenants
from tests.support.processes.windlass import NO_SPARE, Windlass, make_single, running
from tests.support.waiting import wait_until

# To build it takes half an hour, once.
pytestmark = [pytest.mark.torch, pytest.mark.long, pytest.mark.timeout(9000)]
SAYS: Any = [{"role": "user", "content": "Where is the harbour?"}]


@pytest.fixture(scope="module")
def ollama(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Iterator[str]:
    with running_ollama(tiny_model, "their-model", tmp_path_factory.mktemp("ollama")) as url:
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
            model = {"id": "our-model", "model": "their-model:latest", "global": True}
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
