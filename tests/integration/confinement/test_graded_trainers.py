"""Trainers that ask their runner for grades, or tell it their status, and have no network.

The runner, its agent's socket and the walls are those of a job.
"""

import socket
import sys
from collections.abc import Iterator
from secrets import token_hex

import pytest
from tests.integration.confinement import looking
from tests.integration.runner.cases import Case
from tests.support.environments.sandbox import needed_sandbox
from tests.unit.graders.test_definitions import SCORE

from windlass.api.runner.v1 import runner_pb2 as pb
from windlass.confinement import confinement

LOOK = """
import json, os, socket, urllib.request
from pathlib import Path
from windlass_agent.runner.grading.rewards import graded

def reach(family, address):
    try:
        with socket.socket(family) as probe:
            probe.settimeout(5)
            probe.connect(address)
            return "open"
    except OSError as error:
        return type(error).__name__

def post():
    url, token = (os.environ[f"KUBEFLOW_TRAINER_SERVER_{name}"] for name in ("URL", "TOKEN"))
    names = ("current_step", "total_steps", "loss")
    status = {"trainerStatus": {"metrics": [{"name": name, "value": "3"} for name in names]}}
    headers = {"Authorization": "Bearer " + Path(token).read_text()}
    request = urllib.request.Request(url, data=json.dumps(status).encode(), headers=headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return answer.status

found = {
    "loopback": reach(socket.AF_INET, ("127.0.0.1", PORT)),
    "abstract": reach(socket.AF_UNIX, ABSTRACT),
    "interfaces": [name for _, name in socket.if_nameindex()],
    "status": post(),
    "rewards": graded(
        completions=[[{"content": "painters"}], [{"content": "writers"}]],
        item=['{"answer": "x"}'] * 2,
        log_metric=lambda name, value: None,
    ),
}
print("FOUND", json.dumps(found), flush=True)
"""


@pytest.fixture
def loopback() -> Iterator[socket.socket]:
    """A service of the machine on its loopback, such as a database."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        yield made


@pytest.fixture
def abstract() -> Iterator[socket.socket]:
    """A service on a socket that no folder's mode protects, such as a session bus."""
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(f"\0windlass-test-{token_hex(8)}")
        made.listen()
        yield made


def judged(request: pb.GradeRequest) -> pb.GradeResponse:
    likes = {n: 0.75 if "painters" in one.sample else 0.25 for n, one in enumerate(request.answers)}
    return pb.GradeResponse(grades={n: pb.Grade(reward=reward) for n, reward in likes.items()})


async def test_a_trainer_is_graded_and_heard_without_a_network(
    case: Case, loopback: socket.socket, abstract: socket.socket
) -> None:
    needed_sandbox()
    names = {"PORT": loopback.getsockname()[1], "ABSTRACT": abstract.getsockname()}
    code = "".join(f"{name} = {value!r}\n" for name, value in names.items()) + LOOK
    case.agent.judge = judged
    case.assign(method="reinforcement", rows=case.prompts(4), grader=SCORE)
    looking.plug_in(case.workdir / "site", sys.executable, code, posts_status=True)
    case.agent.assignment.backend = looking.NAME
    environ = {"PYTHONPATH": str(case.workdir / "site")}
    runner = await case.start(walls=confinement("required"), environ=environ)
    await runner.wait()

    said = looking.found(case.workdir / "log")
    assert said["rewards"] == [0.75, 0.25]
    assert said["status"] == 200
    assert case.agent.values("train_loss") == [3]
    assert said["interfaces"] == ["lo"], "its own loopback, where its processes meet"
    assert said["loopback"] != "open"
    assert said["abstract"] != "open"


@pytest.mark.torch
async def test_two_processes_meet_and_are_graded(case: Case) -> None:
    """On a loopback of their own, each through the socket that its runner left."""
    needed_sandbox()
    case.agent.judge = judged
    case.assign(
        method="reinforcement",
        rows=case.prompts(8),
        grader=SCORE,
        processes=2,
        max_steps=1,
        max_completion_length=8,
    )
    runner = await case.start(walls=confinement("required"), environ={"PET_NPROC_PER_NODE": "2"})
    await runner.wait()
    assert case.agent.finish is not None, case.log()
    assert case.agent.finish.outcome == pb.OUTCOME_SUCCEEDED, case.log()
    assert len(case.agent.values("train_mean_reward")) == 1
