import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.backends import InvalidConfig, RenderContext
from windlass.backends.methods import ONLINE, TrainerType
from windlass.backends.trl.config import TRLConfig
from windlass.backends.trl.document import TRLTraining
from windlass.backends.trl.lora import Lora

CPU = RenderContext(
    model=Path("/run/model"),
    dataset=Path("/run/data"),
    output=Path("/run/out"),
    device="cpu",
    python="/opt/python",
    companions={"teacher": Path("/run/teacher")},
)
GRADER = {
    "type": "string_check",
    "name": "exact",
    "operation": "eq",
    "input": "{{sample.output_text}}",
    "reference": "{{item.answer}}",
}
modules = st.from_regex(r"\A[a-z_][a-z0-9_]{0,8}(\.[a-z0-9]{1,4})?\Z")
adapters = st.builds(
    Lora,
    r=st.integers(1, 512),
    alpha=st.integers(1, 1024),
    dropout=st.floats(0, 0.99),
    target_modules=st.just("all-linear") | st.lists(modules, min_size=1, max_size=32),
    use_rslora=st.booleans(),
    use_dora=st.booleans(),
)
shared: dict[str, st.SearchStrategy[Any]] = {
    "learning_rate": st.floats(1e-8, 1),
    "seed": st.integers(0, 2**31 - 1),
    "peft": st.none() | adapters,
    "epochs": st.integers(1, 50),
    "max_steps": st.none() | st.integers(1, 10_000_000),
    "batch_size": st.integers(1, 256),
    "gradient_accumulation_steps": st.integers(1, 256),
    "lr_scheduler": st.sampled_from(["linear", "cosine", "constant", "constant_with_warmup"]),
    "warmup_ratio": st.floats(0, 0.99),
    "weight_decay": st.floats(0, 1),
    "max_length": st.integers(16, 1_048_576),
    "gradient_checkpointing": st.none() | st.booleans(),
    "num_nodes": st.none() | st.integers(1, 64),
}
supervised = st.builds(
    TRLTraining,
    trainer_type=st.just(TrainerType.SFT),
    assistant_only_loss=st.none() | st.booleans(),
    packing=st.none() | st.booleans(),
    **shared,
)
betas = st.none() | st.floats(0.001, 2)
weights = st.none() | st.floats(0.001, 1000)
preference = st.builds(
    TRLTraining,
    trainer_type=st.sampled_from([TrainerType.DPO, TrainerType.ORPO]),
    beta=betas,
    **shared,
)
unpaired = st.builds(
    TRLTraining,
    trainer_type=st.just(TrainerType.KTO),
    beta=betas,
    desirable_weight=weights,
    undesirable_weight=weights,
    **shared | {"batch_size": st.integers(2, 256)},
)
reward = st.builds(
    TRLTraining,
    trainer_type=st.just(TrainerType.REWARD),
    center_rewards_coefficient=weights,
    **shared,
)
distillation = st.builds(
    TRLTraining,
    trainer_type=st.just(TrainerType.DISTILLATION),
    beta=st.none() | st.floats(0, 1),
    teacher=st.sampled_from(["teacher", "ft:base:org::x", "acme/large"]),
    max_completion_length=st.none() | st.integers(1, 16_384),
    temperature=st.none() | st.floats(0.01, 10),
    **{name: each for name, each in shared.items() if name != "max_length"},
)


def of(training: TRLTraining) -> TRLConfig:
    return TRLConfig.from_document(msgspec.to_builtins(training), 1)


backends = (supervised | preference | unpaired | reward | distillation).map(of)


def sft(**fields: Any) -> TRLConfig:
    return of(TRLTraining(trainer_type=TrainerType.SFT, learning_rate=0.001, seed=7, **fields))


def dpo(**fields: Any) -> TRLConfig:
    return of(TRLTraining(trainer_type=TrainerType.DPO, learning_rate=5e-5, seed=7, **fields))


