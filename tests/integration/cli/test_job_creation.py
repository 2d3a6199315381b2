"""Creation of jobs by the command: checked before anything is sent, described in a file."""

import json
from pathlib import Path
from typing import Any

import yaml
from tests.support.processes import pages
from tests.support.processes.shell import PROGRAM, Shell
from tests.support.processes.windlass import Windlass

from windlass.cli.jobs.creation.examples import ExampleName
from windlass.cli.jobs.creation.recipes import recipe
from windlass.client import Windlass as Client

HELLO = [{"role": "user", "content": "Hello"}]
GOOD, BAD = ({"role": "assistant", "content": text} for text in ("Good day.", "Yo."))
CHAT = {"messages": [*HELLO, GOOD]}
PAIR = {"input": {"messages": HELLO}, "preferred_output": [GOOD], "non_preferred_output": [BAD]}
ROWS: dict[str, Any] = {
    "sft": CHAT,
    "distillation": CHAT,
    "dpo": PAIR,
    "orpo": PAIR,
    "reward": PAIR,
    "kto": {"prompt": HELLO, "completion": [GOOD], "label": True},
    "rl": {"messages": HELLO, "answer": "Good day."},
    "rloo": {"messages": HELLO, "answer": "Good day."},
}


def kept(shell: Shell) -> tuple[str, str]:
    """The ids of the project's files and jobs."""
    files = shell.data("files", "list", "-o", "name", "--all")
    return files, shell.data("jobs", "list", "-o", "name", "--all")


def test_a_wrong_job_leaves_nothing_behind(shell: Shell, rows: str, model: str) -> None:
    before = kept(shell)
    wrong: tuple[tuple[tuple[str, ...], int, str], ...] = (
        (("--model", "feahter"), 1, "feather"),
        (("--set", "integrations.0.type=wandb", "--set", "integrations.0.wandb.project=p"), 1,
         "has no secret 'wandb'"),
        (("--method", "dpo"), 1, "takes preference examples; the training file holds chat"),
        (("--set", "windlass.config.rank=0"), 1, "param windlass.config.rank"),
        (("--epochs", "99"), 1, "n_epochs"),
        (("--runtime", "torchtune"), 1, "no live cluster offers 'torchtune'"),
        (("--validation-file", "none.jsonl"), 2, "There is no file none.jsonl"),
        (("--set", "max_length=64"), 2, "Did you mean windlass.config.max_length?"),
        (("--set", "seed=x"), 2, "is not a whole number"),
    )  # fmt: skip
    for options, code, said in wrong:
        done = shell.run("jobs", "create", "--model", model, "--training-file", rows, *options)
        assert (done.returncode, done.stdout) == (code, ""), options
        assert said in done.stderr, options
        assert done.stderr.count("\n") == 1, options
    assert kept(shell) == before


def test_every_example_passes_a_dry_run(shell: Shell, model: str, tmp_path: Path) -> None:
    before = kept(shell)
    for name in ExampleName:
        path = tmp_path / f"my rows of {name}.jsonl"
        path.write_text(f"{json.dumps(ROWS[name])}\n" * 20)
        text = shell.data("jobs", "create", "--example", name)
        here = ["--model", model, "--training-file", str(path)]
        if name is ExampleName.DISTILLATION:
            here += ["--teacher", model]
        checked = shell.object("jobs", "create", "-f", "-", *here, "--dry-run", given=text)
        usual = {"sft": "supervised", "rl": "reinforcement"}
        assert (checked["id"], checked["windlass"]["method"]) == ("", usual.get(name, name))
        assert "auto" not in checked["hyperparameters"].values(), name
        assert "No live cluster has the backend trl" in checked["windlass"]["queue"]["reason"]
    assert kept(shell) == before


def test_options_win_over_the_file_and_set_over_both(shell: Shell, rows: str, model: str) -> None:
    job = shell.home / "job.yaml"
    document = {
        "model": "nobodys",
        "training_file": rows,
        "suffix": "file",
        "seed": 1,
        "metadata": {"team": "red", "run": "1"},
        "method": {"type": "supervised", "supervised": {"hyperparameters": {"n_epochs": 9}}},
    }
    job.write_text(yaml.safe_dump(document))
    options = ("--model", model, "--suffix", "option", "--epochs", "3", "--metadata", "run=2")
    assigned = ("--set", "suffix=set", "--set", "windlass.config.rank=4")
    made = shell.object("jobs", "create", "-f", str(job), *options, *assigned)
    assert (made["model"], made["user_provided_suffix"], made["seed"]) == (model, "set", 1)
    assert made["hyperparameters"]["n_epochs"] == 3
    assert made["metadata"] == {"team": "red", "run": "2"}
    shell.data("jobs", "cancel", str(made["id"]), "--yes")


