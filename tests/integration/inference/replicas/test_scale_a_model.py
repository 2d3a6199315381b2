"""The page on scaling, as printed: real load from openai-python on real engines."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from tests.integration.inference.test_keep_a_model_running import START_SECONDS, engines, state
from tests.support.factories.toy_model import make_model
from tests.support.processes import pages
from tests.support.processes.shell import PROGRAM, Shell
from tests.support.processes.windlass import NO_SPARE, Windlass, make_single, running
from tests.support.waiting import wait_until

from windlass.client import Windlass as Client

pytestmark = pytest.mark.torch
PAGE = "how-to/scale-a-model.md"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Windlass]:
    root = tmp_path_factory.mktemp("scaled")
    settings = {**NO_SPARE, "inference": {"idle_seconds": 12, "scale_down_seconds": 10}}
    with running(make_single(root / "data", settings)) as made:
        with Client(made.url, made.owner_key) as client:
            client.models.import_folder("my-base", make_model(root / "model"))
        yield made


@contextmanager
def asking(client: Any, number: int) -> Iterator[None]:
    """So many clients ask for streams until the end of the block; each of them came whole."""
    enough = Event()

    def ask(_: int) -> int:
        whole = 0
        while not enough.is_set():
            asked: dict[str, Any] = {
                "model": "my-base", "prompt": "the quick", "max_tokens": 300, "stream": True,
                "stream_options": {"include_usage": True}, "extra_body": {"ignore_eos": True},
            }  # fmt: skip
            *_, last = client.completions.create(**asked)
            assert last.usage.completion_tokens == 300
            whole += 1
        return whole

    with ThreadPoolExecutor(number) as pool:
        answers = [pool.submit(ask, one) for one in range(number)]
        try:
            yield
        finally:
            enough.set()
        assert all(answer.result() for answer in answers), "no stream was cut"


def test_load_takes_it_from_none_to_three_and_back(server: Windlass, tmp_path: Path) -> None:
    shell = Shell(server, tmp_path)
    environment = shell.environment | shell.owner
    environment |= {"PATH": f"{Path(PROGRAM[0]).parent}:{environment['PATH']}", "MODEL": "my-base"}
    shown = pages.run(pages.script(PAGE, until="By the clock"), environment, tmp_path)
    assert "0/0 of 3" in shown
    assert "4 requests, cache 90%" in shown
    now = state(server)
    assert (now["target_cache"], now["target_gpu"], now["target_wait_seconds"]) == (80, 70, 5)
    assert not engines(server)
    client = server.openai(max_retries=0)
    with asking(client, 12):
        wait_until(lambda: state(server)["ready_replicas"] == 3, seconds=START_SECONDS)
        assert len(engines(server)) == 3
    # No load is left; the last one ends when nobody has asked for long.
    wait_until(lambda: not engines(server), seconds=90)
    answer = client.completions.create(model="my-base", prompt="the quick", max_tokens=2)
    assert answer.usage.completion_tokens == 2


def test_a_schedule_is_set_and_taken_back(server: Windlass, tmp_path: Path) -> None:
    shell = Shell(server, tmp_path)
    environment = shell.environment | shell.owner
    environment |= {"PATH": f"{Path(PROGRAM[0]).parent}:{environment['PATH']}", "MODEL": "my-base"}
    command = "windlass models activate my-base --replicas 0 --max-replicas 3"
    pages.run(command, environment, tmp_path)
    pages.run(pages.script(PAGE, after="By the clock"), environment, tmp_path)
    window: dict[str, Any] = {"start": "0 8 * * 1-5", "end": "0 18 * * 1-5"}
    window |= {"timezone": "Europe/Berlin", "replicas": 2}
    assert state(server)["schedule"] == [window]
    assert state(server)["max_replicas"] == 3, "what is not named stays"
    # Other settings keep the windows, and an empty text takes them back.
    no_more = "--target-cache 0 --target-gpu 0 --target-wait 0"
    pages.run(f"windlass models activate my-base {no_more}", environment, tmp_path)
    pages.run("windlass models activate my-base --target 5", environment, tmp_path)
    assert state(server)["schedule"] == [window]
    assert state(server)["target_cache"] == 0
    assert "5 requests  " in pages.run("windlass models serving", environment, tmp_path)
    pages.run("windlass models activate my-base --schedule ''", environment, tmp_path)
    assert state(server)["schedule"] == []
    for wrong in ("0 8 * * *;0 9 * * *;UTC", "0 8 * * *;0 9 * * *;UTC;many"):
        command = f"! windlass models activate my-base --schedule '{wrong}' 2>&1"
        assert "is no START;END;ZONE;N" in pages.run(command, environment, tmp_path)
    command = "! windlass models activate my-base --schedule '0 8 * * *;0 9 * * *;Nowhere;1' 2>&1"
    assert "schedule.0.timezone" in pages.run(command, environment, tmp_path)


def test_requests_that_wait_at_the_gateway_make_an_engine_more(
    server: Windlass, tmp_path: Path
) -> None:
    shell = Shell(server, tmp_path)
    environment = shell.environment | shell.owner
    environment |= {"PATH": f"{Path(PROGRAM[0]).parent}:{environment['PATH']}"}
    command = "windlass models activate my-base --replicas 0 --max-replicas 2 --target 1000 "
    # One at once, and one or two more that wait in the engine.
    command += "--target-gpu 0 --target-wait 1 --set max_concurrency=1"
    pages.run(command, environment, tmp_path)
    with asking(server.openai(max_retries=0), 6):
        wait_until(lambda: state(server)["ready_replicas"] == 2, seconds=START_SECONDS)
