"""What takes a while says on a terminal what it does, and nowhere else."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.environments import postgres
from tests.support.factories.feather import make_feather
from tests.support.processes.command import impatient, windlass

ROW = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
NOWHERE = ("--base-url", "http://127.0.0.1:9", "--api-key", "wl-x")
AWAY = "windlass: Could not reach the server"


def drawn(home: Path, *arguments: str, columns: int = 80, code: int = 0) -> str:
    """Returns what a terminal shows beside a command's data."""
    shown = impatient(home, *arguments, columns=columns)
    assert (shown.returncode, "\x1b" in shown.stdout) == (code, False), shown
    return re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", shown.stderr)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "my rows.jsonl"
    path.write_text(f"{json.dumps(ROW)}\n" * 20_000)
    return path


@pytest.mark.parametrize("columns", [56, 80, 200])
def test_a_check_and_its_progress(tmp_path: Path, rows: Path, columns: int) -> None:
    asked = ("files", "check", rows.name, "-o", "json")
    text = drawn(tmp_path, *asked, columns=columns)
    assert re.search(r"checking my rows.jsonl [━╸╺]+ +[\d.]+/1.8 MB", text), text
    assert max(map(len, re.split(r"[\r\n]", text))) <= columns
    quiet = windlass(tmp_path, *asked)
    assert (json.loads(quiet.stdout)["examples"], quiet.stderr) == (20_000, "")


def test_a_conversion_and_its_progress(tmp_path: Path) -> None:
    source = tmp_path / "my data.json"
    source.write_text(json.dumps([{"instruction": "a", "output": "b"}] * 30_000))
    convert = ("files", "convert", source.name, "--force", "-o", "json")
    text = drawn(tmp_path, *convert)
    assert re.search(r"converting my data.json [━╸╺]+ +[\d.]+/1.1 MB", text), text
    assert "converting" not in windlass(tmp_path, *convert).stderr


def test_files_and_models_before_their_upload(tmp_path: Path, rows: Path) -> None:
    create = ("jobs", "create", "--model", "m", "--training-file", rows.name, *NOWHERE)
    text = drawn(tmp_path, *create, code=3)
    assert re.search(r"checking my rows.jsonl [━╸╺]+ +[\d.]+/1.8 MB", text), text
    assert re.search("waiting for http://127.0.0.1:9 .*" + AWAY, text, re.DOTALL), "then the server"
    assert windlass(tmp_path, *create).stderr.startswith(AWAY)
    folder = make_feather(tmp_path / "my model")
    vocabulary = {f"word {number}": number for number in range(100_000)}
    model = {"type": "BPE", "vocab": vocabulary, "merges": []}
    (folder / "tokenizer.json").write_text(json.dumps({"model": model}))
    text = drawn(tmp_path, "models", "import", folder.name, *NOWHERE, code=3)
    assert "checking my model" in text


@pytest.mark.parametrize("command", [("auth", "login"), ("files", "content", f"file-{24 * 'a'}")])
def test_whom_a_command_waits_for(tmp_path: Path, command: tuple[str, ...]) -> None:
    text = drawn(tmp_path, *command, *NOWHERE, code=3)
    assert "waiting for http://127.0.0.1:9 " in text


@pytest.fixture
def home() -> Iterator[Path]:
    with postgres.reachable_folder() as folder:
        home = folder / "a home"
        home.mkdir(mode=0o711)
        yield home


def test_work_with_the_database(home: Path) -> None:
    data = ("--data", "my data")
    assert "migrating the schema" in drawn(home, "db", "migrate", *data)
    (home / "my data/objects/content").mkdir(parents=True)
    (home / "my data/objects/content/one").write_bytes(b"a" * 3_000_000)
    text = drawn(home, "db", "backup", "my backup", "--with-files", *data)
    assert "opening the database" in text
    assert "dumping the database" in text
    assert re.search(r"writing my backup [━╸╺]+ +[\d.]+/3.\d MB", text), text
    text = drawn(home, "db", "restore", "my backup", "--data", "new data")
    assert re.search(r"checking my backup [━╸╺]+ +[\d.]+/3.\d MB", text), text
    assert re.search(r"unpacking my backup [━╸╺]+ +[\d.]+/3.\d MB", text), text
    assert "restoring the database" in text
    text = drawn(home, "doctor", *data)
    assert "examining the database, the keys and the store" in text
    assert "examining the machine" in text
    assert "opening the database" in drawn(home, "db", "status", *data)
    without = windlass(home, "db", "status", *data)
    assert (without.returncode, without.stderr) == (0, "")
