"""Lists of the command: their order, their filters, their width, and what was probably meant."""

import json
from pathlib import Path

from tests.support.processes.shell import Shell

from windlass.client import Windlass
from windlass.client.transport.session import PAGE


def test_lists_begin_with_the_newest_and_tell_of_the_rest(shell: Shell, rows: str) -> None:
    project = str(shell.object("projects", "create", "Lists")["id"])
    shell.environment["WINDLASS_PROJECT"] = project
    keys = [str(shell.object("keys", "create", f"k{n}", "--in", project)["id"]) for n in range(3)]
    of_keys = ("keys", "list", "--in", project, "-o", "name")
    assert set(shell.data(*of_keys).split()) == set(keys)
    listed = shell.run(*of_keys, "--limit", "2")
    assert (len(listed.stdout.split()), listed.stderr) == (2, "1 more; --all shows them.\n")
    # OpenAI's files are numbered, so that order is sure within a second.
    files = [str(shell.object("files", "upload", rows)["id"]) for _ in range(3)]
    assert shell.data("files", "list", "-o", "name").split() == files[::-1]
    cut = shell.run("files", "list", "--limit", "1", "-o", "name")
    assert (cut.stdout.split(), cut.stderr) == ([files[2]], "2 more; --all shows them.\n")
    assert len(shell.data("files", "list", "--limit", "1", "--all", "-o", "name").split()) == 3
    assert shell.run("files", "list", "--limit", "1", "-q").stderr == ""
    assert shell.data("files", "list", "--purpose", "fine-tune-results", "-o", "name") == ""
    assert project in shell.data("projects", "list", "-o", "name").split()[0]


def test_lists_and_completion_go_on_beyond_a_page(shell: Shell, tmp_path: Path) -> None:
    project = str(shell.object("projects", "create", "Pages")["id"])
    shell.environment["WINDLASS_PROJECT"] = project
    note = tmp_path / "note.txt"
    note.write_text("a")
    with Windlass(shell.server.url, shell.server.owner_key, project=project) as client:
        made = [client.files.upload(note, purpose="user_data")["id"] for _ in range(PAGE + 20)]
    newest_first = made[::-1]

    def listed(*options: str) -> tuple[list[str], str]:
        done = shell.run("files", "list", "-o", "name", *options)
        return done.stdout.split(), done.stderr

    assert listed("--all") == (newest_first, "")
    assert listed("--limit", "110") == (newest_first[:110], "10 more; --all shows them.\n")
    assert listed() == (newest_first[:20], "100 more; --all shows them.\n")
    table = shell.data("files", "list", "--all").splitlines()
    assert [line.split()[0] for line in table] == ["ID", *newest_first]
    # The oldest is on the second page: by its beginning, and where the shell completes it.
    assert shell.object("files", "get", made[0][:-1])["id"] == made[0]
    completion = {
        "_WINDLASS_COMPLETE": "complete_bash",
        "COMP_WORDS": "windlass files get file",
        "COMP_CWORD": "3",
    }
    assert set(shell.run(environment=completion).stdout.split()) == set(made)


def test_jobs_are_found_by_status_and_age(shell: Shell, rows: str, model: str) -> None:
    one, other = (
        str(shell.object("jobs", "create", "--model", model, "--training-file", rows)["id"])
        for _ in range(2)
    )
    shell.data("jobs", "cancel", other, "--yes")

    def found(*options: str) -> set[str]:
        names = shell.data("jobs", "list", "--all", "-o", "name", *options).split()
        return {one, other} & set(names)

    assert found() == found("--since", "1h") == {one, other}
    assert found("--status", "cancelled") == {other}
    assert found("--status", "queued", "--status", "validating_files") == {one}
    assert found("--status", "queued", "--status", "cancelled", "--since", "1h") == {one, other}
    assert shell.run("jobs", "list", "--status", "stuck").returncode == 2
    shell.data("jobs", "cancel", one, "--yes")


def test_tables_fit_the_terminal_and_wide_ones_need_not(shell: Shell, rows: str) -> None:
    shell.data("files", "upload", rows, "-q")

    def shown(columns: int, *options: str) -> list[str]:
        environment = {"COLUMNS": str(columns), "NO_COLOR": "1"}
        return shell.on_terminal("files", "list", *options, environment=environment).splitlines()

    for columns in (56, 80, 200):
        assert max(map(len, shown(columns)[:-1])) <= columns
    narrow = shown(56)
    assert narrow[-1].startswith("Not shown: ")
    assert "CREATED" not in narrow[0]
    assert "CREATED" in shown(200)[0]
    assert "CREATED" in shown(56, "-o", "wide")[0]
    assert "CREATED" in shell.data("files", "list").splitlines()[0], "no terminal, nothing cut"


def test_models_are_found_by_kind(shell: Shell, model: str) -> None:
    assert shell.data("models", "list", "--kind", "base", "-o", "name").split() == [model]
    for kind in ("fine-tuned", "checkpoint"):
        assert shell.data("models", "list", "--kind", kind, "-o", "name") == ""
    assert shell.run("models", "list", "--kind", "odd").returncode == 2


def test_what_was_probably_meant_is_named(shell: Shell, rows: str, model: str) -> None:
    for arguments in (
        ("models", "get", "fether"),
        ("models", "delete", "fether", "--yes"),
        ("chat", "fether", "hello"),
        ("jobs", "create", "--model", "fether", "--training-file", rows),
    ):
        refused = shell.run(*arguments)
        assert refused.returncode == 1
        assert f"Did you mean {model!r}?" in refused.stderr
    near = str(Path(rows).with_name("rovs.jsonl"))
    unknown = shell.run("jobs", "create", "--model", model, "--training-file", near)
    assert (unknown.returncode, f"Did you mean {rows!r}?" in unknown.stderr) == (2, True)
    uploaded = str(shell.object("files", "upload", rows)["id"])
    unknown = shell.run("files", "get", "rows.jsonl")
    assert (unknown.returncode, f"Did you mean {uploaded} (rows.jsonl)?" in unknown.stderr) == (
        1,
        True,
    )
    assert "Did you mean 'jobs'?" in shell.run("jobss").stderr
    assert "Did you mean 'list'?" in shell.run("jobs", "lst").stderr
    assert "--limit" in shell.run("jobs", "list", "--limt", "2").stderr


def test_words_say_what_is_meant(shell: Shell, rows: str, model: str, tmp_path: Path) -> None:
    refused = shell.run("files", "upload", rows, "--purpose", "batch")
    assert "it must be one of fine-tune, user_data." in refused.stderr
    log = shell.server.log()
    identifier = refused.stderr.rpartition("request ")[2].split(")")[0]
    assert identifier in log
    assert "604800" not in shell.data("usage", "--help")
    assert shell.data("usage").split()[:3] == ["FROM", "KIND", "MODEL"]
    grader = tmp_path / "grader.json"
    grader.write_text(
        json.dumps(
            {"type": "string_check", "name": "x", "input": "a", "reference": "b"}
            | {"operation": "contains"}
        )
    )
    create = ("jobs", "create", "--model", model, "--training-file", rows)
    graded = shell.run(*create, "--method", "reinforcement", "--grader", str(grader))
    assert "'contains' is not one of eq, ilike, like, ne" in graded.stderr
    job = shell.object(*create, "--batch-size", "auto")
    resolved = shell.object("jobs", "get", str(job["id"]))["hyperparameters"]
    assert {type(value) for value in resolved.values()} <= {int, float}, "auto is resolved"
    for _ in range(2):
        assert shell.object("jobs", "cancel", str(job["id"]), "--yes")["status"] == "cancelled"
