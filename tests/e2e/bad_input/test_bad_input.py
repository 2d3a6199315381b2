"""Files and jobs that are refused: which field, why, and nothing half-done."""

from typing import Any

import pytest
from openai import BadRequestError, NotFoundError
from tests.support.clients.refusals import refusal, refused
from tests.support.factories.tenants import Tenants
from tests.support.processes.front_door import (
    GOOD,
    MODEL,
    PREFERENCE,
    Front,
    chat,
    import_model,
    jsonl,
    upload,
)
from tests.support.waiting import wait_until

BASE = "tiny"
# More than is inspected while the upload waits.
LARGE = jsonl([chat(("user", "x" * 4000), ("assistant", "y"))]) * 2300


@pytest.fixture(scope="module")
def client(tenants: Tenants) -> Any:
    with tenants.admin.http() as http:
        assert import_model(http, BASE, MODEL, for_everyone=True).status_code == 200
    with tenants.member.http() as http:
        assert import_model(http, "private", MODEL).status_code == 200
    return tenants.member.openai()


@pytest.fixture(scope="module")
def good(client: Any) -> str:
    return str(upload(client, jsonl([GOOD] * 20)).id)


@pytest.fixture(scope="module")
def pairs(client: Any) -> str:
    return str(upload(client, jsonl([PREFERENCE] * 20)).id)


