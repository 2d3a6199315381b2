"""Parameters of the query that a job is created with."""

import pytest

from windlass.core.errors import InvalidArgument
from windlass.gateway.openapi.jobs import operation
from windlass.jobs_api.query import CreationQuery, UnsentFiles, typed
from windlass.jobs_api.request import CheckJob, CreateJob, decode


def test_a_dry_run_says_what_it_knows_of_files() -> None:
    found = typed(
        {"dry_run": "true", "training_examples": "12", "training_format": "chat"}, CreationQuery
    )
    assert found.dry_run
    assert found.given == {"training_examples": 12, "training_format": "chat"}
    assert not typed({}, CreationQuery).dry_run
    assert not typed({"dry_run": "false"}, CreationQuery).dry_run


@pytest.mark.parametrize(
    ("values", "param", "said"),
    [
        ({"dry_run": "maybe"}, "dry_run", "expected a boolean"),
        ({"dry_run": ""}, "dry_run", "expected a boolean"),
        ({"dry_run": "1", "training_format": "chatt"}, "training_format", "did you mean 'chat'?"),
        ({"dry_run": "1", "training_examples": "0"}, "training_examples", "at least 1"),
        ({"training_examples": "5"}, "training_examples", "only allowed with dry_run"),
        ({"dry_run": "0", "validation_format": "chat"}, "validation_format", "only allowed"),
    ],
)
def test_a_wrong_parameter_is_named(values: dict[str, str], param: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said) as refused:
        typed(values, CreationQuery)
    assert refused.value.param == param


def test_only_a_dry_run_may_leave_the_training_file_out() -> None:
    body = b'{"model": "tiny"}'
    assert decode(body, CheckJob).training_file == ""
    for wrong, kind in ((body, CreateJob), (b'{"model": "tiny", "training_file": ""}', CheckJob)):
        with pytest.raises(InvalidArgument) as refused:
            decode(wrong, kind)
        assert refused.value.param == "training_file"


def test_only_a_dry_run_may_leave_the_file_of_an_evaluation_out() -> None:
    body = b'{"model": "tiny", "training_file": "f", "windlass": {"evaluation": {}}}'
    checked = decode(body, CheckJob).evaluation
    assert checked is not None
    assert (checked.file, checked.max_examples) == ("", 100)
    with pytest.raises(InvalidArgument) as refused:
        decode(body, CreateJob)
    assert refused.value.param == "windlass.evaluation.file"


def test_every_parameter_is_described() -> None:
    described = {one["name"]: one["schema"] for one in operation()["parameters"]}
    assert {*CreationQuery.__struct_fields__, "idempotency-key"} == described.keys()
    assert described["dry_run"]["type"] == "boolean"
    assert "chat" in described["training_format"]["enum"]
    assert set(UnsentFiles.__struct_fields__) < described.keys()
