"""The how-to on training a served model, as printed, with vLLM's build for CPUs and the plugin."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.engine_training.environment import trained_python
from tests.support.environments.vllm_env import turn
from tests.support.factories.tenants import Tenants, make_tenants
from tests.support.processes import pages
from tests.support.processes.shell import PROGRAM, Shell
from tests.support.processes.windlass import NO_SPARE, Windlass, make_single, running
from tests.support.waiting import wait_until
from transformers import AutoTokenizer

from windlass.client import Windlass as Client

# It may wait for its turn, and then starts for minutes on a machine that is busy.
pytestmark = [pytest.mark.torch, pytest.mark.vllm, pytest.mark.timeout(1800)]
PAGE = "how-to/train-a-served-model.md"
MODEL = "my-model"
ANSWER, CONTEXT = [40, 41, 42, 43], [5, 6, 7, 100, 8]
# Steps of the page, of samples and of datums, and the tokens of both.
STEPS = 120 + 2
TOKENS = 120 * len(CONTEXT + ANSWER) + 2 * len(CONTEXT + ANSWER[:-1])
SECONDS = 900.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Windlass]:
    root = tmp_path_factory.mktemp("trained")
    settings: dict[str, Any] = {
        "inference": {"hold_seconds": SECONDS},
        "agent": {**NO_SPARE["agent"], "vllm_python": str(trained_python(root / "vllm"))},
    }
    with turn(), running(make_single(root / "data", settings)) as made:
        yield made


@pytest.fixture(scope="module")
def tenants(server: Windlass, tiny_model: Path) -> Tenants:
    made = make_tenants(server)
    with Client(server.url, made.member.key) as client:
        client.models.import_folder(MODEL, tiny_model)
    return made


@pytest.fixture(scope="module")
def taught(server: Windlass, tenants: Tenants, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the page's commands print, of an engine that has learned and was saved."""
    # The commands wait for as long as a machine at rest takes to start an engine.
    body: dict[str, Any] = {"engine": "vllm", "training": "hogwild"}
    body |= {"arguments": {"dtype": "float32", "context_length": 384}}
    with tenants.member.http() as http:
        path = f"/v1/servings/{MODEL}"
        http.put(path, json=body).raise_for_status()
        wait_until(
            lambda: http.get(path).raise_for_status().json()["ready_replicas"], seconds=SECONDS
        )
    folder = tmp_path_factory.mktemp("shell")
    shell = Shell(server, folder)
    environment = shell.environment | shell.owner
    environment |= {
        "PATH": f"{Path(PROGRAM[0]).parent}:{environment['PATH']}",
        "MODEL": MODEL,
        "WINDLASS_API_KEY": tenants.member.key,
    }
    return pages.run(pages.script(PAGE), environment, folder)


def listed(tenants: Tenants) -> list[dict[str, Any]]:
    with tenants.member.http() as http:
        found: list[dict[str, Any]] = http.get("/v1/engines/trainings").json()["data"]
        return found


def asked(tenants: Tenants, path: str, body: Any = None) -> httpx.Response:
    with tenants.member.http() as http:
        return http.post(path, json=body, timeout=60)


def lesson(**words: Any) -> dict[str, Any]:
    sample = {"context_ids": CONTEXT, "continuation_ids": ANSWER}
    return {"samples": [sample], "learning_rate": 0.0, "epochs": 2} | words


def answered(tenants: Tenants, model: str) -> tuple[str, list[float]]:
    """The likeliest end of the lesson, and its log-probabilities."""
    body = {"model": model, "prompt": CONTEXT, "max_tokens": len(ANSWER), "temperature": 0}
    with tenants.member.http() as http:
        answer = http.post("/v1/completions", json=body | {"logprobs": 1}, timeout=SECONDS)
    assert answer.is_success, answer.text
    choice = answer.json()["choices"][0]
    return choice["text"], choice["logprobs"]["token_logprobs"]


def ended(tenants: Tenants, training: str) -> dict[str, Any]:
    def there() -> dict[str, Any] | None:
        (found,) = [one for one in listed(tenants) if one["id"] == training]
        return found if found["state"] not in ("queued", "running") else None

    return wait_until(there, seconds=SECONDS)


