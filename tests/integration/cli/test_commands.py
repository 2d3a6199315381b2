"""The command as a process against a real server; its jobs wait, since no agent runs here."""

import hashlib
import json
import re
import signal
import stat
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tests.support.processes.shell import PROGRAM, Shell
from tests.support.waiting import wait_until

AWAY = {"WINDLASS_BASE_URL": "http://127.0.0.1:9"}


def test_login_verifies_stores_and_is_used(shell: Shell) -> None:
    wrong = shell.run("auth", "login", "--base-url", shell.server.url, bare=True, given="wl-no\n")
    assert (wrong.returncode, shell.config.exists()) == (1, False)
    assert "request req_" in wrong.stderr

    login = ("auth", "login", "--base-url", shell.server.url, "--name", "here")
    done = shell.run(*login, bare=True, given=shell.server.owner_key + "\n")
    assert done.returncode == 0, done.stderr
    assert shell.server.owner_key not in done.stdout + done.stderr
    assert stat.S_IMODE(shell.config.stat().st_mode) == 0o600
    assert stat.S_IMODE(shell.config.parent.stat().st_mode) == 0o700

    status = shell.run("auth", "status", "-o", "json", bare=True)
    assert json.loads(status.stdout)["credential"] == "context here"
    listed = shell.run("context", "list", bare=True).stdout.split()
    assert listed[-4:] == ["*", "here", shell.server.url, "-"]
    assert shell.run("context", "use", "there", bare=True).returncode == 2


def test_a_refused_request_is_in_the_servers_log_under_its_id(shell: Shell) -> None:
    refused = shell.run("models", "get", "nothing")
    (identifier,) = re.findall(r"request (req_\w+)", refused.stderr)
    (logged,) = wait_until(lambda: refusals(shell, identifier))
    assert (logged["status"], logged["method"]) == (404, "GET")
    assert logged["path"] == "/v1/models/nothing"


def refusals(shell: Shell, identifier: str) -> list[dict[str, Any]]:
    """Refusals of a request that the server's log holds so far."""
    lines = [line for line in shell.server.log().splitlines() if identifier in line]
    return [one for one in map(json.loads, lines) if one["event"] == "request_refused"]


def test_the_owners_key_is_found_in_the_data_folder(shell: Shell) -> None:
    here = ("--data", str(shell.server.data), "--base-url", shell.server.url)
    done = shell.run("auth", "status", *here, "-o", "json", bare=True)
    assert json.loads(done.stdout)["roles"] == ["platform_admin"]


def test_tenants_members_and_keys(shell: Shell) -> None:
    project = str(shell.object("projects", "create", "Harbor")["id"])
    assert project in shell.data("projects", "list", "-o", "name").splitlines()
    shell.data("members", "put", "ann@example.com", "--role", "project_member", "--in", project)
    assert "ann@example.com" in shell.data("members", "list", "--in", project)
    shell.data("members", "remove", "ann@example.com", "--in", project, "--yes")
    assert "ann@example.com" not in shell.data("members", "list", "--in", project)

    here = ("--in", project)
    shell.data("members", "put", "carol", "--role", "project_owner", *here)
    shell.data("members", "put", "ci", "--role", "project_owner", *here, "--service-account")
    of_an_owner = ("--role", "project_owner", *here, "-q")
    key = shell.data("keys", "create", "carol", "--for", "carol", *of_an_owner)
    nightly = ("keys", "create", "nightly", "--for", "ci", *of_an_owner)
    made = shell.run(*nightly, environment={"WINDLASS_API_KEY": key})
    assert made.returncode == 0, made.stderr
    for change in (("put", "carol", "--role", "project_member"), ("remove", "carol")):
        asked = shell.run("members", *change, *here)
        assert asked.returncode == 2, "nobody is there to confirm it"
        (line,) = [line for line in asked.stderr.splitlines() if "nightly" in line]
        assert line.split()[-1] == ("project_member" if change[0] == "put" else "ended")
    ended = shell.data("members", "remove", "carol", *here, "--yes").splitlines()
    assert [line.split()[1:3] for line in ended[1:]] in (
        [["nightly", "ci"], ["carol", "carol"]],
        [["carol", "carol"], ["nightly", "ci"]],
    )

    secret = shell.data("keys", "create", "ci", "--in", project, "--expires-in", "1h", "-q")
    assert shell.run("auth", "status", environment={"WINDLASS_API_KEY": secret}).returncode == 0
    listed = json.loads(shell.data("keys", "list", "--in", project, "-o", "json"))
    ids = {key["name"]: key["id"] for key in listed}
    assert sorted(ids) == ["carol", "ci", "nightly"]
    assert secret not in json.dumps(listed)
    shell.data("keys", "revoke", ids["ci"], "--yes")
    as_ci = {"WINDLASS_API_KEY": secret}
    wait_until(lambda: shell.run("auth", "status", environment=as_ci).returncode == 1)
    assert json.loads(shell.data("projects", "archive", project, "--yes", "-o", "json"))["status"]


