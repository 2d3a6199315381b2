"""A setting of LoRA is written in one place, and reaches request, document and trainer from it."""

import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from windlass.backends import Sizing, TRLConfig, TRLPeftConfig
from windlass.backends.torchtune.document import Adapter, TorchTuneSettings
from windlass.backends.trl import methods as trl_methods
from windlass.backends.trl.lora import document_name, request_name
from windlass.gateway.openapi.jobs import components

VALUES: dict[str, Any] = {
    "r": 4,
    "lora_alpha": 5,
    "lora_dropout": 0.25,
    "target_modules": ["q_proj", "v_proj"],
    "use_rslora": True,
    "use_dora": True,
    "load_in_4bit": True,
}


def made(*targets: str, **config: Any) -> TRLConfig:
    return TRLConfig.from_openai(
        method="supervised",
        hyperparameters={},
        seed=1,
        sizing=Sizing(examples=100, model_bytes=1000, lora_targets=targets),
        extra=config,
    )


@pytest.mark.parametrize("setting", fields(TRLPeftConfig), ids=lambda setting: setting.name)
def test_a_setting_goes_from_the_request_to_the_trainer(setting: Any) -> None:
    value = VALUES[setting.name]
    asked = request_name(setting)
    assert asked in components()["TRLSettings"]["properties"]
    stored = made(**{asked: value}).to_document()
    assert stored["peft"][document_name(setting)] == value
    # As the runner reads it.
    read = TRLConfig.from_document(stored, TRLConfig.schema_version)
    assert getattr(read.peft_config, setting.name) == value
    arguments = read.to_args()
    at = arguments.index(f"--{setting.metadata.get('flag', setting.name)}") + 1
    values = value if isinstance(value, list) else [value]
    said = [str(one).lower() if isinstance(one, bool) else str(one) for one in values]
    assert arguments[at : at + len(said)] == said


@pytest.mark.parametrize(
    ("asked", "layers"),
    [
        ({}, ["qkv_proj"]),
        ({"target_modules": "all-linear"}, "all-linear"),
        ({"target_modules": ["o_proj"]}, ["o_proj"]),
    ],
)
def test_the_layers_of_a_preset_are_those_of_an_adapter_that_names_none(
    asked: dict[str, Any], layers: object
) -> None:
    assert made("qkv_proj", **asked).to_document()["peft"]["target_modules"] == layers
    assert made().to_document()["peft"]["target_modules"] == "all-linear"
    assert made("qkv_proj", lora=False).to_document()["peft"] is None


LAST = '    load_in_4bit: bool = field(default=False, metadata={"later": True})\n'
NEW = '    spare: Name = field(default="x", metadata={"flag": "lora_task_type", "later": True})\n'
PROGRAM = """
import sys
from importlib.machinery import SourceFileLoader
source = open(sys.argv[1]).read()
assert sys.argv[2] in source
plain = SourceFileLoader.get_code

def longer(loader, name):
    if name != "windlass.backends.trl.methods":
        return plain(loader, name)
    return compile(source.replace(sys.argv[2], sys.argv[2] + sys.argv[3]), sys.argv[1], "exec")

SourceFileLoader.get_code = longer
from windlass.backends import Sizing, TRLConfig
from windlass.gateway.openapi.jobs import components
assert "spare" in components()["TRLSettings"]["properties"]
config = TRLConfig.from_openai(
    method="supervised", hyperparameters={}, seed=1, extra={"spare": "CAUSAL_LM"},
    sizing=Sizing(examples=100, model_bytes=1000),
)
stored = config.to_document()
assert stored["peft"]["spare"] == "CAUSAL_LM"
arguments = TRLConfig.from_document(stored, TRLConfig.schema_version).to_args()
assert arguments[arguments.index("--lora_task_type") + 1] == "CAUSAL_LM"
"""


def test_a_new_setting_is_one_line() -> None:
    """The program runs with a list of settings that is one line longer."""
    source = str(Path(trl_methods.__file__))
    command = [sys.executable, "-c", PROGRAM, source, LAST, NEW]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_torchtunes_requests_follow_its_adapters() -> None:
    asked = [name for name in TorchTuneSettings.__struct_fields__ if name in adapter_fields()]
    assert asked == list(adapter_fields())
    for name, hint in adapter_fields().items():
        assert get_type_hints(TorchTuneSettings, include_extras=True)[name] == hint | None
        assert name in components()["TorchTuneSettings"]["properties"]


def adapter_fields() -> dict[str, Any]:
    return get_type_hints(Adapter, include_extras=True)
