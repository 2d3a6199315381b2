"""TorchTune's arguments against those of Kubeflow's SDK 0.5.0, case by case.

`kf_torchtune_args.json` is what its `get_args_using_torchtune_config` returned.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from windlass.backends import (
    DataFormat,
    DataType,
    HuggingFaceDatasetInitializer,
    Initializer,
    LoraConfig,
    Loss,
    RenderContext,
    TorchTuneConfig,
    TorchTuneInstructDataset,
)

GOLDEN: dict[str, Any] = json.loads(
    (Path(__file__).parent / "excerpts/kf_torchtune_args.json").read_text()
)
CE = Loss.CEWithChunkedOutputLoss

CASES: dict[str, tuple[TorchTuneConfig, str | None]] = {
    "empty": (TorchTuneConfig(), None),
    "basic": (TorchTuneConfig(dtype=DataType.BF16, batch_size=8, epochs=3, loss=CE), None),
    "zeros_are_dropped": (TorchTuneConfig(batch_size=0, epochs=0), None),
    "num_nodes_resources_not_in_args": (
        TorchTuneConfig(num_nodes=2, resources_per_node={"gpu": 2}),
        None,
    ),
    "lora_default": (TorchTuneConfig(peft_config=LoraConfig()), None),
    "lora_full": (
        TorchTuneConfig(
            peft_config=LoraConfig(
                apply_lora_to_mlp=True,
                apply_lora_to_output=False,
                lora_attn_modules=["q_proj", "k_proj"],
                lora_rank=8,
                lora_alpha=16,
                lora_dropout=0.1,
                quantize_base=True,
                use_dora=False,
            )
        ),
        None,
    ),
    "lora_no_attn": (TorchTuneConfig(peft_config=LoraConfig(lora_attn_modules=[])), None),
    "dataset": (
        TorchTuneConfig(
            dataset_preprocess_config=TorchTuneInstructDataset(
                source=DataFormat.PARQUET,
                split="train[:95%]",
                train_on_input=True,
                new_system_prompt="You are an AI assistant.",
                column_map={"input": "in", "output": "out"},
            )
        ),
        None,
    ),
    "dataset_empty": (
        TorchTuneConfig(dataset_preprocess_config=TorchTuneInstructDataset()),
        None,
    ),
    "hf_repo": (TorchTuneConfig(epochs=1), "hf://tatsu-lab/alpaca"),
    "hf_repo_noscheme": (TorchTuneConfig(epochs=1), "tatsu-lab/alpaca"),
    "hf_dir": (TorchTuneConfig(epochs=1), "hf://tatsu-lab/alpaca/data"),
    "hf_file": (TorchTuneConfig(epochs=1), "hf://tatsu-lab/alpaca/data/xxx.json"),
    "everything": (
        TorchTuneConfig(
            dtype=DataType.FP32,
            batch_size=2,
            epochs=1,
            loss=CE,
            num_nodes=1,
            peft_config=LoraConfig(lora_rank=4),
            dataset_preprocess_config=TorchTuneInstructDataset(source=DataFormat.JSON),
            resources_per_node={"gpu": 1},
        ),
        "hf://tatsu-lab/alpaca",
    ),
}
REFUSED = {name: said for name, said in GOLDEN.items() if name.startswith("bad ")}


def test_every_case_is_tried() -> None:
    assert set(CASES) | set(REFUSED) == set(GOLDEN)


@pytest.mark.parametrize("case", CASES)
def test_the_arguments_are_those_of_kubeflow(case: str) -> None:
    config, uri = CASES[case]
    source = Initializer(dataset=HuggingFaceDatasetInitializer(storage_uri=uri)) if uri else None
    assert config.to_args(RenderContext.of_pod(initializer=source)) == GOLDEN[case]
    if source is None:
        assert config.to_args() == GOLDEN[case]


@pytest.mark.parametrize("case", REFUSED)
def test_what_kubeflow_refuses_is_refused(case: str) -> None:
    # Kubeflow's says of a loss that a text has no attribute `value`.
    wrong: dict[str, Any] = {"dtype": "bf16"} if "dtype='bf16'" in case else {"loss": "x"}
    config, (field,) = TorchTuneConfig(**wrong), wrong
    with pytest.raises(ValueError, match=rf"Invalid {field}: ") as caught:
        config.to_args()
    if REFUSED[case].startswith("ValueError: "):
        assert REFUSED[case].removeprefix("ValueError: ") in str(caught.value)