def trained(kind: TrainerType) -> TRLConfig:
    teacher = "acme/large" if kind is TrainerType.DISTILLATION else None
    grader = GRADER if kind in ONLINE else None
    return of(
        TRLTraining(trainer_type=kind, learning_rate=0.001, seed=7, teacher=teacher, grader=grader)
    )


def text(*lines: str) -> list[str]:
    return " ".join(lines).split()


SCHEDULE = (
    "--num_train_epochs 3 --per_device_train_batch_size 8 --per_device_eval_batch_size 8"
    " --gradient_accumulation_steps 1"
)
REST = (
    "--lr_scheduler_type linear --warmup_steps 0.03 --weight_decay 0.0 --max_length 2048 --seed 7"
)
END = (
    "--logging_steps 1 --disable_tqdm true --report_to none"
    " --save_strategy epoch --enable_jit_checkpoint true"
)
PLACES = "--model_name_or_path /run/model --dataset_name /run/data --output_dir /run/out"


def test_full_supervised_training_on_a_cpu() -> None:
    assert sft().to_args(CPU) == text(
        PLACES,
        "--eval_strategy no --use_cpu true --bf16 false --dtype float32",
        "--gradient_checkpointing false --dataloader_pin_memory false",
        SCHEDULE,
        "--learning_rate 0.001",
        REST,
        "--assistant_only_loss true --packing false",
        END,
    )


def test_an_adapter_on_an_accelerator_resumed() -> None:
    context = replace(
        CPU, device="cuda", has_validation=True, resume_from=Path("/run/out/checkpoint-60")
    )
    backend = sft(peft=Lora(r=8, target_modules=["q_proj", "v_proj"], use_dora=True), packing=True)
    assert backend.to_args(context) == text(
        PLACES,
        "--eval_strategy epoch --resume_from_checkpoint /run/out/checkpoint-60",
        "--use_cpu false --bf16 true --dtype bfloat16",
        "--gradient_checkpointing true --dataloader_pin_memory true",
        SCHEDULE,
        "--learning_rate 0.001",
        REST,
        "--assistant_only_loss true --packing true",
        "--use_peft true --lora_r 8 --lora_alpha 32 --lora_dropout 0.05",
        "--lora_target_modules q_proj v_proj --use_rslora false --use_dora true",
        END,
    )


def test_a_preference_training_in_a_pod_of_a_train_job() -> None:
    assert dpo(peft=Lora(), beta=0.3, max_steps=40, epochs=1).to_args() == text(
        PLACES.replace("/run/", "/workspace/")
        .replace("/data", "/dataset")
        .replace("/out", "/output"),
        "--eval_strategy no --use_cpu false --bf16 true --dtype bfloat16",
        "--gradient_checkpointing true --dataloader_pin_memory true",
        SCHEDULE.replace("epochs 3", "epochs 1 --max_steps 40"),
        "--learning_rate 5e-05",
        REST,
        "--beta 0.3 --loss_type sigmoid",
        "--use_peft true --lora_r 16 --lora_alpha 32 --lora_dropout 0.05",
        "--lora_target_modules all-linear --use_rslora false --use_dora false",
        END,
    )


def test_the_command_is_one_process_on_one_node_and_torchrun_on_several() -> None:
    entry = ("-m", "windlass_agent.runner.trainers.trl.entry")
    assert sft().to_command(CPU) == ("/opt/python", *entry, "sft")
    assert dpo().to_command(replace(CPU, nodes=2)) == (
        "/opt/python",
        "-m",
        "torch.distributed.run",
        *entry,
        "dpo",
    )
    assert dpo().to_command(replace(CPU, processes=4)) == (
        *("/opt/python", "-m", "torch.distributed.run", "--standalone"),
        *("--local-addr", "127.0.0.1", "--nproc-per-node", "4", *entry, "dpo"),
    )
    assert dpo().to_command() == ("torchrun", "-m", "trl.scripts.dpo")


