"""`windlass files check` as a process, without a server, and with one."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.support.factories.toy_model import make_model
from tests.support.processes.command import windlass

from windlass.backends import Sizing
from windlass.backends.hyperparameters import numbers

CHAT = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}


def check(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return windlass(folder, "files", "check", "my rows.jsonl", *arguments)


def write(folder: Path, *lines: object) -> None:
    text = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    (folder / "my rows.jsonl").write_text("\n".join(text))


def said(folder: Path, *arguments: str) -> dict[str, Any]:
    done = check(folder, *arguments, "-o", "json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_sound_file_is_summed_up_without_a_server(tmp_path: Path) -> None:
    write(tmp_path, *[CHAT] * 50)
    found = said(tmp_path)
    assert (found["valid"], found["format"], found["examples"]) == (True, "chat", 50)
    assert "approximation" in found["counted_by"]
    assert found["tokens"]["min"] == found["tokens"]["max"] > 0
    # 50 examples make batches of 2, and 3 epochs of 25 steps: docs/reference/hyperparameters.md.
    training = found["training"]
    assert (training["n_epochs"], training["batch_size"], training["steps"]) == (3, 2, 75)
    assert "memory" not in found
    assert (found["time"]["seconds"], "--tokens-per-second" in found["time"]["basis"]) == (None, 1)
    tokens = training["tokens"]
    assert tokens == 3 * found["tokens"]["total"]
    assert said(tmp_path, "--tokens-per-second", "0.5")["time"]["seconds"] == 2 * tokens
    shown = check(tmp_path, "--tokens-per-second", f"{tokens / 3661}").stdout
    assert "time:        1:01:01 of training steps at " in shown
    assert "time:        unknown: it needs a speed" in check(tmp_path).stdout
    assert check(tmp_path, "--tokens-per-second", "0").returncode == 2
    assert said(tmp_path, "--epochs", "1", "--batch-size", "16")["training"]["steps"] == 4


def test_all_errors_are_shown_with_their_lines(tmp_path: Path) -> None:
    write(tmp_path, CHAT, "{", {"messages": [{"role": "user"}]}, "{", CHAT)
    done = check(tmp_path)
    assert done.returncode == 2
    assert "my rows.jsonl cannot be trained on: 3 errors." in done.stderr
    rows = [line.split() for line in done.stdout.partition("COUNT")[2].splitlines()[1:]]
    assert [row[:3] for row in rows] == [["2", "2,", "4"], ["1", "3", "messages[0]:"]]
    document = json.loads(check(tmp_path, "-o", "json").stdout)
    assert [fault["lines"] for fault in document["faults"]] == [[2, 4], [3]]


def test_a_file_for_another_method_is_refused(tmp_path: Path) -> None:
    write(tmp_path, CHAT)
    assert "needs preference examples" in check(tmp_path, "--method", "dpo").stdout
    assert check(tmp_path, "--method", "distillation", "--max-length", "99").returncode == 2


@pytest.mark.torch
def test_a_models_folder_counts(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "my model")
    long = {"messages": [CHAT["messages"][0], {"role": "assistant", "content": "ab " * 99}]}
    write(tmp_path, *[CHAT] * 15, long)
    found = said(tmp_path, "--model", "./my model", "--max-length", "64")
    assert (found["truncated"], found["left_out"], found["limit"]) == (1, 0, 64)
    assert found["tokens"]["median"] < 64 < found["tokens"]["max"]
    assert "the tokenizer of" in found["counted_by"]
    weights = (folder / "model.safetensors").stat().st_size
    assert found["memory"]["least_bytes"] == weights
    shown = numbers("supervised", {}, sizing=Sizing(examples=16, model_bytes=weights), nodes=1)
    assert found["training"]["steps"] == shown["n_epochs"] * 16 / shown["batch_size"]
    assert check(tmp_path, "--model", "./nowhere").returncode == 2


def test_a_name_without_a_server_is_one_line(tmp_path: Path) -> None:
    write(tmp_path, CHAT)
    done = check(tmp_path, "--model", "llama")
    assert (done.returncode, done.stderr.count("\n"), "No API key" in done.stderr) == (2, 1, True)
