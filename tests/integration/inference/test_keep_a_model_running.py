"""The how-to on engines that run unasked, as printed, with real engines of which one is killed."""

import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import openai
import psutil
import pytest
from tests.support.factories.toy_model import make_model
from tests.support.processes import pages
from tests.support.processes.shell import PROGRAM, Shell
from tests.support.processes.windlass import NO_SPARE, Windlass, make_single, running
from tests.support.waiting import wait_until

from windlass.client import Windlass as Client

pytestmark = pytest.mark.torch
PAGE = "how-to/keep-a-model-running.md"
NOT_READY = "how-to/why-is-my-model-not-ready.md"
START_SECONDS = 240.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Windlass]:
    root = tmp_path_factory.mktemp("served")
    # What was asked for lately stays so long.
    settings = {**NO_SPARE, "inference": {"idle_seconds": 5}}
    with running(make_single(root / "data", settings)) as made:
        with Client(made.url, made.owner_key) as client:
            client.models.import_folder("my-base", make_model(root / "model"))
        yield made


def engines(server: Windlass) -> list[psutil.Process]:
    """The engines on this machine that serve with the server's data."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or [""]
        ours = str(server.data) in " ".join(command) and "windlass_agent.engines.builtin" in command
        if ours and Path(command[0]).name.startswith("python"):
            found.append(process)
    return found


def state(server: Windlass) -> dict[str, Any]:
    with server.http() as http:
        found: dict[str, Any] = http.get("/v1/servings/my-base").raise_for_status().json()
        return found


def test_the_page_on_replicas_is_true_and_a_killed_one_is_not_missed(
    server: Windlass, tmp_path: Path
) -> None:
    shell = Shell(server, tmp_path)
    environment = shell.environment | shell.owner
    environment |= {"PATH": f"{Path(PROGRAM[0]).parent}:{environment['PATH']}", "MODEL": "my-base"}
    with server.http() as http:
        (cluster,) = http.get("/v1/clusters").raise_for_status().json()["data"]
    environment["CLUSTER"] = cluster["name"]
    shown = pages.run(pages.script(PAGE, until="Serve it on demand again"), environment, tmp_path)
    assert {"READY", "my-base"} <= set(shown.split())
    with server.http() as http:
        (brought,) = http.get("/v1/prefetches").raise_for_status().json()["data"]
    assert (brought["state"], brought["cluster_id"]) == ("ready", cluster["id"])
    wait_until(lambda: state(server)["ready_replicas"] == 2, seconds=START_SECONDS)
    assert (state(server)["clusters"], state(server)["idle_seconds"]) == ({cluster["id"]: 1}, 600)
    first, second = engines(server)
    client = server.openai(max_retries=0)

    def say(_: int) -> str:
        answer = client.completions.create(model="my-base", prompt="the quick", max_tokens=2)
        return str(answer.model)

    with ThreadPoolExecutor(4) as pool:
        answers = pool.map(say, range(40))
        assert next(answers) == "my-base"
        os.kill(first.pid, signal.SIGKILL)
        assert set(answers) == {"my-base"}
    wait_until(lambda: len({one.pid for one in engines(server)} - {first.pid}) == 2)
    wait_until(lambda: state(server)["ready_replicas"] == 2, seconds=START_SECONDS)
    assert second.is_running()
    pages.run(pages.script(PAGE, after="Serve it on demand again"), environment, tmp_path)
    wait_until(lambda: not engines(server))


def test_the_page_on_sleep_is_true_and_a_request_wakes_the_engine(
    server: Windlass, tmp_path: Path
) -> None:
    shell = Shell(server, tmp_path)
    environment = shell.environment | shell.owner
    environment |= {"PATH": f"{Path(PROGRAM[0]).parent}:{environment['PATH']}", "MODEL": "my-base"}
    # For less than ten minutes.
    pages.run(
        pages.script("how-to/let-idle-engines-sleep.md", {"600": "30"}), environment, tmp_path
    )
    client = server.openai(max_retries=0)

    def say() -> tuple[str, int, int]:
        answer = client.completions.create(
            model="my-base", prompt="the quick", max_tokens=6, temperature=0
        )
        assert answer.usage
        return answer.choices[0].text, answer.usage.prompt_tokens, answer.usage.completion_tokens

    def shown() -> dict[str, Any]:
        with server.http() as http:
            (engine,) = http.get("/v1/engines").raise_for_status().json()["data"]
        return {name: engine[name] for name in ("phase", "message")}

    def counted() -> tuple[int, int, int]:
        with server.http() as http:
            asked = {"start_time": int(time.time()) - 86_400, "limit": 31}
            days = http.get("/v1/usage", params=asked).raise_for_status().json()["data"]
        rows = [row for day in days for row in day["results"]]
        names = ("num_model_requests", "input_tokens", "output_tokens")
        requests, given, made = (sum(row[name] for row in rows) for name in names)
        return requests, given, made

    before = say()
    wait_until(lambda: shown()["phase"] == "sleeping", seconds=START_SECONDS)
    assert shown()["message"] == state(server)["message"] == "sleeping until somebody asks"
    assert state(server)["ready_replicas"] == 0
    (process,) = engines(server)
    requests, given, made = counted()
    # Held, and answered by the engine that slept.
    assert say() == before
    assert [one.pid for one in engines(server)] == [process.pid]
    assert shown() == {"phase": "running", "message": ""}
    wait_until(lambda: counted() == (requests + 1, given + before[1], made + before[2]))
    with server.http() as http:
        refused = http.put("/v1/servings/my-base", json={"engine": "sglang", "sleep_seconds": 60})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "sleep_seconds")
        http.delete("/v1/servings/my-base").raise_for_status()
    wait_until(lambda: not engines(server))


def test_what_activate_does_not_name_stays(server: Windlass, tmp_path: Path) -> None:
    shell = Shell(server, tmp_path)

    def activate(*words: str) -> dict[str, Any]:
        shell.data("models", "activate", "my-base", "--replicas", "0", *words)
        found = state(server)
        chosen = {name: value for name, value in found["arguments"].items() if value is not None}
        return {"engine": found["engine"], "gpus": found["gpus"], **chosen}

    first = {"engine": "vllm", "gpus": 2, "context_length": 128, "kv_cache_bytes": 2**31}
    words = ("--engine", "vllm", "--gpus", "2")
    assert activate(*words, "--set", "context_length=128", "--set", "kv_cache_bytes=2Gi") == first
    assert activate() == first
    changed = first | {"context_length": 256}
    del changed["kv_cache_bytes"]
    assert activate("--set", "context_length=256", "--set", "kv_cache_bytes=") == changed
    activate("--nodes", "2")
    assert activate() == changed
    assert (state(server)["nodes"], state(server)["gpus"]) == (2, 2)
    assert activate("--nodes", "0") == changed
    activate("--accelerator", "NVIDIA-L4", "--memory", "8Gi", "--priority", "high")
    assert activate() == changed
    needs = {"accelerator": "NVIDIA-L4", "memory_bytes": 8 * 2**30, "priority": "high"}
    assert {name: state(server)[name] for name in needs} == needs
    listed = shell.run("models", "serving", environment={"COLUMNS": "300"}).stdout
    assert "accelerator=NVIDIA-L4" in listed, listed
    activate("--accelerator", "", "--memory", "0", "--priority", "normal")
    assert [state(server)[name] for name in needs] == ["", 0, "normal"]
    done = shell.run("models", "activate", "my-base", "--cluster", "nowhere")
    assert (done.returncode != 0, "nowhere" in done.stderr) == (True, True)
    with server.http() as http:
        wrong = http.put("/v1/servings/my-base", json={"clusters": {"a\0b": 1}})
        assert wrong.status_code == 400, wrong.text
        absent = http.put("/v1/servings/my-base", json={"clusters": {"clu_nowhere": 1}})
        assert (absent.status_code, absent.json()["error"]["code"]) == (404, "not_found")
        alone = http.put("/v1/servings/my-base", json={"engine": "builtin", "nodes": 2})
        assert (alone.status_code, alone.json()["error"]["param"]) == (400, "nodes")
        adapter = {"min_replicas": 0, "engine": "builtin", "arguments": {"eager": True}}
        refused = http.put("/v1/servings/my-base", json=adapter)
        assert refused.status_code == 400
        assert refused.json()["error"]["param"] == "arguments.eager"
        http.delete("/v1/servings/my-base").raise_for_status()


def test_the_commands_of_the_page_on_what_is_not_ready_say_its_words(
    server: Windlass, tmp_path: Path
) -> None:
    """Those of Kubernetes are left out: there is none here."""
    (printed,) = pages.blocks(NOT_READY, "console")
    commands = [line.partition(" #")[0] for line in printed.splitlines()]
    ours = "\n".join(one for one in commands if one.startswith("windlass "))
    assert ours.count("\n") == 1
    shell = Shell(server, tmp_path)
    environment = shell.environment | shell.owner
    environment |= {"PATH": f"{Path(PROGRAM[0]).parent}:{environment['PATH']}"}
    says = "No live cluster has the engine 'vllm'."
    assert f"| `{says}` |" in (pages.DOCS / NOT_READY).read_text()
    with server.http() as http:
        body = {"min_replicas": 1, "engine": "vllm"}
        http.put("/v1/servings/my-base", json=body).raise_for_status()
        # In a moment the reason follows what is said at first.
        wait_until(lambda: says in state(server)["message"], "why none runs", every=1.0)
        assert says in pages.run(ours, environment, tmp_path)
        http.delete("/v1/servings/my-base").raise_for_status()


def test_other_arguments_cut_no_stream(server: Windlass) -> None:
    with server.http() as http:

        def put(context: int) -> None:
            body = {"min_replicas": 1, "arguments": {"context_length": context}}
            http.put("/v1/servings/my-base", json=body).raise_for_status()

        put(512)
        wait_until(lambda: state(server)["ready_replicas"] == 1, seconds=START_SECONDS)
        (before,) = engines(server)
        client = server.openai(max_retries=0)
        asked: dict[str, Any] = {
            "model": "my-base", "prompt": "the quick", "max_tokens": 400, "stream": True,
            "stream_options": {"include_usage": True}, "extra_body": {"ignore_eos": True},
        }  # fmt: skip
        stream = iter(client.completions.create(**asked))
        next(stream)
        put(256)
        *_, last = stream
        assert last.usage.completion_tokens == 400

        def replaced() -> bool:
            client.completions.create(model="my-base", prompt="the quick", max_tokens=2)
            return before.pid not in [one.pid for one in engines(server)]

        # By a new one that came up beside it: no request fails or waits for a start.
        wait_until(replaced, seconds=START_SECONDS)
        (after,) = engines(server)
        with pytest.raises(openai.APIError, match="256"):
            list(client.completions.create(**asked))
        assert after.is_running()
        http.delete("/v1/servings/my-base").raise_for_status()
        wait_until(lambda: not engines(server))
