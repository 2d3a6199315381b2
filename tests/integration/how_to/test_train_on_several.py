"""The how-to on several GPUs, where there is none: run by a whole server, as processes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.integration.how_to.test_training_methods import succeeded, write
from tests.support.processes import pages
from tests.support.processes.windlass import NO_SPARE, Windlass, make_single, running
from tests.support.waiting import wait_until

from windlass.client import Windlass as Client
from windlass.demo.questions import split

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]
PAGE = "how-to/train-on-several-gpus.md"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Iterator[Windlass]:
    single = make_single(tmp_path_factory.mktemp("several") / "data", NO_SPARE, cold=True)
    # The trainers are looked for below the one process.
    with running(single, divisible=False) as made:
        with Client(made.url, made.owner_key) as client:
            client.models.import_folder("my-base", tiny_model)
        yield made


def worlds(server: Windlass) -> set[str]:
    """The world sizes by which the server's processes train."""
    found = set()
    for process in psutil.Process(server.processes["all"].pid).children(recursive=True):
        try:
            found.add(process.environ().get("WORLD_SIZE", "1"))
        except psutil.Error:
            continue
    return found


def losses(client: Any, job: Any) -> list[float]:
    events = client.fine_tuning.jobs.list_events(job.id, limit=100).data
    told = [event.data for event in reversed(events) if event.type == "metrics"]
    return [one["train_loss"] for one in told if "train_loss" in one]


def test_the_page_on_several_is_true(server: Windlass, tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", [one.to_row() for one in split()[0][:24]])
    client = server.openai()
    file = client.files.create(file=tmp_path / "train.jsonl", purpose="fine-tune")
    on_gpus, printed = pages.blocks(PAGE, "python")
    assert '"gpus": 4' in on_gpus
    scope: dict[str, Any] = {"client": client, "file": file}
    exec(printed, scope)
    wait_until(lambda: "2" in worlds(server), "two processes")
    together = losses(client, succeeded(client, scope["job"]))
    exec(printed.replace('"processes": 2', '"processes": 1'), scope)
    alone = losses(client, succeeded(client, scope["job"]))
    assert len(alone) == 6
    assert together == pytest.approx(alone, rel=2e-3, abs=2e-3)
