"""Documents of jobs that the command makes of files, options and `--set`."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from windlass.backends import Sizing, get_backend
from windlass.cli.framework.failures import USAGE, Problem
from windlass.cli.jobs.creation import recipes, settings
from windlass.cli.jobs.creation.document import JobDocument, read
from windlass.cli.jobs.creation.examples import FOLDER, ExampleName, text_of
from windlass.cli.jobs.methods import MethodName
from windlass.gateway.openapi.jobs import components
from windlass.jobs.creation.spec_builder import drafted
from windlass.jobs.domain.job import Spec
from windlass.jobs_api.request import decode

GRADER = {
    "type": "string_check",
    "name": "exact",
    "operation": "eq",
    "input": "{{sample.output_text}}",
    "reference": "{{item.answer}}",
}
OPENAPI = {"components": {"schemas": components()}}


def made(body: dict[str, Any], *assignments: str) -> dict[str, Any]:
    document = JobDocument(body)
    settings.apply(document, OPENAPI, assignments)
    return document.body


def refusal(assignment: str, body: dict[str, Any] | None = None) -> str:
    with pytest.raises(Problem) as refused:
        made(body or {}, assignment)
    assert refused.value.code == USAGE
    return str(refused.value)


def test_settings_are_typed_by_the_document() -> None:
    found = made(
        {},
        "suffix=123",
        "seed=7",
        "method.type=supervised",
        "method.supervised.hyperparameters.n_epochs=3",
        "method.supervised.hyperparameters.batch_size=auto",
        "windlass.config.lora=false",
        "windlass.config.warmup_ratio=1e-2",
        "windlass.config.weight_decay=0",
        "windlass.config.target_modules=[q_proj, v_proj]",
        "windlass.config.packing=null",
        "windlass.export=[gguf]",
        "windlass.checkpoints.keep_last=2",
        "metadata.run=1",
        "metadata.team.name=red=blue",
        "integrations.0.type=wandb",
        "integrations.0.wandb.project=p",
        "integrations.0.wandb.tags.0=one",
    )
    assert found == {
        "suffix": "123",
        "seed": 7,
        "method": {
            "type": "supervised",
            "supervised": {"hyperparameters": {"n_epochs": 3, "batch_size": "auto"}},
        },
        "windlass": {
            "config": {
                "lora": False,
                "warmup_ratio": 0.01,
                "weight_decay": 0,
                "target_modules": ["q_proj", "v_proj"],
                "packing": None,
            },
            "export": ["gguf"],
            "checkpoints": {"keep_last": 2},
        },
        "metadata": {"run": "1", "team.name": "red=blue"},
        "integrations": [{"type": "wandb", "wandb": {"project": "p", "tags": ["one"]}}],
    }


def test_a_grader_and_a_whole_document_are_set_too() -> None:
    at = "method.reinforcement.grader"
    found = made({}, f"{at}.type=string_check", f"{at}.operation=eq", "windlass.document.a.b=[1]")
    assert found["method"]["reinforcement"]["grader"] == {"type": "string_check", "operation": "eq"}
    assert found["windlass"]["document"] == {"a": {"b": [1]}}


def test_every_setting_of_the_document_can_be_set() -> None:
    schema = settings.JobSchema(OPENAPI)
    paths = list(schema._paths(settings._ROOT, "", ()))
    assert {"seed", "windlass.config.rank", "integrations.0.mlflow.tracking_uri"} < set(paths)
    for path in paths:
        steps, kinds = schema._find(path)
        assert (".".join(steps), bool(kinds)) == (path, True)


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("max_length=4096", "Did you mean windlass.config.max_length?"),
        ("windlass.config.max_lenght=4096", "Did you mean windlass.config.max_length?"),
        ("windlass.confg.rank=4", "Did you mean windlass.config.rank?"),
        ("n_epochs=3", "Did you mean method.supervised.hyperparameters.n_epochs or "),
        ("suffix.more=3", "There is no setting 'suffix.more'."),
        ("nothing_like_it=3", "There is no setting 'nothing_like_it'."),
        ("seed=seven", "'seven' is not a whole number."),
        ("seed=7.5", "'7.5' is not a whole number."),
        ("windlass.config.lora=no", "'no' is not true or false."),
        ("windlass.config.lr_scheduler=cosin", "Did you mean 'cosine'?"),
        ("windlass.config.rank=[1]", "'[1]' is not a whole number."),
        ("windlass.export=gguf", "'gguf' is not a list such as [a, b]."),
        ("windlass.export=[gguf", "neither YAML nor JSON"),
        ("windlass.config=5", "'5' is not an object"),
        ("seed", "must have the form KEY=VALUE"),
        ("=1", "must have the form KEY=VALUE"),
        ("integrations.x.type=wandb", "There is no setting"),
    ],
)
def test_a_wrong_setting_is_named(assignment: str, said: str) -> None:
    assert said in refusal(assignment)


def test_settings_of_foreign_backends_pass() -> None:
    body = {"windlass": {"backend": "mine"}}
    assert made(body, "windlass.config.deep.er=4")["windlass"]["config"] == {"deep": {"er": 4}}
    assert "no setting" in refusal("windlass.config.deep=4", {"windlass": {"backend": "trl"}})


def test_nothing_is_set_within_a_text() -> None:
    assert "neither an object nor an array" in refusal("metadata.a=1", {"metadata": "red"})
    assert "neither an object nor an array" in refusal("integrations.4.type=wandb")


def test_options_win_over_the_file() -> None:
    document = JobDocument({"model": "a", "method": {"type": "dpo"}, "windlass": {"method": None}})
    document.put({"model": "b", "suffix": "", "windlass.resources.gpus": 0})
    document.tune({"n_epochs": 2, "batch_size": None, "beta": 0.2})
    assert document.body == {
        "model": "b",
        "method": {"type": "dpo", "dpo": {"hyperparameters": {"n_epochs": 2, "beta": 0.2}}},
        "windlass": {"method": None, "resources": {"gpus": 0}},
    }


def test_a_method_has_its_place_and_so_have_its_hyperparameters() -> None:
    for method, place, where in (
        (MethodName.SUPERVISED, {"method": {"type": "supervised"}}, "method.supervised"),
        (MethodName.RLOO, {"method": {"type": "reinforcement"}, "windlass": {"method": "rloo"}},
         "method.reinforcement"),
        (MethodName.KTO, {"windlass": {"method": "kto"}}, ""),
    ):  # fmt: skip
        document = JobDocument({})
        document.choose(method)
        assert (document.body, document.method) == (place, method.value)
        document.tune({"n_epochs": 2})
        assert document.get(f"{where}.hyperparameters.n_epochs".lstrip(".")) == 2
    document = JobDocument({"method": {"type": "dpo"}, "windlass": {"method": "kto", "config": {}}})
    document.choose(MethodName.ORPO)
    assert document.body == {"windlass": {"method": "orpo", "config": {}}}
    document.choose(MethodName.DPO)
    assert document.body == {"method": {"type": "dpo"}, "windlass": {"config": {}}}
    bare = JobDocument({"model": "m"})
    bare.tune({"n_epochs": None})
    assert bare.body == {"model": "m"}


def test_a_file_is_one_object(tmp_path: Path) -> None:
    file = tmp_path / "my job.yaml"
    file.write_text('{"model": "m"}')
    assert read(file) == {"model": "m"}
    for text in ("", "- a", "a: [", "a: 2024-01-01", "a: .nan", "a: &x [*x]", "5: a", "a\0b"):
        file.write_text(text)
        with pytest.raises(Problem, match=r"my job\.yaml") as refused:
            read(file)
        assert refused.value.code == USAGE


def uncommented(text: str) -> str:
    """An example with every setting that it offers in a comment."""
    return re.sub(r"(?m)^(\s*)#(?=\S)", r"\1", text)


def admitted(body: dict[str, Any]) -> Spec:
    """The specification of a job that its backend accepts."""
    spec = drafted(decode(json.dumps(body).encode()), default_backend="trl", runs_python=False).spec
    backend = get_backend(spec.backend).from_openai(
        method=spec.method,
        hyperparameters=spec.hyperparameters,
        seed=spec.seed,
        sizing=Sizing(examples=1000, model_bytes=10**9, processes=1),
        extra=spec.extra,
        **({"grader": spec.grader} if spec.grader else {}),
    )
    assert backend.to_document()
    return spec


@pytest.mark.parametrize("name", ExampleName)
@pytest.mark.parametrize("edit", [str, uncommented])
def test_every_example_is_a_job_also_with_all_that_it_offers(name: ExampleName, edit: Any) -> None:
    spec = admitted(yaml.safe_load(edit(text_of(name))))
    usual = {"sft": "supervised", "rl": "reinforcement"}
    assert spec.method == usual.get(name, name)


@pytest.mark.parametrize("name", recipes.names())
def test_every_recipe_is_a_job(name: str) -> None:
    document = JobDocument({"model": "m", "training_file": "f"})
    document.merge(recipes.recipe(name))
    if document.method == MethodName.DISTILLATION:
        document.put({"windlass.config.teacher": "larger"})
    if document.method in (MethodName.REINFORCEMENT, MethodName.RLOO):
        document.put({"method.reinforcement.grader": GRADER})
    assert admitted(document.body).method == document.method


@pytest.mark.parametrize("method", ["dpo", "kto", "orpo", "reward"])
def test_a_familys_recipe_goes_with_other_methods(method: str) -> None:
    for family in ("llama", "qwen", "gemma", "mistral", "phi", "deepseek-coder"):
        document = JobDocument({"model": "m", "training_file": "f"})
        document.merge(recipes.recipe(f"sft-{family}"))
        document.choose(MethodName(method))
        assert admitted(document.body).method == method


def test_there_is_a_recipe_of_every_method() -> None:
    made = {JobDocument(recipes.recipe(name)).method for name in recipes.names()}
    assert made == {method.value for method in MethodName}
    with pytest.raises(Problem, match="Did you mean 'sft-lora'"):
        recipes.recipe("sft-lor")
    with pytest.raises(Problem, match="windlass jobs recipes"):
        recipes.recipe("../examples/sft")


def test_what_is_merged_later_wins() -> None:
    document = JobDocument({"a": {"b": 1, "c": {"d": 1}}, "e": [1], "f": 1})
    document.merge({"a": {"b": 2, "c": {"g": 3}}, "e": [2], "h": {}})
    assert document.body == {"a": {"b": 2, "c": {"d": 1, "g": 3}}, "e": [2], "f": 1, "h": {}}


def test_there_is_an_example_of_every_method() -> None:
    assert {file.stem for file in FOLDER.iterdir()} == set(ExampleName)
    assert len(ExampleName) == len(MethodName)
