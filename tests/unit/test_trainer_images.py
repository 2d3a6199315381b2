"""Images of trainers: every requirement pinned, and TRL's the very ones that we train with."""

import re
import tomllib
from pathlib import Path

import pytest
from tests.support.environments.torchtune_env import PINS

from windlass.backends.trl.versions import PINNED
from windlass_agent.executors.kubernetes.settings import ClusterSettings

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "deploy" / "docker"


def pins(name: str) -> dict[str, str]:
    lines = (DOCKER / f"{name}-requirements.txt").read_text().splitlines()
    wanted = [line for line in lines if line and not line.startswith("#")]
    found = [re.fullmatch(r"([\w-]+)==([\w.]+)", line) for line in wanted]
    assert wanted
    assert all(found), wanted
    return {match[1]: match[2] for match in found if match}


@pytest.mark.parametrize("name", ["trl", "torchtune"])
def test_an_image_is_pinned_and_runs_as_nobody(name: str) -> None:
    assert pins(name)
    text = (DOCKER / f"{name}.Dockerfile").read_text()
    assert re.search(r"^FROM \S+:\d+\.\d+\.\d+\S+$", text, re.MULTILINE)
    assert f"COPY {name}-requirements.txt" in text
    assert re.search(r"^USER 65532:65532$", text, re.MULTILINE)


def test_the_runners_image_has_torchtune_where_it_says() -> None:
    text = (DOCKER / "runner.Dockerfile").read_text()
    assert re.search(r"^FROM \S+:\d+\.\d+\.\d+\S+$", text, re.MULTILINE)
    (python,) = re.findall(r"^ENV WINDLASS_TORCHTUNE_PYTHON=(\S+)/bin/python$", text, re.MULTILINE)
    assert f"python -m venv --system-site-packages --without-pip {python} " in text
    assert f"USER {ClusterSettings().run_as_user}:" in text
    assert f"-t {ClusterSettings().image} " in text


def test_the_runners_image_loads_a_base_in_four_bits() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (pinned,) = project["optional-dependencies"]["qlora"]
    assert pinned in (ROOT / "constraints.txt").read_text().splitlines()
    image = (DOCKER / "runner.Dockerfile").read_text()
    assert '".[agent,train,qlora]"' in image
    # What it says while it is built is what agents say of it.
    assert f"backends.installed_libraries() == {sorted(ClusterSettings().libraries)}" in image


def test_trls_image_has_what_windlass_trains_with() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    train = dict(
        line.split("==") for line in project["optional-dependencies"]["train"] if "==" in line
    )
    constraints = (ROOT / "constraints.txt").read_text().splitlines()
    assert train["trl"] == PINNED
    shared = train.keys() & pins("trl").keys()
    assert shared >= {"trl", "transformers", "peft", "datasets", "accelerate"}
    assert {name: train[name] for name in shared} == {name: pins("trl")[name] for name in shared}
    assert {f"{name}=={version}" for name, version in pins("trl").items()} <= set(constraints)


def test_torchtunes_image_has_what_goes_together() -> None:
    found = pins("torchtune")
    together = ("torchtune", "torchao", "torchdata")
    assert [found[name] for name in together] == ["0.6.1", "0.15.0", "0.11.0"]
    # No test trains on a GPU in 4 bits with it.
    del found["bitsandbytes"]
    assert sorted(f"{name}=={version}" for name, version in found.items()) == sorted(PINS)