def test_organizations_and_clusters(shell: Shell) -> None:
    organization = str(shell.object("orgs", "create", "Guests")["id"])
    assert shell.object("orgs", "get", organization)["title"] == "Guests"
    shell.data("orgs", "delete", organization, "--title", "Guests")
    assert organization not in shell.data("orgs", "list")
    cluster = shell.object("clusters", "register", "edge")
    assert str(cluster["registration_key"])
    assert "edge" in shell.data("clusters", "list")
    shell.data("clusters", "unregister", str(cluster["id"]), "--yes")
    assert shell.run("clusters", "get", str(cluster["id"])).returncode == 1
    assert shell.data("engines", "list", "-o", "json") == "[]"
    assert shell.data("usage", "--by", "model", "-o", "json") == "[]"


def test_a_secret_goes_in_and_never_comes_out(shell: Shell) -> None:
    put = shell.run("secrets", "put", "wandb", given="hush-hush\n")
    assert put.returncode == 0
    listed = shell.run("secrets", "list", "-o", "yaml")
    assert "wandb" in listed.stdout
    assert "hush" not in put.stdout + put.stderr + listed.stdout
    shell.data("secrets", "delete", "wandb", "--yes")


def test_a_files_way(shell: Shell, rows: str) -> None:
    done = shell.run("files", "upload", rows, "-o", "json")
    file = json.loads(done.stdout)
    assert done.stderr.startswith("rows.jsonl: ")
    prefix = file["id"][:12]
    assert shell.data("files", "content", prefix) == Path(rows).read_text().strip()
    target = shell.home / "copy.jsonl"
    shell.data("files", "download", file["id"], "--to", str(target))
    assert target.read_bytes() == Path(rows).read_bytes()
    again = shell.run("files", "download", file["id"], "--to", str(target))
    assert (again.returncode, "--force" in again.stderr) == (2, True)
    unasked = shell.run("files", "delete", prefix)
    assert (unasked.returncode, "--yes" in unasked.stderr) == (2, True)
    shell.data("files", "delete", prefix, "--yes")
    gone = shell.run("files", "get", file["id"])
    assert gone.returncode == 1
    assert gone.stderr.count("\n") == 1
    assert "request req_" in gone.stderr
    assert list(shell.home.glob(".*part")) == []


def test_a_foreign_file_is_converted_before_its_upload(shell: Shell, tmp_path: Path) -> None:
    source = tmp_path / "my data.json"
    rows = [{"instruction": "a", "output": "b"}, {"instruction": "c", "output": ""}]
    source.write_text(json.dumps(rows))
    file = shell.object("files", "upload", str(source), "--format", "alpaca")
    assert (file["filename"], file["status"]) == ("my data.jsonl", "processed")
    assert shell.object("files", "get", str(file["id"]))["windlass"] == {
        "sha256": hashlib.sha256(
            shell.data("files", "content", file["id"]).encode() + b"\n"
        ).hexdigest(),
        "format": "chat",
        "examples": 1,
        "provenance": {
            "filename": "my data.json",
            "format": "alpaca",
            "sha256": hashlib.sha256(source.read_bytes()).hexdigest(),
            "rows": 2,
            "skipped": 1,
            "converter": f"windlass {version('windlass')}",
        },
    }
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".jsonl"] == []
    other = shell.run("files", "upload", str(source), "--format", "auto", "--purpose", "batch")
    assert (other.returncode, "--purpose" in other.stderr) == (2, True)


