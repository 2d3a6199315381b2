"""The id that a model's folder suggests."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.modelfiles import id_of_folder, is_model_id


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("/models/llama-3.2-1b", "llama-3.2-1b"),
        ("/models/ticket qwen2", "ticket-qwen2"),
        ("/models/My Model (final)", "My-Model-final"),
        ("/models/größe", "groe"),
        ("/models/.hidden", "hidden"),
        ("/models/a..b", "a.b"),
        ("/hub/models--Qwen--Qwen2.5-0.5B/snapshots/5f3c", "Qwen--Qwen2.5-0.5B"),
    ],
)
def test_a_folder_gives_the_id(folder: str, name: str) -> None:
    assert id_of_folder(Path(folder)) == name


@pytest.mark.parametrize("folder", ["/", "/models/模型", "/models/---", "/models/" + "x" * 129])
def test_a_folder_that_gives_none_asks_for_one(folder: str) -> None:
    with pytest.raises(ValueError, match="give one with --id"):
        id_of_folder(Path(folder))


@given(st.text(min_size=1, max_size=40))
def test_what_is_made_is_an_id(name: str) -> None:
    try:
        made = id_of_folder(Path("/models") / name.replace("/", "_"))
    except ValueError:
        return
    assert is_model_id(made)
