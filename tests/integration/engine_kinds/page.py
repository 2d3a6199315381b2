"""What the pages about serving with one engine or another have in common."""

import json
import time
from pathlib import Path
from typing import Any

import psutil
from tests.support.clients.jobs import ended
from tests.support.factories.tenants import Caller
from tests.support.processes import pages
from tests.support.processes.shell import PROGRAM, Shell
from tests.support.processes.windlass import Windlass
from tests.support.waiting import wait_until

from windlass.demo.questions import split

TRAINING_SECONDS = 240
# Longer than one block of vLLM's cache, which has 128 tokens on a CPU.
LONG = " ".join(f"word{number}" for number in range(60))


def started_by_page(
    page: str, server: Windlass, folder: Path, *, program: str, seconds: float
) -> psutil.Process:
    """The engine that the commands of a page start, by a part of its command."""
    shell = Shell(server, folder)
    environment = shell.environment | shell.owner
    environment |= {"PATH": f"{Path(PROGRAM[0]).parent}:{environment['PATH']}", "MODEL": "my-base"}
    shown = pages.run(pages.script(page), environment, folder)
    assert "context_length=512" in shown
    wait_until(lambda: serving(server)["ready_replicas"] == 1, seconds=seconds)
    (found,) = engines(server, program)
    return found


def engines(server: Windlass, program: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or [""]
        ours = str(server.data) in " ".join(command) and program in " ".join(command)
        if ours and Path(command[0]).name.startswith("python"):
            found.append(process)
    return found


def serving(server: Windlass) -> dict[str, Any]:
    with server.http() as http:
        found: dict[str, Any] = http.get("/v1/servings/my-base").raise_for_status().json()
        return found


def ask(client: Any, **options: Any) -> Any:
    asked = {"model": "my-base", "messages": [{"role": "user", "content": LONG}], "max_tokens": 4}
    return client.chat.completions.create(**(asked | options))


def cached(answer: Any) -> int:
    details = answer.usage.prompt_tokens_details
    return int((details and details.cached_tokens) or 0)


def used(owner: Caller, by: Caller) -> tuple[int, int, int]:
    """Requests, and tokens read and written, that a key is charged for."""
    query: dict[str, Any] = {
        "start_time": int(time.time()) - 86400,
        "limit": 31,
        "api_key_ids": by.key_id,
    }
    with owner.http() as http:
        buckets = http.get("/v1/usage", params=query).raise_for_status().json()["data"]
    rows = [row for bucket in buckets for row in bucket["results"]]
    names = ("num_model_requests", "input_tokens", "output_tokens")
    requests, read, written = (sum(row[name] for row in rows) for name in names)
    return requests, read, written


def fine_tuned(client: Any, folder: Path, **windlass: Any) -> str:
    """The name of a model that a short job has made, with our own fields of a job."""
    rows = [json.dumps(question.to_row()) for question in split()[0][:16]]
    (folder / "chat.jsonl").write_text("\n".join(rows) + "\n")
    with (folder / "chat.jsonl").open("rb") as file:
        uploaded = client.files.create(file=file, purpose="fine-tune")
    job = client.fine_tuning.jobs.create(
        model="my-base",
        training_file=uploaded.id,
        hyperparameters={"n_epochs": 1},
        extra_body={"windlass": windlass} if windlass else {},
    )
    job = ended(client, job, TRAINING_SECONDS)
    assert job.status == "succeeded", job.error
    return str(job.fine_tuned_model)