def test_the_page_is_true_and_another_engine_serves_what_was_learned(
    tenants: Tenants, taught: str, tiny_model: Path
) -> None:
    checkpoint, policy, training = listed(tenants)
    assert (training["state"], training["steps"], training["mode"]) == ("succeeded", 120, "hogwild")
    assert training["tokens"] == 120 * len(CONTEXT + ANSWER)
    assert training["loss"] < 0.5
    assert (policy["state"], policy["steps"]) == ("succeeded", 2)
    assert training["tokens"] + policy["tokens"] == TOKENS
    assert checkpoint["checkpoint_model"] in taught
    assert 0 < checkpoint["uploaded_bytes"] < checkpoint["weight_bytes"]
    text, live = answered(tenants, MODEL)
    assert text == AutoTokenizer.from_pretrained(tiny_model).decode(ANSWER)
    assert sum(live) > -2
    # It is served on demand, by the installation's engine, which is the built-in one.
    again, logprobs = answered(tenants, checkpoint["checkpoint_model"])
    assert again == text
    assert logprobs == pytest.approx(live, abs=1e-3)


@pytest.mark.usefixtures("taught")
def test_answers_say_which_steps_they_saw(tenants: Tenants) -> None:
    body = {"model": MODEL, "prompt": CONTEXT, "max_tokens": 2}
    with tenants.member.http() as http:
        whole = http.post("/v1/completions", json=body)
        assert whole.headers["x-windlass-steps"] == f"{STEPS}-{STEPS}"
        with http.stream("POST", "/v1/completions", json=body | {"stream": True}) as answer:
            assert answer.headers["x-windlass-steps"] == f"{STEPS}-"
            lines = [line for line in answer.iter_lines() if line]
    assert lines[-2:] == ["data: [DONE]", f": x-windlass-steps {STEPS}-{STEPS}"]


@pytest.mark.usefixtures("taught")
def test_tokens_are_counted_once(tenants: Tenants) -> None:
    def counted() -> int:
        with tenants.member.http() as http:
            answer = http.get("/v1/usage", params={"start_time": int(time.time()) - 86_400})
        results = [one for day in answer.json()["data"] for one in day["results"]]
        return sum(one["input_tokens"] for one in results if one["kind"] == "training")

    wait_until(lambda: counted() >= TOKENS, seconds=30)
    trained = sum(one["tokens"] for one in listed(tenants))
    assert counted() == trained


@pytest.mark.usefixtures("taught")
def test_steps_are_told_and_told_again_from_where_one_was(tenants: Tenants) -> None:
    training = listed(tenants)[-1]["id"]
    with tenants.member.http() as http:
        lines = http.get(f"/v1/engines/trainings/{training}/steps?after=100").text.splitlines()
    events = [json.loads(one[6:]) for one in lines if one.startswith("data: {")]
    assert events[-1]["state"] == "succeeded"
    assert all(100 < one["step"] <= 120 for one in events[:-1])
    assert lines[-2] == "data: [DONE]" or "data: [DONE]" in lines


@pytest.mark.usefixtures("taught")
def test_a_key_names_one_request_and_wrong_ids_are_refused(tenants: Tenants) -> None:
    path = f"/v1/engines/{MODEL}/train"
    first = asked(tenants, path, lesson(idempotency_key="once")).raise_for_status().json()
    again = asked(tenants, path, lesson(idempotency_key="once")).raise_for_status().json()
    assert again["id"] == first["id"]
    other = asked(tenants, path, lesson(idempotency_key="once", epochs=3))
    assert (other.status_code, other.json()["error"]["code"]) == (409, "body_differs")
    assert ended(tenants, first["id"])["state"] == "succeeded"
    beyond = {"context_ids": [10**6], "continuation_ids": [1]}
    wrong = asked(tenants, path, lesson(samples=[beyond])).raise_for_status().json()
    found = ended(tenants, wrong["id"])
    assert (found["state"], found["reason"], found["steps"]) == ("failed", "invalid_request", 0)
    assert "samples[0].context_ids" in found["message"]


