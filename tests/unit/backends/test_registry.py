import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import pytest

from windlass.backends import (
    BackendError,
    LLMBackend,
    RenderContext,
    Sizing,
    get_backend,
    get_registered_backends,
    register_backend,
)
from windlass.backends.registry import Registry
from windlass.backends.trl.config import TRLConfig

SOURCE = """
from windlass.backends import LLMBackend

class Echo(LLMBackend):
    name = "echo"
    framework = "echo"
    schema_version = 3

    @classmethod
    def from_openai(cls, *, method, hyperparameters, seed, sizing, extra):
        return cls()

    @classmethod
    def from_document(cls, document, schema_version):
        return cls()

    def to_document(self):
        return {}

    def to_command(self, context=None):
        return ("echo",)

    def to_args(self, context=None):
        return ["trained"]
"""


class Other(LLMBackend):
    name = "trl"
    framework = "trl"
    schema_version = 1

    @classmethod
    def from_openai(
        cls,
        *,
        method: str,
        hyperparameters: Mapping[str, Any],
        seed: int,
        sizing: Sizing,
        extra: Mapping[str, Any],
        grader: Mapping[str, Any] | None = None,
    ) -> Self:
        return cls()

    @classmethod
    def from_document(cls, document: Mapping[str, Any], schema_version: int) -> Self:
        return cls()

    def to_document(self) -> dict[str, Any]:
        return {}

    def to_command(self, context: RenderContext | None = None) -> tuple[str, ...]:
        return ()

    def to_args(self, context: RenderContext | None = None) -> list[str]:
        return []


def distribution(folder: Path, *, module: str, entry: str, source: str = SOURCE) -> None:
    """Lays out an installed distribution `acme-<module>` that offers one backend."""
    (folder / f"{module}.py").write_text(source)
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[windlass.llm_backends]\n{entry}\n")


def test_ours_is_installed() -> None:
    assert get_backend("trl") is TRLConfig
    assert get_registered_backends()["trl"] is TRLConfig


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(BackendError, match=r"No backend is named 'nope'\. Installed: .*trl"):
        get_backend("nope")


def test_a_backend_of_another_distribution_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distribution(tmp_path, module="acme_found", entry="echo = acme_found:Echo")
    monkeypatch.syspath_prepend(tmp_path)
    registry = Registry()
    backend = registry.get("echo")
    assert (backend.name, backend.schema_version) == ("echo", 3)
    assert backend.from_document({}, 3).to_args() == ["trained"]
    assert set(registry.all()) == {"echo", "torchtune", "trl"}


def test_one_name_for_two_classes_is_refused_naming_both() -> None:
    with pytest.raises(BackendError) as caught:
        register_backend(Other)
    assert "windlass.backends.trl.config.TRLConfig" in str(caught.value)
    assert f"{Other.__module__}.Other" in str(caught.value)
    assert get_backend("trl") is TRLConfig


def test_a_name_may_be_given_with_the_decorator() -> None:
    registry = Registry()

    class Nameless(TRLConfig):
        pass

    assert registry.register_as("mine", Nameless) is Nameless
    assert registry.get("mine") is Nameless
    assert (Nameless.name, TRLConfig.name) == ("mine", "trl")
    with pytest.raises(BackendError) as error:
        registry.register_as("yours", Nameless)
    assert "Nameless is named 'mine', and registered as 'yours'." in str(error.value)


def test_a_given_name_that_is_taken_is_refused_naming_both() -> None:
    class Nameless(TRLConfig):
        pass

    with pytest.raises(BackendError) as error:
        register_backend("trl")(Nameless)
    assert "Two backends are named 'trl': windlass.backends.trl.config.TRLConfig and " in str(
        error.value
    )
    assert str(error.value).endswith(".Nameless.")
    assert "name" not in vars(Nameless)
    assert get_backend("trl") is TRLConfig


def test_one_name_in_two_distributions_is_refused_naming_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distribution(tmp_path, module="acme_one", entry="echo = acme_one:Echo")
    distribution(tmp_path, module="acme_two", entry="echo = acme_two:Echo")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BackendError, match=r"acme_(one|two)\.Echo and acme_(one|two)\.Echo"):
        Registry().get("echo")


def test_a_broken_distribution_is_named_and_harms_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    distribution(tmp_path, module="acme_bad", entry="bad = acme_bad:Echo", source="1 / 0")
    monkeypatch.syspath_prepend(tmp_path)
    registry = Registry()
    with pytest.raises(BackendError, match="'bad' of acme_bad could not be loaded: division"):
        registry.get("bad")
    assert registry.get("trl") is TRLConfig


@pytest.mark.parametrize(
    ("module", "source", "sentence"),
    [
        ("acme_text", "Echo = 'text'", "is not an LLMBackend"),
        ("acme_name", SOURCE.replace('name = "echo"', 'name = "other"'), "holds the backend"),
        ("acme_mute", SOURCE.replace("    schema_version = 3\n", ""), "declare `schema_version`"),
    ],
)
def test_what_is_no_backend_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, source: str, sentence: str
) -> None:
    distribution(tmp_path, module=module, entry=f"echo = {module}:Echo", source=source)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(BackendError, match=sentence):
        Registry().get("echo")


def test_a_backend_of_another_folder_is_within_the_walls_of_its_runners() -> None:
    instant = Path(__file__).parents[2] / "faults" / "kill_points" / "instant"
    command = "from windlass.confinement import python_paths; print(*python_paths(), sep='\\n')"
    shown = subprocess.run(
        [sys.executable, "-c", command],
        env={**os.environ, "PYTHONPATH": str(instant)},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert str(instant / "windlass_instant") in shown.stdout.splitlines()
