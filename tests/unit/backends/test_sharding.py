"""Sharding over GPUs: the rule, valid requests, and the resulting JSON."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from windlass.backends import InvalidConfig, RenderContext, Sizing, TRLConfig
from windlass.backends.sharding import (
    FULL_FACTOR,
    GPU_BYTES,
    LORA_FACTOR,
    auto_sharding,
    sharding_flags,
)

PAGE = (Path(__file__).parents[3] / "docs/reference/sharding.md").read_text()
GB = 10**9
CUDA = RenderContext(
    model=Path("/run/model"),
    dataset=Path("/run/data"),
    output=Path("/run/out"),
    device="cuda",
    processes=8,
)


def examples() -> list[list[str]]:
    """The rows of the page's examples."""
    _, _, after = PAGE.partition("| Weights |")
    lines = after.split("\n\n")[0].splitlines()[2:]
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]


@pytest.mark.parametrize("row", examples(), ids=" ".join)
def test_the_documented_examples_are_computed(row: list[str]) -> None:
    weights, trained, gpus, said = row
    made = auto_sharding(
        int(weights.removesuffix(" GB")) * GB, lora=trained == "adapter", processes=int(gpus)
    )
    assert (made or "none") == said


def test_the_page_names_the_numbers() -> None:
    assert len(examples()) >= 6
    assert f"{GPU_BYTES // GB} GB" in PAGE
    assert f"{FULL_FACTOR} times" in PAGE
    assert LORA_FACTOR == 1


def test_what_just_fits_is_not_shared_out() -> None:
    most = GPU_BYTES // FULL_FACTOR
    assert auto_sharding(most, lora=False, processes=2) is None
    assert auto_sharding(most + 1, lora=False, processes=2) == "fsdp2"
    assert auto_sharding(2 * most, lora=False, processes=2) == "fsdp2"
    assert auto_sharding(2 * most + 1, lora=False, processes=2) == "fsdp2_offload"
    # Alone there is nobody to share with.
    assert auto_sharding(100 * most, lora=False, processes=1) is None


GOLDEN: dict[str, tuple[str, dict[str, Any]]] = {
    "fsdp2": (
        "fsdp_config",
        {
            "version": 2,
            "reshard_after_forward": True,
            "cpu_offload": False,
            "activation_checkpointing": True,
            "auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "cpu_ram_efficient_loading": True,
            "state_dict_type": "FULL_STATE_DICT",
        },
    ),
    "zero2": (
        "deepspeed",
        {
            "bf16": {"enabled": "auto"},
            "fp16": {"enabled": "auto"},
            "zero_optimization": {
                "stage": 2,
                "overlap_comm": True,
                "contiguous_gradients": True,
                "reduce_bucket_size": "auto",
            },
            "gradient_accumulation_steps": "auto",
            "gradient_clipping": "auto",
            "train_batch_size": "auto",
            "train_micro_batch_size_per_gpu": "auto",
        },
    ),
    "zero3_offload": (
        "deepspeed",
        {
            "bf16": {"enabled": "auto"},
            "fp16": {"enabled": "auto"},
            "zero_optimization": {
                "stage": 3,
                "overlap_comm": True,
                "contiguous_gradients": True,
                "reduce_bucket_size": "auto",
                "offload_optimizer": {"device": "cpu", "pin_memory": True},
                "stage3_prefetch_bucket_size": "auto",
                "stage3_param_persistence_threshold": "auto",
                "stage3_gather_16bit_weights_on_model_save": True,
                "offload_param": {"device": "cpu", "pin_memory": True},
            },
            "gradient_accumulation_steps": "auto",
            "gradient_clipping": "auto",
            "train_batch_size": "auto",
            "train_micro_batch_size_per_gpu": "auto",
        },
    ),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_the_json_is_as_it_was(name: Any) -> None:
    flag, config = GOLDEN[name]
    given = dict(sharding_flags(name, activation_checkpointing=True))
    assert json.loads(str(given[flag])) == config
    assert given.keys() - {flag} == ({"fsdp"} if flag == "fsdp_config" else set())


def made(model_bytes: int, processes: int, **extra: Any) -> TRLConfig:
    return TRLConfig.from_openai(
        method="supervised",
        hyperparameters={"batch_size": 16},
        seed=1,
        sizing=Sizing(examples=1000, model_bytes=model_bytes, processes=processes),
        extra=extra,
    )


def test_a_job_goes_by_its_size_unless_it_says_otherwise() -> None:
    assert made(2 * GB, 8, lora=False).sharding is None
    assert made(14 * GB, 8, lora=False).sharding == "fsdp2"
    assert made(14 * GB, 8, lora=False, sharding="none").sharding is None
    assert made(14 * GB, 1, lora=False, num_nodes=2, sharding="zero3").sharding == "zero3"
    assert made(140 * GB, 8, load_in_4bit=True).sharding is None
    document = made(14 * GB, 8, lora=False).to_document()
    assert TRLConfig.from_document(document, 1).sharding == "fsdp2"
    # A release that knows no sharding is not told of none.
    assert "sharding" not in made(2 * GB, 8).to_document()


def test_zero_and_qlora_say_what_they_need() -> None:
    assert made(14 * GB, 8, lora=False).libraries == {}
    assert made(14 * GB, 8, sharding="zero2_offload").libraries == {"deepspeed": "sharding"}
    assert made(14 * GB, 8, load_in_4bit=True).libraries == {"bitsandbytes": "load_in_4bit"}


@pytest.mark.parametrize(
    ("processes", "extra", "said"),
    [
        (1, {"sharding": "fsdp2"}, "needs several GPUs"),
        (8, {"sharding": "zero2", "load_in_4bit": True}, "load_in_4bit"),
        (8, {"sharding": "fsdp1"}, "sharding"),
    ],
)
def test_what_cannot_be_shared_is_refused(processes: int, extra: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConfig, match=said) as caught:
        made(14 * GB, processes, **extra)
    assert caught.value.field.startswith("windlass.config")


def test_flags_are_given_where_several_gpus_train() -> None:
    config = made(14 * GB, 8, lora=False)
    args = config.to_args(CUDA)
    assert args[args.index("--fsdp") + 1] == "--fsdp_config"
    assert args[args.index("--gradient_checkpointing") + 1] == "false"
    for elsewhere in (replace(CUDA, device="cpu"), replace(CUDA, processes=1)):
        assert "--fsdp" not in config.to_args(elsewhere)


@pytest.mark.parametrize(("processes", "nodes"), [(2, 1), (2, 2), (1, 4), (16, 1)])
def test_a_batch_is_shared_out_among_all(processes: int, nodes: int) -> None:
    config = made(2 * GB, processes, num_nodes=nodes)
    per_process = config.per_device_train_batch_size * config.gradient_accumulation_steps
    assert per_process * processes * nodes == 16