@pytest.mark.usefixtures("taught")
def test_a_guard_puts_the_last_good_version_back(tenants: Tenants) -> None:
    before = answered(tenants, MODEL)
    guard = {"samples": lesson()["samples"], "every": 2, "max_kl": 0.01}
    body = lesson(learning_rate=0.1, epochs=20, optimizer="adamw", guard=guard)
    begun = asked(tenants, f"/v1/engines/{MODEL}/train", body).raise_for_status().json()["id"]
    found = ended(tenants, begun)
    assert (found["state"], found["reason"], found["kept_steps"]) == ("failed", "guard_tripped", 0)
    assert answered(tenants, MODEL) == before
    within = asked(tenants, f"/v1/engines/{MODEL}/train", lesson(epochs=4, guard=guard)).json()[
        "id"
    ]
    assert ended(tenants, within)["state"] == "succeeded"
    with tenants.member.http() as http:
        lines = http.get(f"/v1/engines/trainings/{within}/steps").text.splitlines()
    steps = [json.loads(one[6:]) for one in lines if one.startswith("data: {")][:-1]
    assert [one["step"] for one in steps if one["kl"] is not None] == [2, 4]


@pytest.mark.usefixtures("taught")
def test_a_training_is_cancelled(tenants: Tenants) -> None:
    begun = asked(tenants, f"/v1/engines/{MODEL}/train", lesson(epochs=50_000)).json()["id"]
    wait_until(lambda: next(one for one in listed(tenants) if one["id"] == begun)["steps"] > 0)
    asked(tenants, f"/v1/engines/trainings/{begun}/cancel").raise_for_status()
    assert ended(tenants, begun)["state"] == "cancelled"


