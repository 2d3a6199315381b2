"""The how-to on serving stacks of others, as printed; the stack is another Windlass, with keys."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.integration.engine_kinds.page import used
from tests.support.factories.encoders import make_reranker
from tests.support.factories.tenants import Tenants, make_tenants
from tests.support.factories.toy_model import make_classifier
from tests.support.folders import files_with
from tests.support.processes import pages
from tests.support.processes.shell import PROGRAM, Shell
from tests.support.processes.windlass import NO_SPARE, Windlass, make_single, running
from tests.support.waiting import wait_until

from windlass.client import Windlass as Client

pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]
PAGE = "how-to/adopt-a-serving-stack.md"
SAYS: Any = [{"role": "user", "content": "Where is the harbour?"}]
MODEL, THEIRS = "our-model", "their-model"


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Iterator[Windlass]:
    """Somebody else's installation, of which one model and one key are known."""
    settings: dict[str, Any] = {"inference": {"hold_seconds": 150}, **NO_SPARE}
    made = make_single(tmp_path_factory.mktemp("stack") / "data", settings)
    with running(made, divisible=False):
        with Client(made.url, made.owner_key) as client:
            client.models.import_folder(THEIRS, tiny_model)
        yield made


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Windlass]:
    settings: dict[str, Any] = {"inference": {"hold_seconds": 15}, **NO_SPARE}
    with running(make_single(tmp_path_factory.mktemp("platform") / "data", settings)) as made:
        yield made


@pytest.fixture(scope="module")
def tenants(server: Windlass) -> Tenants:
    return make_tenants(server)


