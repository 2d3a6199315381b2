"""The how-to on training all parameters, its loop run as it is printed."""

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import yaml
from tests.support.factories import tuning_engines as make
from tests.support.processes import pages
from tests.support.services.front import running_front

PAGE = "how-to/train-all-parameters.md"
EXAMPLE = pages.DOCS / "examples/trainer"
FOLDER = "/models/Qwen3-0.6B"


async def test_the_page_on_all_parameters_is_true(database_url: str, tmp_path: Path) -> None:
    settings, *of_clusters = pages.blocks(PAGE, "yaml")
    assert all(yaml.safe_load(one) for one in of_clusters)
    loop, *_ = pages.blocks(PAGE, "python")
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
            sys.executable, "-c", loop, env=environment,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        said, errors = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, errors.decode()[-3000:]
    is_lora, *steps, path = said.decode().splitlines()
    assert is_lora == "False"
    assert re.fullmatch(r"tinker://[^/]+/sampler_weights/best", path)
    found = re.findall(r"'loss:sum': ([0-9.]+).*'step:max': ([0-9.]+)", "\n".join(steps))
    losses = [float(loss) for loss, _ in found]
    assert [step for _, step in found] == ["1.0", "2.0", "3.0"]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0]


def test_the_page_prints_the_examples_entry_point() -> None:
    (printed,) = pages.blocks(PAGE, "toml")
    assert printed in (EXAMPLE / "pyproject.toml").read_text()