@pytest.mark.usefixtures("taught")
def test_the_page_s_loop_trains_and_samples_the_engine_itself(
    server: Windlass, tenants: Tenants
) -> None:
    (loop,) = pages.blocks(PAGE, "python")
    environment = os.environ | {
        "TINKER_BASE_URL": server.url,
        "TINKER_API_KEY": f"tml-{tenants.member.key}",
        "TINKER_TELEMETRY": "0",
    }
    done = subprocess.run(
        [sys.executable, "-c", loop],
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    *losses, sampled = done.stdout.splitlines()
    assert len(losses) == 30
    assert float(losses[-1]) < 0.5 < float(losses[0])
    assert sampled == "[50]"
    # The engine answers everybody with what it has learned.
    body = {"model": MODEL, "prompt": [5, 6, 7, 103, 8], "max_tokens": 1, "temperature": 0}
    body |= {"return_token_ids": True}
    answer = asked(tenants, "/v1/completions", body).raise_for_status().json()
    assert answer["choices"][0]["token_ids"] == [50]
    assert answer["choices"][0]["finish_reason"] == "length"


@pytest.mark.usefixtures("taught")
def test_another_project_finds_nothing_and_nobody_reaches_the_plugin(tenants: Tenants) -> None:
    training = listed(tenants)[0]["id"]
    for caller in (tenants.sibling, tenants.strange_member):
        with caller.http() as http:
            for method, path in (
                ("POST", f"/v1/engines/{MODEL}/checkpoint"),
                ("GET", f"/v1/engines/trainings/{training}"),
                ("GET", f"/v1/engines/trainings/{training}/steps"),
                ("POST", f"/v1/engines/trainings/{training}/cancel"),
            ):
                body: Any = {} if "checkpoint" in path else None
                assert http.request(method, path, json=body).status_code == 404, path
            same = lesson(idempotency_key="lesson 1")
            assert http.post(f"/v1/engines/{MODEL}/train", json=same).status_code == 404
            assert http.get("/v1/engines/trainings").json()["data"] == []
    for path in ("/train", "/v1/train", "/checkpoint", "/v1/train/status"):
        assert asked(tenants, path, lesson(model=MODEL)).status_code == 404
    viewer = tenants.others[-1]
    with viewer.http() as http:
        assert http.post(f"/v1/engines/{MODEL}/train", json=lesson()).status_code == 403


@pytest.mark.usefixtures("taught")
def test_replicas_adapters_and_engines_for_everyone_are_refused(tenants: Tenants) -> None:
    body = {"engine": "vllm", "training": "hogwild"}
    with tenants.member.http() as http:
        for words in (
            {"max_replicas": 2},
            {"engine": "builtin"},
            {"gpus": 2},
            {"sleep_seconds": 60},
        ):
            answer = http.put(f"/v1/servings/{MODEL}", json=body | words)
            assert answer.status_code == 400, words
            assert answer.json()["error"]["param"] in ("training", *words)


@pytest.mark.long
def test_a_server_that_was_stopped_goes_on_with_what_was_learned(
    server: Windlass, tenants: Tenants, taught: str
) -> None:
    begun = asked(tenants, f"/v1/engines/{MODEL}/train", lesson(learning_rate=0.001)).json()["id"]
    assert ended(tenants, begun)["state"] == "succeeded"
    before = answered(tenants, MODEL)
    server.terminate("all", seconds=SECONDS)
    server.start()
    server.wait_ready()
    assert answered(tenants, MODEL) == before
    again = asked(tenants, f"/v1/engines/{MODEL}/train", lesson()).json()["id"]
    assert ended(tenants, again)["state"] == "succeeded"


@pytest.mark.usefixtures("taught")
def test_good_answers_of_traffic_train_it(tenants: Tenants) -> None:
    """What consented requests were answered is a lesson, by the engine's own token ids."""
    known = {one["id"] for one in listed(tenants)}
    with tenants.owner.http() as http:
        path = f"/v1/organization/projects/{tenants.member.project_id}/data_retention"
        http.post(path, json={"retention_type": "none"}).raise_for_status()
    with tenants.member.http() as http:
        grader = {"type": "string_check", "name": "said", "operation": "ne", "reference": ""}
        body = {
            "key_ids": [tenants.member.key_id],
            "grader": grader | {"input": "{{sample.output_text}}"},
            "least_score": 1,
            "batch": 2,
            "optimizer": "sgd",
        }
        http.put(f"/v1/engines/{MODEL}/feed", json=body).raise_for_status()
    tokens = 0
    for text in ("What is it?", "And then?"):
        raw = tenants.member.openai().chat.completions.with_raw_response.create(
            model=MODEL, messages=[{"role": "user", "content": text}], max_tokens=4, store=True
        )
        assert raw.headers["x-windlass-kept"] == "1"
        tokens += raw.parse().usage.total_tokens

    def begun() -> str:
        return next((one["id"] for one in listed(tenants) if one["id"] not in known), "")

    found = ended(tenants, wait_until(begun, seconds=SECONDS))
    assert (found["state"], found["steps"], found["tokens"]) == ("succeeded", 1, tokens)
    assert tenants.member.openai().models.retrieve(MODEL).id == MODEL


@pytest.mark.long
@pytest.mark.usefixtures("taught")
def test_a_shadow_is_put_in_place_by_so_many_steps_at_once(tenants: Tenants) -> None:
    """By another engine, since the mode is its own; answers see no step between."""
    with tenants.member.http() as http:
        path = f"/v1/servings/{MODEL}"
        serving = http.get(path).raise_for_status().json()
        body = {name: serving[name] for name in ("engine", "arguments")} | {"training": "shadow"}
        http.put(path, json=body).raise_for_status()
        question = {"model": MODEL, "prompt": CONTEXT, "max_tokens": 2}
        words = lesson(learning_rate=0.003, epochs=20, place_steps=10)
        begun = asked(tenants, f"/v1/engines/{MODEL}/train", words).raise_for_status().json()["id"]
        seen: set[int] = set()

        def there() -> bool:
            answer = http.post("/v1/completions", json=question, timeout=SECONDS)
            said = answer.headers.get("x-windlass-steps", "") if answer.is_success else ""
            seen.update(int(one) for one in said.split("-") if one)
            (found,) = [one for one in listed(tenants) if one["id"] == begun]
            return found["state"] not in ("queued", "running")

        wait_until(there, seconds=SECONDS)
    found = ended(tenants, begun)
    assert (found["state"], found["mode"], found["steps"]) == ("succeeded", "shadow", 20), found
    assert len({one % 10 for one in seen}) == 1


def test_a_deactivated_engine_saves_first_what_it_has_learned(
    tenants: Tenants, taught: str
) -> None:
    rest = asked(tenants, f"/v1/engines/{MODEL}/train", lesson(learning_rate=0.001)).json()["id"]
    assert ended(tenants, rest)["state"] == "succeeded"
    text, before = answered(tenants, MODEL)
    with tenants.member.http() as http:
        http.delete(f"/v1/servings/{MODEL}").raise_for_status()

    def saved() -> str:
        newest = listed(tenants)[0]
        return str(newest["checkpoint_model"]) if newest["is_checkpoint"] else ""

    name = wait_until(saved, seconds=SECONDS)
    assert ":auto:" in name
    again, logprobs = answered(tenants, name)
    assert again == text
    assert logprobs == pytest.approx(before, abs=1e-3)
