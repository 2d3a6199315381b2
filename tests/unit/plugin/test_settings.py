"""Settings of the plugin, from the environment of an engine."""

import socket
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from windlass_vllm import settings
from windlass_vllm.refusal import Refused
from windlass_vllm.settings import EngineTrainingSettings, from_environment


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("KEY", "short"),
        ("THREADS", "0"),
        ("THREADS", "many"),
        ("MEMORY_MIB", "-1"),
        ("NICENESS", "20"),
        ("FENCE_SECONDS", "0"),
        ("RUN", "../run"),
        ("FOLDER", "/" + "f" * settings.LONGEST_FOLDER),
    ],
)
def test_what_no_engine_takes_is_refused_by_its_name(name: str, value: str) -> None:
    with pytest.raises(Refused) as error:
        from_environment({f"WINDLASS_VLLM_{name}": value})
    assert error.value.reason == "invalid_setting"
    assert name in str(error.value) or name.lower() in str(error.value)


def test_a_socket_fits_in_the_longest_folder() -> None:
    with TemporaryDirectory() as made, socket.socket(socket.AF_UNIX) as bound:
        folder = Path(made, "f" * (settings.LONGEST_FOLDER - len(made) - 1))
        assert from_environment({"WINDLASS_VLLM_FOLDER": str(folder)}).folder == str(folder)
        path = folder / f"windlass-vllm-{'0' * 16}" / f"worker-{'0' * 8}"
        path.parent.mkdir(parents=True)
        bound.bind(str(path))


def test_the_settings_are_those_of_no_environment() -> None:
    assert from_environment({"PATH": "/bin"}) == EngineTrainingSettings()
