"""The how-to on the tinker SDK, its loop run as it is printed."""

import ast
import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.support.factories import tuning_engines as make
from tests.support.processes import pages
from tests.support.services.front import running_front

PAGE = "how-to/train-with-tinker.md"
FOLDER = "/models/Qwen3-0.6B"
# The same function, which the SDK computes by itself.
BY_THE_CLIENT = """
import dataclasses
local = dataclasses.replace(handle, loss_id=None)
print(training.forward_backward_custom([rewarded], local).result().metrics)
"""


async def test_the_page_on_tinker_is_true(database_url: str, tmp_path: Path) -> None:
    (settings,) = pages.blocks(PAGE, "yaml")
    loop, own_loss = pages.blocks(PAGE, "python")
    loop, end = loop.split("service.close")
    program = f"{loop}{own_loss}{BY_THE_CLIENT}service.close{end}"
    make.network().save_pretrained(tmp_path / "model")
    assert FOLDER in settings
    sections = yaml.safe_load(settings.replace(FOLDER, str(tmp_path / "model")))
    async with running_front(database_url, tmp_path / "data", **sections) as front:
        environment = os.environ | {
            "TINKER_BASE_URL": front.url,
            "TINKER_API_KEY": f"tml-{front.owner_key}",
            "TINKER_TELEMETRY": "0",
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", program, env=environment,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        said, errors = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, errors.decode()[-3000:]
    *steps, rank, on_the_server, by_the_client = said.decode().splitlines()
    assert rank == "8"
    served, local = ast.literal_eval(on_the_server), ast.literal_eval(by_the_client)
    assert served["custom/advantage:mean"] == pytest.approx(1 / 6)
    assert {name: local[name] for name in served} == pytest.approx(served, rel=1e-5)
    found = re.findall(r"'loss:sum': ([0-9.]+).*'step:max': ([0-9.]+)", "\n".join(steps))
    losses = [float(loss) for loss, _ in found]
    assert [step for _, step in found] == ["1.0", "2.0", "3.0"]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0]