def test_a_file_that_would_be_refused_is_not_sent(shell: Shell, tmp_path: Path) -> None:
    source = tmp_path / "my data.json"
    source.write_text(json.dumps([{"instruction": "a", "output": "b"}]))
    for command in (
        ("files", "upload", str(source)),
        ("jobs", "create", "--model", "feather", "--training-file", str(source)),
    ):
        done = shell.run(*command, environment=AWAY)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert f"`windlass files convert '{source}'`" in done.stderr
    source.write_text('{"messages": []}')
    done = shell.run("files", "upload", str(source), environment=AWAY)
    assert f"`windlass files check '{source}'` shows every error." in done.stderr


def test_a_check_asks_the_server_for_the_size_of_a_model(
    shell: Shell, rows: str, model: str
) -> None:
    found = shell.object("files", "check", rows, "--model", model)
    assert found["training"]["basis"] == "one process; this base model"
    assert found["memory"]["least_bytes"] >= 300_000
    # So small a model is taught until there are 200 steps: 17 epochs of 12 examples.
    assert (found["training"]["n_epochs"], found["training"]["steps"]) == (17, 204)
    missing = shell.run("files", "check", rows, "--model", "nobody")
    assert (missing.returncode, missing.stderr.count("\n")) == (1, 1)


def test_a_beginning_must_be_unique(shell: Shell, rows: str) -> None:
    for _ in range(2):
        shell.data("files", "upload", rows, "-q")
    several = shell.run("files", "get", "file-")
    assert several.returncode == 2
    none = shell.run("jobs", "get", "zzzz")
    assert (none.returncode, none.stderr) == (1, "windlass: No job begins with 'zzzz'.\n")


def test_a_method_of_ours_is_asked_for_by_its_name(
    shell: Shell, rows: str, model: str, tmp_path: Path
) -> None:
    create = ("jobs", "create", "--model", model, "--training-file")
    for options, said in (
        (("--method", "reward", "--beta", "0.2"), "--beta cannot be combined with --method reward"),
        (("--method", "distillation"), "The method distillation requires --teacher."),
        (("--method", "kto", "--teacher", model), "--teacher cannot be combined"),
    ):
        refused = shell.run(*create, rows, *options)
        assert refused.returncode == 2
        assert said in refused.stderr
    labelled = tmp_path / "labelled.jsonl"
    answer = {"role": "assistant", "content": "Good day."}
    hello = [{"role": "user", "content": "Hello"}]
    row = {"prompt": hello, "completion": [answer], "label": True}
    labelled.write_text(json.dumps(row) + "\n")
    wished = ("--method", "kto", "--beta", "0.2", "--epochs", "2", "--cpus", "1")
    job = shell.object(*create, str(labelled), *wished)
    assert job["method"]["type"] == "kto"
    assert job["hyperparameters"]["n_epochs"] == 2
    learned = shell.object(*create, rows, "--method", "distillation", "--teacher", model)
    assert learned["method"]["type"] == "distillation"
    for each in (job, learned):
        shell.data("jobs", "cancel", str(each["id"]), "--yes")


def test_a_grader_is_a_file(shell: Shell, rows: str, model: str, tmp_path: Path) -> None:
    create = ("jobs", "create", "--model", model, "--training-file")
    grader = tmp_path / "grader.json"
    grader.write_text("{")
    for options, said in (
        (("--method", "rloo"), "The method rloo requires --grader."),
        (("--grader", str(grader)), "--grader cannot be combined"),
        (("--method", "reinforcement", "--grader", str(grader)), "is not JSON"),
    ):
        refused = shell.run(*create, rows, *options)
        assert refused.returncode == 2
        assert said in refused.stderr
    check = {"type": "string_check", "name": "exact", "operation": "eq",
             "input": "{{sample.output_text}}", "reference": "{{item.answer}}"}  # fmt: skip
    grader.write_text(json.dumps(check))
    prompts = tmp_path / "prompts.jsonl"
    row = {"messages": [{"role": "user", "content": "Hello"}], "answer": "Good day."}
    prompts.write_text(json.dumps(row) + "\n")
    for method in ("reinforcement", "rloo"):
        wished = ("--method", method, "--grader", str(grader), "--epochs", "2")
        job = shell.object(*create, str(prompts), *wished)
        asked = job["method"]["reinforcement"]
        assert job["method"]["type"] == "reinforcement"
        assert (asked["grader"], asked["hyperparameters"]["n_epochs"]) == (check, 2)
        assert job["windlass"]["method"] == method
        shell.data("jobs", "cancel", str(job["id"]), "--yes")