@pytest.fixture(scope="module", autouse=True)
def adopted(server: Windlass, stack: Windlass, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The output of the page's commands."""
    folder = tmp_path_factory.mktemp("shell")
    shell = Shell(server, folder)
    environment = shell.environment | shell.owner
    environment |= {
        "PATH": f"{Path(PROGRAM[0]).parent}:{environment['PATH']}",
        "STACK_URL": f"{stack.url}/v1",
        "STACK_KEY": stack.owner_key,
        "STACK_MODEL": THEIRS,
    }
    return pages.run(pages.script(PAGE), environment, folder)


def put(server: Windlass, stack: Windlass, **changes: Any) -> dict[str, Any]:
    """Describes the stack as the page does, but for some changes."""
    with server.http() as http:
        cluster = http.get("/v1/clusters").raise_for_status().json()["data"][0]["id"]
        body = {"cluster_id": cluster, "url": stack.url} | changes
        answer = http.put("/v1/stacks/house", json=body)
        found: dict[str, Any] = answer.json()
        assert answer.is_success, found
        return found


def engine(server: Windlass) -> dict[str, Any] | None:
    with server.http() as http:
        found = http.get("/v1/engines").raise_for_status().json()["data"]
        return next((one for one in found if one["model"] == MODEL), None)


def said(server: Windlass) -> str:
    """What the way to the stack says of itself."""
    found = engine(server)
    return str(found["message"]) if found else ""


def chat(client: Any, **options: Any) -> Any:
    asked = {"model": MODEL, "messages": SAYS, "max_tokens": 8, "temperature": 0}
    return client.chat.completions.create(**(asked | options))


def test_the_page_is_true(adopted: str, server: Windlass, stack: Windlass) -> None:
    assert "house" in adopted
    assert MODEL in adopted
    assert stack.owner_key not in adopted
    theirs = chat(stack.openai(), model=THEIRS)
    ours = chat(server.openai(max_retries=0))
    assert ours.choices == theirs.choices
    assert (ours.model, ours.usage.total_tokens) == (MODEL, theirs.usage.total_tokens)
    found = engine(server)
    assert found is not None
    assert (found["engine"], found["phase"]) == ("adopted", "running")


def test_a_stream_is_the_stacks_own_with_our_name(server: Windlass) -> None:
    client = server.openai(max_retries=0)
    whole = chat(client)
    options = {"include_usage": True}
    chunks = list(chat(client, stream=True, stream_options=options))
    assert {chunk.model for chunk in chunks} == {MODEL}
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert said == whole.choices[0].message.content
    assert [chunk.usage for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].usage.total_tokens == whole.usage.total_tokens
    plain = list(chat(client, stream=True))
    assert not any(chunk.usage for chunk in plain)


def test_usage_counts_what_the_stack_counted_cut_or_not(server: Windlass, tenants: Tenants) -> None:
    shared = {"id": "everyones", "model": THEIRS, "global": True}
    with server.http() as http:
        http.post("/v1/stacks/house/models", json=shared).raise_for_status()
    member = tenants.member
    client = member.openai()
    counted = chat(client, model="everyones").usage
    expected = (1, counted.prompt_tokens, counted.completion_tokens)
    wait_until(lambda: used(tenants.owner, member) == expected, seconds=20)
    stream = chat(client, model="everyones", stream=True, max_tokens=400)
    for _, chunk in zip(range(3), stream, strict=False):
        assert chunk.choices
    stream.close()
    wait_until(lambda: used(tenants.owner, member)[0] == 2, seconds=20)
    _, read, written = used(tenants.owner, member)
    # Estimated: the last chunk, which has the stack's own numbers, was not awaited.
    assert read > counted.prompt_tokens
    assert counted.completion_tokens < written < counted.completion_tokens + 400


def test_a_reranker_of_the_stack_ranks_by_our_name(
    server: Windlass, stack: Windlass, tmp_path: Path
) -> None:
    with Client(stack.url, stack.owner_key) as client:
        client.models.import_folder("their-ranker", make_reranker(tmp_path / "ranker"))
    asked: dict[str, Any] = {"query": "harbour", "documents": ["the harbour", "a fox", "a dog"]}
    with stack.http() as http:
        answer = http.post("/v1/rerank", json={"model": "their-ranker", **asked}, timeout=180)
        theirs = answer.raise_for_status().json()
    with server.http() as http:
        cluster = http.get("/v1/clusters").json()["data"][0]["id"]
        body = {"cluster_id": cluster, "url": stack.url, "key": stack.owner_key, "rerank": True}
        shown = http.put("/v1/stacks/ranks", json=body).raise_for_status().json()
        assert (shown["rerank"], shown["score"]) == (True, False)
        model = {"id": "our-ranker", "model": "their-ranker"}
        http.post("/v1/stacks/ranks/models", json=model).raise_for_status()
        answer = http.post("/v1/rerank", json={"model": "our-ranker", **asked}, timeout=90)
        ours = answer.raise_for_status().json()
        scored = http.post("/v1/score", json={"model": "our-ranker", "input": "a"}, timeout=90)
    assert ours == theirs | {"id": ours["id"], "model": "our-ranker"}
    assert scored.status_code == 404, scored.text


def test_a_reward_model_of_the_stack_scores_by_our_name(
    server: Windlass, stack: Windlass, tmp_path: Path
) -> None:
    with Client(stack.url, stack.owner_key) as client:
        client.models.import_folder("their-judge", make_classifier(tmp_path / "judge"))
    with stack.http() as http:
        asked = {"model": "their-judge", "input": "the harbour"}
        theirs = http.post("/v1/score", json=asked, timeout=180).raise_for_status().json()
    with server.http() as http:
        cluster = http.get("/v1/clusters").json()["data"][0]["id"]
        body = {"cluster_id": cluster, "url": stack.url, "key": stack.owner_key, "score": True}
        http.put("/v1/stacks/judges", json=body).raise_for_status()
        model = {"id": "our-judge", "model": "their-judge"}
        http.post("/v1/stacks/judges/models", json=model).raise_for_status()
        answer = http.post("/v1/score", json=asked | {"model": "our-judge"}, timeout=90)
        ours = answer.raise_for_status().json()
    own = {name: ours[name] for name in ("id", "created")}
    assert ours == theirs | own | {"model": "our-judge"}


def test_only_platform_administrators_adopt(tenants: Tenants) -> None:
    for caller in (tenants.owner, tenants.member, tenants.stranger):
        with caller.http() as http:
            assert http.get("/v1/stacks").status_code == 403
            body = {"id": "mine", "model": THEIRS}
            assert http.post("/v1/stacks/house/models", json=body).status_code == 403
            described = {"cluster_id": "c", "url": "http://10.0.0.1"}
            assert http.put("/v1/stacks/house", json=described).status_code in (403, 404)
            assert http.delete("/v1/stacks/house").status_code == 403


def test_anothers_adopted_model_is_nobodys(tenants: Tenants) -> None:
    client = tenants.stranger.openai()
    with pytest.raises(openai.NotFoundError) as refused:
        chat(client)
    assert refused.value.code == "model_not_found"
    assert MODEL not in {model.id for model in client.models.list()}


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"extra_body": {"top_k": 5}}, "top_k"),
        ({"extra_body": {"cache_salt": "x"}}, "cache_salt"),
        ({"extra_body": {"chat_template_kwargs": {"a": 1}}}, "chat_template_kwargs"),
        ({"n": 2, "extra_body": {"min_tokens": 3}}, "min_tokens"),
    ],
)
def test_what_openai_does_not_have_is_refused(
    server: Windlass, options: dict[str, Any], param: str
) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        chat(server.openai(max_retries=0), **options)
    assert refused.value.param == param


def test_a_model_that_nobody_used_lately_is_judged_by_its_own_dialect(
    server: Windlass, stack: Windlass
) -> None:
    """The installation's own kind of engine would refuse the field, and so never begin."""
    with server.http() as http:
        cluster = http.get("/v1/clusters").json()["data"][0]["id"]
        body = {"cluster_id": cluster, "url": stack.url, "dialect": "vllm", "key": stack.owner_key}
        http.put("/v1/stacks/second", json=body).raise_for_status()
        http.post("/v1/stacks/second/models", json={"id": "cold", "model": THEIRS})
    with pytest.raises(openai.BadRequestError) as refused:
        chat(server.openai(max_retries=0), model="cold", extra_body={"min_p": 0.1})
    # By the stack, which is no vLLM.
    assert refused.value.param == "min_p"
    with server.http() as http:
        engines = http.get("/v1/engines").json()["data"]
    assert "adopted-vllm" in {one["engine"] for one in engines}