def test_each_trainer_wants_its_format() -> None:
    read = {kind: trained(kind).dataset_format for kind in TrainerType}
    assert read == {
        TrainerType.SFT: "chat",
        TrainerType.DPO: "preference",
        TrainerType.ORPO: "preference",
        TrainerType.REWARD: "preference",
        TrainerType.KTO: "unpaired_preference",
        TrainerType.DISTILLATION: "prompt",
        TrainerType.GRPO: "reinforcement",
        TrainerType.RLOO: "reinforcement",
    }


def test_a_teacher_is_a_folder_and_never_a_name_of_the_hub() -> None:
    backend = trained(TrainerType.DISTILLATION)
    assert backend.companions == {"teacher": "acme/large"}
    args = backend.to_args(CPU)
    assert args[args.index("--teacher_model_name_or_path") + 1] == "/run/teacher"
    assert "acme/large" not in args
    assert sft().companions == {}


def test_a_quantized_base_needs_a_gpu() -> None:
    backend = sft(peft=Lora(load_in_4bit=True))
    assert text("--load_in_4bit true --bnb_4bit_quant_type nf4")[0] in backend.to_args(
        replace(CPU, device="cuda")
    )
    with pytest.raises(InvalidConfig, match=r"needs a GPU \(QLoRA\)") as caught:
        backend.to_args(CPU)
    assert caught.value.field == "windlass.config.load_in_4bit"


def test_a_release_that_knows_less_reads_what_it_knows() -> None:
    written = sft(peft=Lora()).to_document()
    assert "load_in_4bit" not in written["peft"]
    assert not {"teacher", "desirable_weight", "temperature"} & written.keys()


@given(backends)
def test_a_document_reads_back_as_it_was_written(backend: TRLConfig) -> None:
    backend.validate()
    document = json.loads(json.dumps(backend.to_document()))
    assert TRLConfig.from_document(document, 1) == backend
    assert backend.num_nodes == document["num_nodes"]


@given(backends, st.sampled_from(["cpu", "cuda"]))
def test_every_argument_is_a_flag_with_its_values(backend: TRLConfig, device: Any) -> None:
    args = backend.to_args(replace(CPU, device=device))
    flags = [arg for arg in args if arg.startswith("--")]
    assert len(flags) == len(set(flags))
    for here, following in zip(args, [*args[1:], "--"], strict=True):
        assert not (here.startswith("--") and following.startswith("--")), here


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"reward_funcs": "os.system"}, "reward_funcs"),
        ({"peft": {"r": 0}}, "peft.r"),
        ({"peft": {"modules": []}}, "peft.modules"),
        ({"trainer_type": "ppo"}, "trainer_type"),
        ({"epochs": 51}, "epochs"),
        ({"learning_rate": 0}, "learning_rate"),
        ({"beta": 0.1}, "beta"),
        ({"seed": None}, "seed"),
    ],
)
def test_a_document_with_a_wrong_field_is_refused(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        TRLConfig.from_document({**sft().to_document(), **change}, 1)
    assert caught.value.field == field


def test_a_document_of_another_version_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="reads version 1, not 2"):
        TRLConfig.from_document(sft().to_document(), 2)


@pytest.mark.parametrize(
    "change",
    [{"packing": True}, {"assistant_only_loss": False}, {"beta": 3.0}],
)
def test_a_preference_document_of_another_method_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(InvalidConfig):
        TRLConfig.from_document({**dpo().to_document(), **change}, 1)


@pytest.mark.parametrize("field", ["model", "dataset", "output", "resume_from", "metrics"])
def test_a_relative_path_is_never_rendered(field: str) -> None:
    changed: dict[str, Any] = {field: Path("json")}
    with pytest.raises(ValueError, match="must be absolute"):
        replace(CPU, **changed)


def test_a_configuration_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        sft().seed = 8  # type: ignore[misc]  # what is tested
    assert replace(sft(), seed=8).seed == 8