def test_another_trainer_and_other_forms_are_asked_for(shell: Shell, rows: str, model: str) -> None:
    create = ("jobs", "create", "--model", model, "--training-file", rows)
    job = shell.object(*create, "--backend", "torchtune", "--epochs", "1")
    assert job["windlass"]["backend"] == "torchtune"
    exported = shell.object(*create, "--export", "merged", "--export", "gguf", "--cpus", "1")
    for each in (job, exported):
        shell.data("jobs", "cancel", str(each["id"]), "--yes")
    refused = shell.run(*create, "--backend", "nobodys")
    assert refused.returncode == 1
    assert "nobodys" in refused.stderr
    refused = shell.run(*create, "--runtime", "trl")
    assert refused.returncode == 1
    assert "no live cluster offers 'trl' to this project. Offered: none" in refused.stderr
    assert shell.run(*create, "--export", "onnx").returncode == 2


def test_a_jobs_way(shell: Shell, rows: str, model: str) -> None:
    done = shell.run(
        *("jobs", "create", "--model", model, "--training-file", rows, "--method", "dpo"),
        *("--beta", "0.2", "-o", "json"),
    )
    assert (done.returncode, done.stdout) == (1, ""), "chat rows are no preferences"
    options = ("--epochs", "2", "--batch-size", "auto", "--learning-rate-multiplier", "1.5")
    job = shell.object(
        *("jobs", "create", "--model", model, "--training-file", rows, "--suffix", "try"),
        *options,
        *("--seed", "7", "--metadata", "team=red", "--metadata", "n=1"),
    )
    asked = job["hyperparameters"]
    assert (asked["n_epochs"], asked["learning_rate_multiplier"]) == (2, 1.5)
    assert (job["seed"], job["user_provided_suffix"]) == (7, "try")
    one = str(job["id"])
    assert shell.data("jobs", "list", "--metadata", "team=red", "-o", "name") == one
    assert shell.data("jobs", "list", "--metadata", "team=blue", "-o", "name") == ""
    why = shell.object("jobs", "explain", one[:12])
    assert (why["job_id"], why["state"], why["verdicts"]) == (one, "queued", [])
    said = "It waits. No live cluster has the backend trl."
    assert (why["summary"], shell.data("jobs", "explain", one)) == (said, said)
    paused = shell.object("jobs", "pause", one[:12])
    assert paused["windlass"]["state"] == "paused"
    shell.data("jobs", "resume", one)
    assert shell.data("jobs", "checkpoints", one, "-o", "json") == "[]"
    events = shell.data("jobs", "events", one).splitlines()
    assert "Created fine-tuning job" in events[0]
    shell.data("jobs", "cancel", one, "--yes")

    followed = shell.run("jobs", "events", one, "-f", "-o", "json")
    assert followed.returncode == 1, "it did not succeed"
    messages = [json.loads(line)["message"] for line in followed.stdout.splitlines()]
    assert len(messages) >= len(events) + 1
    assert followed.stderr == f"windlass: Job {one} cancelled\n"
    assert shell.run("jobs", "get", one, "-w", "-o", "name").stdout == f"{one}\n"
    assert shell.run("jobs", "logs", one).stdout == ""