def test_a_recipe_is_where_a_job_begins(shell: Shell, rows: str, model: str) -> None:
    listed = json.loads(shell.data("jobs", "recipes", "-o", "json"))
    assert {"sft-lora", "grpo-lora"} < {one["name"] for one in listed}
    assert "for much data" in shell.data("jobs", "recipes", "-o", "wide")
    create = ("jobs", "create", "--model", model, "--training-file", rows, "--dry-run")
    given = "method: {supervised: {hyperparameters: {n_epochs: 4}}}"
    checked = shell.object(*create, "--recipe", "sft-full", "-f", "-", given=given)
    assert checked["hyperparameters"]["n_epochs"] == 4
    refused = shell.run(*create, "--recipe", "sft-ful")
    assert (refused.returncode, "'sft-full'" in refused.stderr) == (2, True)


def test_a_recipe_of_a_family_passes_a_dry_run(shell: Shell, rows: str, model: str) -> None:
    with Client(shell.server.url, shell.server.owner_key) as client:
        for name in ("llama", "qwen", "gemma", "mistral", "phi", "deepseek-coder"):
            body = {**recipe(f"sft-{name}"), "model": model}
            checked = client.jobs.check(body, training_format="chat", training_examples=50)
            assert (checked["method"]["type"], checked["model"]) == ("supervised", model)
    options = ("--recipe", "sft-phi", "--method", "kto", "--dry-run")
    refused = shell.run("jobs", "create", "--model", model, "--training-file", rows, *options)
    assert "The method kto takes" in refused.stderr, "a recipe goes with another method"
    (phi,) = (
        one
        for one in json.loads(shell.data("jobs", "recipes", "-o", "json"))
        if one["name"] == "sft-phi"
    )
    assert phi["notes"].startswith("Its layers are joined")


def test_a_file_that_is_no_job_is_one_line(shell: Shell, rows: str) -> None:
    for text, code, said in (
        ("model: [", 2, "stdin is neither YAML nor JSON"),
        ("- model", 2, "must hold one object"),
        ("seed: 1", 2, "--model is required"),
        ("model: feather", 2, "--training-file is required"),
        (f"model: feather\ntraining_file: {rows}\nmodell: x", 1, "Unknown parameter: 'modell'"),
        (f"model: 5\ntraining_file: {rows}", 1, "param model"),
    ):
        done = shell.run("jobs", "create", "-f", "-", given=text)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1), text
        assert said in done.stderr
    missing = shell.run("jobs", "create", "-f", "none.yaml")
    assert (missing.returncode, missing.stderr) == (
        2, "windlass: none.yaml: No such file or directory\n",
    )  # fmt: skip
    both = ("--dry-run", "--follow", "--model", "m", "--training-file", rows)
    assert shell.run("jobs", "create", *both).returncode == 2


def test_the_page_on_job_files_is_true(
    shell: Shell, server: Windlass, model: str, rows: str, tmp_path: Path
) -> None:
    (tmp_path / "train.jsonl").write_text(Path(rows).read_text())
    environment = shell.environment | shell.owner
    environment["PATH"] = f"{Path(PROGRAM[0]).parent}:{environment['PATH']}"
    page = "how-to/describe-a-job.md"
    # Its example names a model that this server calls otherwise.
    example = f"sft | sed s/my-base/{model}/ >"
    commands = pages.script(page, {"my-base": model, "sft >": example})
    printed = pages.run(commands, environment, tmp_path).split()
    (job,) = [word for word in printed if word.startswith("ftjob-")]
    assert shell.object("jobs", "get", job)["user_provided_suffix"] == "small"
    shell.data("jobs", "cancel", job, "--yes")
    checked = yaml.safe_load((tmp_path / "checked.yaml").read_text())
    assert (checked["id"], checked["hyperparameters"]["batch_size"]) == ("", 1)
    assert json.loads((tmp_path / "again.json").read_text())["id"] == ""
    (block,) = pages.blocks(page, "python")
    with Client(server.url, server.owner_key) as client:
        scope: dict[str, Any] = {"client": client}
        exec(block.replace("my-base", model), scope)
    assert scope["checked"]["hyperparameters"]["n_epochs"] > 0
