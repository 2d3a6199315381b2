"""Shared test assets are built once and completely, however many processes ask at once."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.environments import made_once

ASK = """
import sys, time
from pathlib import Path
from tests.support.environments import made_once

made_once.BUILD = Path(sys.argv[1])

def make(folder):
    folder.mkdir()
    with (made_once.BUILD / "makers").open("a") as makers:
        makers.write("made\\n")
    for number in range(50):
        (folder / str(number)).touch()
        time.sleep(0.01)
    if sys.argv[2] == "die":
        sys.exit(1)

folder = made_once.once("thing", "of this", make)
print(len(list(folder.glob("[0-9]*"))))
"""


def ask(build: Path, how: str = "") -> "subprocess.Popen[str]":
    repository = Path(made_once.__file__).parents[3]
    command = [sys.executable, "-c", ASK, str(build), how]
    return subprocess.Popen(command, cwd=repository, stdout=subprocess.PIPE, text=True)


def test_several_that_ask_at_once_get_one_whole_thing(tmp_path: Path) -> None:
    # Whoever was killed in the middle leaves a part, and no lock.
    assert ask(tmp_path, "die").wait() == 1
    asking = [ask(tmp_path) for _ in range(4)]
    assert [process.communicate()[0].strip() for process in asking] == ["50"] * 4
    assert (tmp_path / "makers").read_text().count("made") == 2


def test_another_recipe_makes_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(made_once, "BUILD", tmp_path)
    folders = {made_once.once("thing", made_of, Path.mkdir) for made_of in ("a", "a", "b")}
    assert len(folders) == 2
