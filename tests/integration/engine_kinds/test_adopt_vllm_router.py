"""A stack of vLLM's own router and vLLM's build for CPUs, adopted in vLLM's dialect."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.integration.engine_kinds.page import LONG, cached, used
from tests.support.environments.vllm_router import running_router
from tests.support.factories.tenants import Tenants, make_tenants
from tests.support.processes.windlass import NO_SPARE, Windlass, make_single, running
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.torch,
    pytest.mark.vllm,
    pytest.mark.long,
    pytest.mark.timeout(1800),
]


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("router")
    with running_router(tiny_model, "their-model", folder) as url:
        yield url


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, router: str) -> Iterator[Windlass]:
    settings: dict[str, Any] = {"inference": {"hold_seconds": 60}, **NO_SPARE}
    with running(make_single(tmp_path_factory.mktemp("platform") / "data", settings)) as made:
        with made.http() as http:
            cluster = http.get("/v1/clusters").raise_for_status().json()["data"][0]["id"]
            stack = {"cluster_id": cluster, "url": router, "dialect": "vllm"}
            http.put("/v1/stacks/router", json=stack).raise_for_status()
            model = {"id": "routed", "model": "their-model", "global": True}
            http.post("/v1/stacks/router/models", json=model).raise_for_status()
        yield made


@pytest.fixture(scope="module")
def tenants(server: Windlass) -> Tenants:
    return make_tenants(server)


def ask(client: Any, **options: Any) -> Any:
    asked = {"model": "routed", "messages": [{"role": "user", "content": LONG}], "max_tokens": 4}
    return client.chat.completions.create(**(asked | options))


def test_no_organization_learns_what_another_has_asked(tenants: Tenants) -> None:
    member, stranger = tenants.member.openai(), tenants.strange_member.openai()
    assert cached(ask(member)) == 0
    assert cached(ask(tenants.sibling.openai())) >= 128, "of the same organization"
    assert cached(ask(stranger)) == 0


def test_usage_is_vllms_own_and_of_a_cut_stream_an_estimate(tenants: Tenants) -> None:
    owner = tenants.project_owner
    client = owner.openai()
    counted = ask(client).usage
    expected = (1, counted.prompt_tokens, counted.completion_tokens)
    wait_until(lambda: used(tenants.owner, owner) == expected, seconds=20)
    options = {"include_usage": True}
    *chunks, last = ask(client, stream=True, stream_options=options)
    assert {chunk.model for chunk in chunks} == {"routed"}
    assert (last.usage.prompt_tokens, last.usage.completion_tokens) == (
        counted.prompt_tokens, counted.completion_tokens,
    )  # fmt: skip
    stream = ask(client, stream=True, max_tokens=200, extra_body={"ignore_eos": True})
    for _, _ in zip(range(5), stream, strict=False):
        pass
    stream.close()
    wait_until(lambda: used(tenants.owner, owner)[0] == 3, seconds=20)
    _, read, written = used(tenants.owner, owner)
    # The router takes the usage out of vLLM's chunks, but for the last one.
    assert 2 * counted.prompt_tokens < read < 4 * counted.prompt_tokens
    assert 2 * counted.completion_tokens < written <= 2 * counted.completion_tokens + 200


def test_vllms_own_fields_are_taken_and_what_steers_it_is_not(server: Windlass) -> None:
    client = server.openai(max_retries=0)
    ids = ask(client, extra_body={"allowed_token_ids": [65], "ignore_eos": True})
    assert ids.usage.completion_tokens == 4
    with server.http() as http:
        body = {"model": "routed", "messages": [{"role": "user", "content": "a"}], "priority": -5}
        answer = http.post("/v1/chat/completions", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "priority")