UNUSABLE: dict[str, tuple[bytes, int | None, str]] = {
    "not json": (jsonl([GOOD, "{oops"]), 2, "not a JSON object"),
    "no object": (jsonl([GOOD, "[1]"]), 2, "not a JSON object"),
    "not utf-8": (jsonl([GOOD]) + b'{"messages": "\xff"}\n', 2, "UTF-8"),
    "half a line": (jsonl([GOOD]) + b'{"messages": [', 2, "not a JSON object"),
    "empty": (b"", None, "no example"),
    "blank": (b"\n \n\n", None, "no example"),
    "wrong role": (jsonl([GOOD, GOOD, chat(("pirate", "x"), ("assistant", "y"))]), 3, "role"),
    "no role": (jsonl([{"messages": [{"content": "x"}]}]), 1, "role"),
    "no assistant": (jsonl([chat(("user", "x"))]), 1, "no assistant message"),
    "no messages": (jsonl([{"messages": []}]), 1, "messages"),
    "unknown format": (jsonl([{"text": "x"}]), 1, "messages"),
    "plain completion": (jsonl([{"prompt": "x", "completion": "y"}]), 1, "prompt"),
    "mixed": (jsonl([GOOD, PREFERENCE]), 2, "preference"),
    "misspelled": (jsonl([{**GOOD, "wieght": 1}]), 1, "wieght"),
    "content of a number": (jsonl([{"messages": [{"role": "user", "content": 1}]}]), 1, "content"),
    "too deep": (b"[" * 5000 + b"]" * 5000 + b"\n", 1, "JSON"),
    "answer in a preference": (
        jsonl([{**PREFERENCE, "input": chat(("user", "x"), ("assistant", "y"))}]), 1, "assistant",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNUSABLE)
def test_a_file_that_cannot_train_is_refused_at_upload(
    client: Any, front: Front, name: str
) -> None:
    content, line, reason = UNUSABLE[name]
    before, objects = {file.id for file in client.files.list()}, front.objects()
    said = refused(BadRequestError, upload, client, content)
    assert (said.code, said.param) == ("invalid_training_file", "file")
    assert said.message.startswith("t.jsonl: " + (f"Line {line}: " if line else ""))
    assert reason in said.message
    assert {file.id for file in client.files.list()} == before
    assert front.objects() <= objects


def test_a_file_for_another_purpose_is_not_inspected(client: Any) -> None:
    assert upload(client, b"{oops", purpose="user_data").status == "processed"


def test_a_large_file_is_judged_afterwards_and_then_refused(client: Any) -> None:
    lines = LARGE.count(b"\n") + 1
    file = upload(client, LARGE + b"{oops\n")
    assert file.status == "uploaded"
    judged = wait_until(lambda: _judged(client, file.id))
    assert judged.status == "error"
    assert judged.status_details.startswith(f"Line {lines}: This is not a JSON object")
    said = refused(BadRequestError, create, client, training_file=file.id)
    assert (said.code, said.param) == ("invalid_training_file", "training_file")
    assert said.message.startswith(f"Line {lines}: ")


def test_a_job_on_a_file_still_to_be_judged_fails_with_line_and_reason(
    client: Any, front: Front
) -> None:
    lines = LARGE.count(b"\n") + 1
    with front.inspection_held():
        file = upload(client, LARGE + jsonl([chat(("user", "x"))]))
        job = create(client, training_file=file.id)
        assert job.status == "validating_files"
    failed = wait_until(lambda: _ended(client, job.id))
    assert failed.status == "failed"
    assert (failed.error.code, failed.error.param) == ("invalid_training_file", "training_file")
    assert failed.error.message.startswith(f"Line {lines}: There is no assistant message")
    assert failed.fine_tuned_model is None
    events = list(client.fine_tuning.jobs.list_events(job.id))
    assert any(event.level == "error" and f"Line {lines}" in event.message for event in events)


def _judged(client: Any, file_id: str) -> Any:
    file = client.files.retrieve(file_id)
    return file if file.status != "uploaded" else None


def _ended(client: Any, job_id: str) -> Any:
    job = client.fine_tuning.jobs.retrieve(job_id)
    return job if job.status in ("failed", "succeeded", "cancelled") else None


def create(client: Any, **fields: Any) -> Any:
    return client.fine_tuning.jobs.create(**{"model": BASE, **fields})


def supervised(**hyperparameters: Any) -> dict[str, Any]:
    return {"method": {"type": "supervised", "supervised": {"hyperparameters": hyperparameters}}}


def dpo(**hyperparameters: Any) -> dict[str, Any]:
    return {"method": {"type": "dpo", "dpo": {"hyperparameters": hyperparameters}}}


def extra(**fields: Any) -> dict[str, Any]:
    return {"extra_body": fields}


AT = "method.supervised.hyperparameters"
WRONG_JOBS: list[tuple[dict[str, Any], str]] = [
    (supervised(n_epochs=0), f"{AT}.n_epochs"),
    (supervised(n_epochs=1.5), f"{AT}.n_epochs"),
    (supervised(n_epochs=10**6), f"{AT}.n_epochs"),
    (supervised(n_epochs=10**40), f"{AT}.n_epochs"),
    (supervised(n_epochs="many"), f"{AT}.n_epochs"),
    (supervised(n_epochs=True), f"{AT}.n_epochs"),
    (supervised(batch_size=-1), f"{AT}.batch_size"),
    (supervised(batch_size="8"), f"{AT}.batch_size"),
    (supervised(batch_size=10**9), f"{AT}.batch_size"),
    (supervised(learning_rate_multiplier=0), f"{AT}.learning_rate_multiplier"),
    (supervised(learning_rate_multiplier=-0.5), f"{AT}.learning_rate_multiplier"),
    (supervised(learning_rate_multiplier=10**9), f"{AT}.learning_rate_multiplier"),
    (supervised(learning_rate_multiplier=[1]), f"{AT}.learning_rate_multiplier"),
    (supervised(beta=0.1), f"{AT}.beta"),
    (supervised(epochs=3), f"{AT}.epochs"),
    (dpo(beta=-1), "method.dpo.hyperparameters.beta"),
    (dpo(beta="high"), "method.dpo.hyperparameters.beta"),
    ({"hyperparameters": {"n_epochs": 0}}, "hyperparameters.n_epochs"),
    ({"hyperparameters": {"rate": 1}}, "hyperparameters.rate"),
    ({"hyperparameters": {"n_epochs": 1}, **supervised(n_epochs=1)}, "hyperparameters"),
    ({"method": {"type": "magic"}}, "method.type"),
    ({"method": {"type": "supervised", "dpo": {}}}, "method"),
    ({"method": {}}, "method.type"),
    ({"method": "dpo"}, "method"),
    ({"suffix": "../x"}, "suffix"),
    ({"suffix": "a b"}, "suffix"),
    ({"suffix": "x" * 65}, "suffix"),
    ({"suffix": "a:b"}, "suffix"),
    ({"suffix": "a/b"}, "suffix"),
    ({"suffix": ".."}, "suffix"),
    ({"suffix": "a\nb"}, "suffix"),
    ({"suffix": "-rf"}, "suffix"),
    ({"suffix": ""}, "suffix"),
    ({"suffix": "ä"}, "suffix"),
    ({"seed": -1}, "seed"),
    ({"seed": 2**31}, "seed"),
    ({"seed": 10**40}, "seed"),
    ({"seed": "1"}, "seed"),
    ({"seed": 1.5}, "seed"),
    ({"metadata": {f"k{number}": "v" for number in range(17)}}, "metadata"),
    ({"metadata": {"k" * 65: "v"}}, "metadata." + "k" * 65),
    ({"metadata": {"k": "v" * 513}}, "metadata.k"),
    ({"metadata": {"k": 1}}, "metadata.k"),
    ({"metadata": {"": "v"}}, "metadata"),
    ({"metadata": ["k"]}, "metadata"),
    ({"model": ""}, "model"),
    ({"model": "unknown"}, "model"),
    ({"model": "../tiny"}, "model"),
    ({"model": "x" * 300}, "model"),
    ({"model": "a\nb"}, "model"),
    ({"model": 7}, "model"),
    ({"training_file": "file-unknown"}, "training_file"),
    ({"training_file": ""}, "training_file"),
    ({"training_file": "x" * 300}, "training_file"),
    ({"training_file": "../../etc/passwd"}, "training_file"),
    ({"validation_file": "file-unknown"}, "validation_file"),
    ({"integrations": [{"type": "comet"}]}, "integrations.0.type"),
    ({"integrations": [{"type": "mlflow"}]}, "integrations.0.mlflow"),
    ({"integrations": [{"type": "mlflow", "mlflow": {"tracking_uri": "https://10.0.0.1",
                                                     "experiment": "e"}}]},
     "integrations.0.mlflow.tracking_uri"),
    ({"integrations": [{"type": "wandb", "wandb": {}}]}, "integrations.0.wandb.project"),
    ({"integrations": [{"type": "wandb", "wandb": {"project": "p", "api_key": "s"}}]},
     "integrations.0.wandb.api_key"),
    (extra(command=["sh"]), "command"),
    (extra(windlass="trl"), "windlass"),
    (extra(windlass={"command": ["sh"]}), "windlass.command"),
    (extra(windlass={"backend": "nope"}), "windlass.backend"),
    (extra(windlass={"backend": "../trl"}), "windlass.backend"),
    (extra(windlass={"config": {"output_dir": "/etc"}}), "windlass.config.output_dir"),
    (extra(windlass={"config": {"rank": 10**40}}), "windlass.config.rank"),
    (extra(windlass={"config": {"é\n": 1}}), "windlass.config"),
    (extra(windlass={"config": {"x" * 5000: 1}}), "windlass.config"),
    (extra(windlass={"resources": {"gpus": -1}}), "windlass.resources.gpus"),
    (extra(windlass={"resources": {"gpus": 10**40}}), "windlass.resources.gpus"),
]  # fmt: skip


def test_a_wrong_field_of_a_job_is_named(client: Any, good: str, pairs: str) -> None:
    wrong = []
    for fields, param in WRONG_JOBS:
        fields = {"training_file": pairs if "dpo" in param else good, **fields}
        said = refused(BadRequestError, create, client, **fields)
        if said.param != param and not (param == "windlass.config" and said.param):
            wrong.append((str(fields)[:120], param, said))
    assert not wrong, "\n".join(map(str, wrong))
    made = {job.training_file for job in client.fine_tuning.jobs.list()}
    assert not made & {good, pairs}


def test_an_unknown_method_is_refused_by_name(client: Any, good: str) -> None:
    said = refused(
        BadRequestError, create, client, training_file=good, method={"type": "telepathy"}
    )
    assert said.param == "method.type"
    assert "supervised" in said.message
    assert "dpo" in said.message


def test_reinforcement_needs_a_grader(client: Any, good: str) -> None:
    said = refused(
        BadRequestError, create, client, training_file=good, method={"type": "reinforcement"}
    )
    assert said.param == "method.reinforcement.grader"


def test_a_file_must_fit_its_method(client: Any, good: str, pairs: str) -> None:
    for training, method in ((good, "dpo"), (pairs, "supervised")):
        said = refused(
            BadRequestError, create, client, training_file=training, method={"type": method}
        )
        assert (said.code, said.param) == ("invalid_training_file", "training_file")
        assert method in said.message
    said = refused(BadRequestError, create, client, training_file=good, validation_file=pairs)
    assert (said.code, said.param) == ("invalid_validation_file", "validation_file")


def test_a_file_of_another_purpose_does_not_train(client: Any) -> None:
    file = upload(client, jsonl([GOOD]), purpose="user_data")
    said = refused(BadRequestError, create, client, training_file=file.id)
    assert (said.code, said.param) == ("invalid_file_purpose", "training_file")


def test_a_foreign_file_or_model_is_as_unknown_as_one_that_never_was(
    client: Any, good: str, tenants: Tenants
) -> None:
    for outsider in tenants.outsiders:
        theirs = outsider.openai()
        own = upload(theirs, jsonl([GOOD])).id
        said = refused(BadRequestError, create, theirs, training_file=good)
        never = refused(BadRequestError, create, theirs, training_file="file-never")
        assert said.message.replace(good, "") == never.message.replace("file-never", "")
        assert (said.code, never.code) == ("file_not_found", "file_not_found")
        foreign = refused(BadRequestError, create, theirs, training_file=own, model="private")
        assert (foreign.code, foreign.param) == ("model_not_found", "model")
        assert create(theirs, training_file=own).status == "queued"


def test_jobs_that_are_not_there(client: Any) -> None:
    jobs = client.fine_tuning.jobs
    for call in (
        jobs.retrieve, jobs.cancel, jobs.pause, jobs.resume, jobs.list_events,
        jobs.checkpoints.list,
    ):  # fmt: skip
        for odd in ("ftjob-unknown", "x" * 7000, "ä" * 1200, "..%2f", "a\nb", "'; --"):
            assert refused(NotFoundError, call, odd).status == 404


def test_a_job_wants_its_required_fields(tenants: Tenants) -> None:
    with tenants.member.http() as http:
        for body, param in (
            ({}, "model"),
            ({"model": BASE}, "training_file"),
            ({"training_file": "f"}, "model"),
        ):
            answer = http.post("/v1/fine_tuning/jobs", json=body)
            assert refusal(answer, 400).param == param


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "-1e999"])
def test_what_is_no_number_is_not_taken_for_auto(tenants: Tenants, good: str, number: str) -> None:
    body = (
        f'{{"model": "{BASE}", "training_file": "{good}", "method": {{"type": "supervised", '
        f'"supervised": {{"hyperparameters": {{"learning_rate_multiplier": {number}}}}}}}}}'
    )
    with tenants.member.http() as http:
        headers = {"content-type": "application/json"}
        answer = http.post("/v1/fine_tuning/jobs", content=body, headers=headers)
    assert "hyperparameters" in str(refusal(answer, 400).param)
