"""Tiny models of each architecture, loaded by vLLM, as Hugging Face names their weights."""

import json
import os
import subprocess
from typing import Any

import pytest
from tests.support.engine_training import sharing
from tests.support.engine_training.engine import PLUGIN
from tests.support.environments.vllm_env import OLDER, VERSION, turn, vllm_python

from windlass_vllm.engine.versions import TESTED

pytestmark = [pytest.mark.torch, pytest.mark.vllm, pytest.mark.timeout(1800)]

REFUSED = {"mixtral": "experts_fused"}


@pytest.fixture(
    scope="module", params=[VERSION, *(pytest.param(one, marks=pytest.mark.long) for one in OLDER)]
)
def found(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """What was found of each model, and of vLLM without the plugin."""
    command = [
        str(vllm_python(request.param)),
        sharing.__file__,
        str(tmp_path_factory.mktemp("models")),
    ]
    words = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
    environment = os.environ | words | {"PYTHONPATH": str(PLUGIN), "OMP_NUM_THREADS": "1"}
    with turn():
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=550)
    assert done.returncode == 0, done.stderr[-3000:]
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.mark.parametrize("name", sorted(sharing.MODELS.keys() - REFUSED.keys()))
def test_every_parameter_is_a_view_of_what_vllm_loaded(found: dict[str, Any], name: str) -> None:
    """vLLM's loader fuses what was saved, the views split it: to the bit, logits too."""
    wanted = dict.fromkeys(("views", "equal", "names", "logits", "moved"), True)
    assert found[name] == wanted


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_a_view_is_refused(found: dict[str, Any], name: str) -> None:
    assert found[name]["reason"] == REFUSED[name]


def test_vllm_is_left_untouched_unless_named_and_known(found: dict[str, Any]) -> None:
    assert found["untouched"] == dict.fromkeys(("unset", "others", "version", "named"), True)


def test_each_version_of_the_table_is_tested() -> None:
    assert set(TESTED) == {VERSION, *OLDER}
