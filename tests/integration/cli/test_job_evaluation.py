"""`windlass jobs create --evaluation-file`: from the options to the job that is kept."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from tests.support.processes.shell import Shell

ASKED = {"role": "user", "content": "Two and two?"}
ANSWER = {"role": "assistant", "content": "Four."}
CHAT = {"messages": [ASKED, ANSWER]}
PAIR = {
    "input": {"messages": [ASKED]},
    "preferred_output": [ANSWER],
    "non_preferred_output": [ANSWER],
}
TOOL = {"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}
REFERENCE = "{{item.reference_answer}}"


def grader(**fields: Any) -> dict[str, Any]:
    exact = {
        "type": "string_check",
        "name": "exact",
        "operation": "eq",
        "input": "{{sample.output_text}}",
        "reference": REFERENCE,
    }
    return exact | fields


def written(path: Path, *documents: Any) -> str:
    path.write_text("".join(f"{json.dumps(one)}\n" for one in documents))
    return str(path)


def kept(shell: Shell) -> tuple[str, str]:
    """The ids of the project's files and jobs."""
    files = shell.data("files", "list", "-o", "name", "--all")
    return files, shell.data("jobs", "list", "-o", "name", "--all")


@pytest.fixture
def create(model: str, rows: str) -> tuple[str, ...]:
    return ("jobs", "create", "--model", model, "--training-file", rows)


def test_the_options_reach_the_job(shell: Shell, create: tuple[str, ...], tmp_path: Path) -> None:
    held_out = tmp_path / "held out.jsonl"
    options = (
        "--evaluation-file", written(held_out, *[CHAT] * 9),
        "--evaluation-grader", written(tmp_path / "grader.json", grader()),
        "--set", "windlass.evaluation.max_examples=7",
        "--set", "windlass.evaluation.max_completion_tokens=24",
        "--set", "windlass.evaluation.temperature=0.5",
    )  # fmt: skip
    before = kept(shell)
    wanted = {
        "file": "",
        "grader": grader(),
        "max_examples": 7,
        "max_completion_tokens": 24,
        "temperature": 0.5,
        "result": None,
    }
    checked = shell.object(*create, *options, "--dry-run")
    assert checked["windlass"]["evaluation"] == wanted
    assert kept(shell) == before

    made = shell.object(*create, *options)
    stored = shell.object("jobs", "get", str(made["id"]))
    (file, found) = (stored["windlass"]["evaluation"]["file"], stored["windlass"]["evaluation"])
    assert found == wanted | {"file": file}
    assert file not in (stored["training_file"], stored["validation_file"])
    sent = shell.object("files", "get", file)
    assert (sent["filename"], sent["purpose"]) == ("held out.jsonl", "fine-tune")
    shell.data("files", "download", file, "--to", str(tmp_path / "again"))
    assert (tmp_path / "again").read_bytes() == held_out.read_bytes()
    shell.data("jobs", "cancel", stored["id"], "--yes")


def test_a_file_of_the_server_and_the_grader_of_the_rewards_serve_too(
    shell: Shell, model: str, tmp_path: Path
) -> None:
    prompts = written(tmp_path / "prompts.jsonl", *[{"messages": [ASKED], "answer": "Four."}] * 12)
    uploaded = str(shell.object("files", "upload", prompts)["id"])
    rewards = grader(reference="{{item.answer}}")
    made = shell.object(
        "jobs", "create", "--model", model, "--method", "reinforcement",
        "--grader", written(tmp_path / "rewards.json", rewards),
        "--training-file", prompts, "--evaluation-file", uploaded,
    )  # fmt: skip
    found = shell.object("jobs", "get", str(made["id"]))["windlass"]["evaluation"]
    assert (found["file"], found["grader"]) == (uploaded, rewards)
    shell.data("jobs", "cancel", str(made["id"]), "--yes")


Refusal = tuple[list[Any], dict[str, Any], tuple[str, ...], int, str]


def test_what_cannot_be_evaluated_is_refused_before_any_upload(
    shell: Shell, create: tuple[str, ...], tmp_path: Path
) -> None:
    refusals: tuple[Refusal, ...] = (
        ([CHAT, {"messages": [ANSWER, {}]}], {}, (), 2, "held.jsonl: Line 2: "),
        ([CHAT], {"reference": "{{item.answer}}"}, (), 2,
         "held.jsonl: Line 1: The grader refers to item.answer, which the example does not have."),
        ([CHAT | {"tools": [TOOL]}], {}, (), 2, "held.jsonl: Line 1: The trainer cannot pass"),
        ([PAIR], {}, (), 1, "takes chat or reinforcement examples"),
        ([CHAT], {"operation": "is"}, (), 1, "windlass.evaluation.grader.operation"),
        ([CHAT], {}, ("--set", "windlass.evaluation.max_examples=1001"), 1, "max_examples"),
        ([CHAT], {}, ("--method", "reward"), 1, "a reward model writes no answers"),
        ([CHAT], {}, ("--evaluation-file", "hold.jsonl"), 2, "There is no file hold.jsonl."),
    )  # fmt: skip
    before = kept(shell)
    for (examples, fields, options, code, said), last in product(refusals, ((), ("--dry-run",))):
        held_out = ("--evaluation-file", written(tmp_path / "held.jsonl", *examples))
        graded = ("--evaluation-grader", written(tmp_path / "grader.json", grader(**fields)))
        done = shell.run(*create, *held_out, *graded, *options, *last)
        assert (done.returncode, done.stdout) == (code, ""), (done.stderr, said, last)
        assert said in done.stderr, last
        assert done.stderr.count("\n") == 1, (said, last)
    assert kept(shell) == before


def test_examples_without_what_rewards_refer_to_are_refused_before_any_upload(
    shell: Shell, model: str, tmp_path: Path
) -> None:
    before = kept(shell)
    prompts = written(tmp_path / "prompts.jsonl", *[{"messages": [ASKED], "solution": "4"}] * 12)
    done = shell.run(
        "jobs", "create", "--model", model, "--method", "reinforcement", "--dry-run",
        "--grader", written(tmp_path / "rewards.json", grader(reference="{{item.answer}}")),
        "--training-file", prompts,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (2, "")
    assert "prompts.jsonl: Line 1: The grader refers to item.answer" in done.stderr
    assert kept(shell) == before


def test_a_grader_without_a_file_is_refused(
    shell: Shell, create: tuple[str, ...], tmp_path: Path
) -> None:
    alone = ("--evaluation-grader", written(tmp_path / "grader.json", grader()))
    done = shell.run(*create, *alone)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--evaluation-grader requires --evaluation-file." in done.stderr