def test_an_interrupted_follower_leaves_the_job(shell: Shell, rows: str, model: str) -> None:
    job = str(shell.object("jobs", "create", "--model", model, "--training-file", rows)["id"])
    follower = subprocess.Popen(
        [*PROGRAM, "jobs", "events", "-f", job],
        env=shell.environment | shell.owner,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert follower.stdout is not None
    assert "Created" in follower.stdout.readline()
    follower.send_signal(signal.SIGINT)
    _, said = follower.communicate(timeout=60)
    assert follower.returncode == 130
    assert said == f"The job keeps running. To follow it again: windlass jobs events -f {job}\n"
    assert shell.object("jobs", "get", job)["status"] != "cancelled"
    shell.data("jobs", "cancel", job, "--yes")


def test_a_followed_job_that_is_cancelled_counts_as_failed(
    shell: Shell, rows: str, model: str
) -> None:
    creator = subprocess.Popen(
        [
            *PROGRAM,
            "jobs",
            "create",
            "--model",
            model,
            "--training-file",
            rows,
            "--follow",
            "-o",
            "json",
        ],
        env=shell.environment | shell.owner,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert creator.stderr is not None
    line = creator.stderr.readline()
    while "Created fine-tuning job: " not in line:
        assert line, "it ended early"
        line = creator.stderr.readline()
    shell.data("jobs", "cancel", line.split()[-1], "--yes")
    out, _ = creator.communicate(timeout=60)
    assert (creator.returncode, json.loads(out)["status"]) == (1, "cancelled")


def test_a_terminal_gets_colors_unless_it_wants_none(shell: Shell, model: str) -> None:
    assert model in shell.on_terminal("models", "list")
    assert "\x1b[" in shell.on_terminal("projects", "list")
    assert "\x1b[" not in shell.on_terminal("projects", "list", "--no-color")
    assert "\x1b[" not in shell.on_terminal("projects", "list", environment={"NO_COLOR": "1"})


def test_nothing_there(shell: Shell) -> None:
    done = shell.run("jobs", "list", environment=AWAY)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("windlass: Could not reach the server: http://127.0.0.1:9: ")
    assert "Errno" not in done.stderr
    assert "--base-url or --context" in done.stderr
    done = shell.run("jobs", "list", bare=True)
    assert (done.returncode, "windlass auth login" in done.stderr) == (2, True)


def test_bad_usage(shell: Shell, rows: str) -> None:
    for arguments in (
        ("jobs", "create", "--model", "m"),
        ("jobs", "create", "--model", "m", "--training-file", rows, "--epochs", "many"),
        ("jobs", "create", "--model", "m", "--training-file", rows, "--beta", "0.1"),
        ("jobs", "create", "--model", "m", "--training-file", "none.jsonl"),
        ("jobs", "create", "--model", "m", "--training-file", rows, "--evaluation-grader", rows),
        ("jobs", "list", "-o", "xml"),
        ("keys", "create", "k", "--expires-in", "soon"),
        ("models", "import", str(Path(rows).parent)),
        ("usage", "--by", "weather"),
    ):
        done = shell.run(*arguments)
        assert (done.returncode, done.stdout) == (2, ""), arguments
        assert "Traceback" not in done.stderr


def test_a_model_that_is_not_there(shell: Shell) -> None:
    done = shell.run("chat", "nobody", "hello")
    assert (done.returncode, done.stdout.strip()) == (1, "")
    assert "model_not_found" in done.stderr


def test_a_model_whose_files_say_no_shape_is_not_estimated(shell: Shell, model: str) -> None:
    done = shell.run("models", "fit", model, "--gpu-memory", "24Gi")
    assert (done.returncode, done.stdout) == (1, "")
    assert f"What '{model}' takes is not known" in done.stderr


def test_the_shell_completes_ids(shell: Shell, model: str, rows: str) -> None:
    file = str(shell.object("files", "upload", rows)["id"])

    def completed(*words: str, environment: dict[str, str] | None = None) -> list[str]:
        done = shell.run(
            environment={
                "_WINDLASS_COMPLETE": "complete_bash",
                "COMP_WORDS": " ".join(("windlass", *words)),
                "COMP_CWORD": str(len(words)),
                **(environment or {}),
            }
        )
        assert done.stderr == ""
        return done.stdout.split()

    assert "jobs" in completed("jo")
    assert completed("models", "get", "fea") == [model]
    assert completed("files", "get", file[:20]) == [file]
    assert completed("files", "get", "file", environment=AWAY) == []
