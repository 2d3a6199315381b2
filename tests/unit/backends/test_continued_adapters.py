"""Adapters that a training begins with: what may be read as one, and what can begin as it."""

import json
from pathlib import Path
from typing import Any

import pytest

from windlass.backends import InvalidConfig, RenderContext, Sizing, TRLConfig
from windlass.backends.adapters import AdapterShape

SHAPE: dict[str, Any] = {
    "peft_type": "LORA",
    "r": 8,
    "lora_alpha": 24,
    "target_modules": ["q_proj", "v_proj"],
    "use_dora": True,
}
CONTEXT = RenderContext(
    model=Path("/run/model"),
    dataset=Path("/run/data"),
    output=Path("/run/out"),
    device="cpu",
    companions={"adapter": Path("/run/adapter")},
)


def made(**config: Any) -> TRLConfig:
    return TRLConfig.from_openai(
        method="supervised",
        hyperparameters={},
        seed=1,
        sizing=Sizing(examples=100, model_bytes=1000),
        extra=config,
        adapter=AdapterShape.parse(json.dumps(SHAPE).encode()).to_document(),
    )


def test_an_adapter_has_the_shape_that_it_begins_with_and_is_told_where_it_lies() -> None:
    config = made()
    document = config.to_document()
    assert document["from_adapter"] is True
    assert (document["peft"]["r"], document["peft"]["alpha"]) == (8, 24)
    assert document["peft"]["use_dora"] is True
    read = TRLConfig.from_document(document, TRLConfig.schema_version)
    assert read == config
    command = read.to_command(CONTEXT)
    assert command[command.index("--begin-with") + 1] == "/run/adapter"


def test_other_documents_do_not_speak_of_it() -> None:
    """A release that does not know the field refuses it."""
    document = made().to_document() | {"from_adapter": False}
    assert "from_adapter" not in TRLConfig.from_document(document, 1).to_document()


def test_no_command_leaves_the_adapter_out() -> None:
    for context in (None, RenderContext.of_pod()):
        with pytest.raises(InvalidConfig, match="from_adapter"):
            made().to_command(context)


def test_an_adapter_is_needed_to_begin_with_one() -> None:
    document = made().to_document() | {"peft": None}
    with pytest.raises(InvalidConfig) as refused:
        TRLConfig.from_document(document, 1)
    assert refused.value.field == "peft"


def test_more_may_be_asked_for() -> None:
    peft = made(rank=32, target_modules="all-linear", dropout=0.0).to_document()["peft"]
    assert (peft["r"], peft["alpha"], peft["target_modules"]) == (32, 64, "all-linear")
    assert made(target_modules=["v_proj", "q_proj", "o_proj"]).to_document()["peft"]["r"] == 8


@pytest.mark.parametrize(
    "change",
    [
        {"peft_type": "IA3"},
        {"r": 0},
        {"r": "8"},
        {"target_modules": ".*_proj"},
        {"target_modules": ["--flag"]},
        {"bias": "all"},
        {"rank_pattern": {"q_proj": 4}},
        {"alpha_pattern": {"q_proj": 4}},
    ],
)
def test_what_is_no_plain_lora_adapter_is_not_read(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\S"):
        AdapterShape.parse(json.dumps(SHAPE | change).encode())


def test_a_document_that_is_nested_without_end_is_no_shape() -> None:
    nested = b'{"unknown":' + b"[" * 100_000
    with pytest.raises(ValueError, match=r"."):
        AdapterShape.parse(nested)
