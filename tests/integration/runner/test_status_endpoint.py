"""KEP-2779's endpoint of the runner, and TRL's own script, which knows nothing of Windlass."""

import asyncio
import json
import os
import stat
import sys
from pathlib import Path

import aiohttp
import pytest
from tests.integration.runner.cases import Case
from tests.support.factories.toy_model import make_model

from windlass.api.runner.v1 import runner_pb2 as pb
from windlass_agent.runner.protocol import trainer_events
from windlass_agent.runner.protocol.trainer_events import Began, Ended, Logged, TrainerEvent
from windlass_agent.runner.supervisor.status_server import status_server

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
UPDATE = {"trainerStatus": {"progressPercentage": 0, "metrics": []}}


async def told(metrics: Path) -> list[TrainerEvent]:
    over: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    over.set_result(0)
    return [event async for event in trainer_events.follow(metrics, over)]


async def test_only_the_trainer_that_it_serves_is_heard(tmp_path: Path) -> None:
    metrics = tmp_path / "metrics"
    async with status_server(metrics, tmp_path) as variables:
        url = variables["KUBEFLOW_TRAINER_SERVER_URL"]
        token = Path(variables["KUBEFLOW_TRAINER_SERVER_TOKEN"])
        assert stat.S_IMODE(token.stat().st_mode) == 0o600
        async with aiohttp.ClientSession() as session:

            async def post(address: str, bearer: str, sent: object) -> int:
                headers = {"Authorization": f"Bearer {bearer}"}
                async with session.post(address, headers=headers, json=sent) as answer:
                    return answer.status

            assert await post(url, "another", UPDATE) == 401
            assert await post(url, "", UPDATE) == 401
            other = url.replace("/trainjobs/job/", "/trainjobs/other/")
            assert await post(other, token.read_text(), UPDATE) == 403
            assert await post(url, token.read_text(), {"trainerStatus": []}) == 422
            assert await post(url, token.read_text(), {"large": "x" * 2**17}) == 413
            assert not metrics.exists()
            assert await post(url, token.read_text(), UPDATE) == 200
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
    async with status_server(metrics, tmp_path) as variables:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "trl.scripts.sft"),
            *(str(word) for name, value in flags.items() for word in (f"--{name}", value)),
            env=os.environ | variables | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hf")},
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
    assert process.returncode == 0, output.decode()
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
