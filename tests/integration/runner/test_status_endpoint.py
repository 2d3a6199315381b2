"""KEP-2779's endpoint of the runner, and TRL's own script, which knows nothing of Windlass."""

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest
from tests.integration.runner.cases import Case
from tests.support.factories.toy_model import make_model

from windlass.api.runner.v1 import runner_pb2 as pb
from windlass_agent.runner.protocol import trainer_events
from windlass_agent.runner.protocol.trainer_events import Began, Ended, Logged, TrainerEvent

PLAIN = """
from dataclasses import dataclass
from typing import ClassVar
from windlass.backends import TRLConfig, register_backend

@register_backend("plain-trl")
@dataclass(frozen=True)
class PlainConfig(TRLConfig):
    posts_status: ClassVar[bool] = True

    def to_command(self, context=None):
        return (context.python, "-m", "trl.scripts.sft")
"""
SERVER = "windlass_agent.runner.trainers.status_server"
# A trainer that posts right and wrong statuses.
POSTS = """
import json, os, stat, urllib.error, urllib.request
from pathlib import Path

url, path = (os.environ[f"KUBEFLOW_TRAINER_SERVER_{name}"] for name in ("URL", "TOKEN"))
token, update = Path(path).read_text(), {"trainerStatus": {"progressPercentage": 0, "metrics": []}}

def post(address, bearer, sent):
    headers = {"Authorization": f"Bearer {bearer}"}
    data = json.dumps(sent).encode()
    try:
        request = urllib.request.Request(address, data=data, headers=headers)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code

print(json.dumps({
    "mode": stat.S_IMODE(Path(path).stat().st_mode),
    "another token": post(url, "another", update),
    "no token": post(url, "", update),
    "another job": post(url.replace("/trainjobs/job/", "/trainjobs/other/"), token, update),
    "malformed": post(url, token, {"trainerStatus": []}),
    "large": post(url, token, {"large": "x" * 2**17}),
    "before": Path(os.environ["WINDLASS_METRICS_FILE"]).read_text(),
    "right": post(url, token, update),
}))
"""


async def told(metrics: Path) -> list[TrainerEvent]:
    over: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    over.set_result(0)
    return [event async for event in trainer_events.follow(metrics, over)]


async def served(metrics: Path, *command: str) -> str:
    """Runs a trainer beside the server, as a runner does; returns what it printed."""
    folder = metrics.parent
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", SERVER, *command),
        env=os.environ
        | {"WINDLASS_METRICS_FILE": str(metrics), "TMPDIR": str(folder)}
        | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "hf")},
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    # Until the end of its output, which the server has as well: it ends with the trainer.
    output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
    return output.decode()


async def test_only_the_trainer_that_it_serves_is_heard(tmp_path: Path) -> None:
    metrics = tmp_path / "metrics"
    said = json.loads(await served(metrics, sys.executable, "-c", POSTS))
    assert said == {
        "mode": 0o600,
        "another token": 401,
        "no token": 401,
        "another job": 403,
        "malformed": 422,
        "large": 413,
        "before": "",
        "right": 200,
    }
    assert await told(metrics) == [Began()]


@pytest.mark.torch
async def test_trls_own_script_is_heard(tmp_path: Path) -> None:
    model, data = make_model(tmp_path / "model"), tmp_path / "data"
    data.mkdir()
    row = {"text": "the quick brown fox jumps over the lazy dog"}
    (data / "train.jsonl").write_text("\n".join([json.dumps(row)] * 16))
    flags = {
        "model_name_or_path": model,
        "dataset_name": data,
        "output_dir": tmp_path / "output",
        "max_steps": 4,
        "max_length": 32,
        "logging_steps": 1,
        "per_device_train_batch_size": 4,
        "use_cpu": "true",
        "bf16": "false",
        "save_strategy": "no",
        "report_to": "none",
    }
    metrics = tmp_path / "metrics"
    words = (str(word) for name, value in flags.items() for word in (f"--{name}", value))
    await served(metrics, sys.executable, "-m", "trl.scripts.sft", *words)
    first, *between, last = await told(metrics)
    assert first == Began(total_steps=4)
    assert isinstance(last, Ended)
    assert last.step == last.total_steps == 4
    losses = [one.logs["loss"] for one in between if isinstance(one, Logged) and "loss" in one.logs]
    assert losses


@pytest.mark.torch
async def test_a_job_of_an_unmodified_trainer_tells_its_metrics(case: Case, tmp_path: Path) -> None:
    """By a backend of another package, whose trainer has never heard of Windlass."""
    site = tmp_path / "site"
    record = site / "plain-1.dist-info"
    record.mkdir(parents=True)
    (site / "plain.py").write_text(PLAIN)
    (record / "METADATA").write_text("Metadata-Version: 2.1\nName: plain\nVersion: 1\n")
    (record / "entry_points.txt").write_text(
        "[windlass.llm_backends]\nplain-trl = plain:PlainConfig\n"
    )
    case.assign(epochs=2)
    case.agent.assignment.backend = "plain-trl"
    runner = await case.start(environ={"PYTHONPATH": str(site)})
    assert await runner.wait() == 0, case.agent.finish
    assert case.agent.finish is not None
    assert case.agent.finish.outcome == pb.OUTCOME_SUCCEEDED
    assert case.agent.metrics()[-1].step == case.agent.metrics()[-1].total_steps == 6
    assert case.agent.values("train_loss")
    assert case.agent.of_kind(pb.ARTIFACT_KIND_FINAL)