def test_a_key_goes_to_no_other_place_by_itself(server: Windlass) -> None:
    with server.http() as http:
        cluster = http.get("/v1/clusters").json()["data"][0]["id"]
        body = {"cluster_id": cluster, "url": "http://127.0.0.1:9"}
        answer = http.put("/v1/stacks/house", json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "key")


def test_a_refusal_of_the_stack_is_told_with_our_name(server: Windlass) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        chat(server.openai(max_retries=0), max_tokens=100_000)
    assert refused.value.code == "context_length_exceeded"
    assert THEIRS not in str(refused.value)


def test_what_needs_weights_or_engines_is_refused(server: Windlass, tmp_path: Path) -> None:
    client = server.openai(max_retries=0)
    rows = '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}'
    (tmp_path / "chat.jsonl").write_text(f"{rows}\n" * 12)
    with (tmp_path / "chat.jsonl").open("rb") as file:
        uploaded = client.files.create(file=file, purpose="fine-tune")
    with pytest.raises(openai.BadRequestError) as refused:
        client.fine_tuning.jobs.create(model=MODEL, training_file=uploaded.id)
    assert (refused.value.code, refused.value.param) == ("model_not_tunable", "model")
    with server.http() as http:
        answer = http.put(f"/v1/servings/{MODEL}", json={"min_replicas": 1})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "model")


def test_a_stack_that_models_use_stays(server: Windlass) -> None:
    with server.http() as http:
        answer = http.delete("/v1/stacks/house")
        assert answer.json()["error"]["code"] == "stack_in_use"
        again = http.post("/v1/stacks/house/models", json={"id": MODEL, "model": THEIRS})
        assert again.is_success
        other = http.post("/v1/stacks/house/models", json={"id": MODEL, "model": "another"})
        assert other.json()["error"]["code"] == "model_exists"
        absent = http.post("/v1/stacks/nowhere/models", json={"id": "x"})
        assert absent.json()["error"]["code"] == "stack_not_found"


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"url": "ftp://10.0.0.1"}, "url"),
        ({"url": "http://key@10.0.0.1"}, "url"),
        ({"url": "http://10.0.0.1/?a=b"}, "url"),
        ({"url": "http://[::1"}, "url"),
        ({"key": "two words"}, "key"),
        ({"ca": "no certificate"}, "ca"),
        ({"dialect": "french"}, "dialect"),
        ({"dialect": "vllm", "score": True}, "score"),
        ({"max_concurrency": -1}, "max_concurrency"),
    ],
)
def test_a_stack_that_is_none_is_refused(
    server: Windlass, stack: Windlass, changes: dict[str, Any], param: str
) -> None:
    with server.http() as http:
        cluster = http.get("/v1/clusters").json()["data"][0]["id"]
        body = {"cluster_id": cluster, "url": stack.url} | changes
        answer = http.put("/v1/stacks/other", json=body)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)
        body = {"cluster_id": "cluster-nowhere", "url": stack.url}
        absent = http.put("/v1/stacks/other", json=body)
        assert absent.status_code == 404


def test_the_key_is_kept_sealed_and_told_to_nobody(server: Windlass, stack: Windlass) -> None:
    found = put(server, stack)
    assert found["has_key"]
    assert "key" not in found
    assert "sealed_key" not in found
    assert chat(server.openai(max_retries=0)).choices
    assert not files_with(server.data, stack.owner_key.encode())


def test_a_stack_that_refuses_its_key_says_so_until_it_has_another(
    server: Windlass, stack: Windlass
) -> None:
    client = server.openai(max_retries=0)
    chat(client)
    stream = chat(client, stream=True, max_tokens=200)
    next(stream)
    put(server, stack, key="wrong")
    try:
        wait_until(lambda: "refuses its key" in said(server), seconds=30)
        # It ends where it began.
        assert list(stream)[-1].choices[0].finish_reason
        started = time.monotonic()
        with pytest.raises(openai.InternalServerError) as refused:
            chat(client)
        assert (refused.value.status_code, refused.value.code) == (503, "model_not_ready")
        assert int(refused.value.response.headers["retry-after"]) >= 1
        assert "waiting for the serving stack" in str(refused.value)
        assert "wrong" not in str(refused.value)
        assert time.monotonic() - started < 30
    finally:
        put(server, stack, key=stack.owner_key)
    assert chat(client.with_options(timeout=60)).choices


def test_a_stack_that_was_away_answers_again(server: Windlass, stack: Windlass) -> None:
    client = server.openai(max_retries=0)
    put(server, stack, url="http://127.0.0.1:9", key=stack.owner_key)
    try:
        wait_until(lambda: "does not answer" in said(server), seconds=30)
    finally:
        put(server, stack, key=stack.owner_key)
    assert chat(client.with_options(timeout=60)).choices
