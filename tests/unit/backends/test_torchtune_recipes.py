import pytest

from windlass.backends.torchtune.recipes import (
    Recipe,
    TrainingResources,
    adaptation,
    choose_recipe,
    model_of,
    refusals,
)

LORA = ["model.lora_rank=8", "model.lora_attn_modules=[q_proj,v_proj]"]
QLORA = ["model.quantize_base=True", *LORA]
ONE, TWO = TrainingResources(gpus=1), TrainingResources(gpus=2)


@pytest.mark.parametrize(
    ("overrides", "placement", "name", "suffix"),
    [
        ([], ONE, "full_finetune_single_device", "full_single_device"),
        (LORA, ONE, "lora_finetune_single_device", "lora_single_device"),
        (QLORA, ONE, "lora_finetune_single_device", "qlora_single_device"),
        ([], TWO, "full_finetune_distributed", "full"),
        (LORA, TWO, "lora_finetune_distributed", "lora"),
        (QLORA, TWO, "lora_finetune_distributed", "qlora"),
        ([], TrainingResources(nodes=2, gpus=8), "full_finetune_distributed", "full_multinode"),
        ([], TrainingResources(processes=1), "full_finetune_single_device", "full_single_device"),
        ([], TrainingResources(cpus=1), "full_finetune_single_device", "full_single_device"),
        ([], TrainingResources(cpus=4), "full_finetune_distributed", "full"),
        ([], TrainingResources(), "full_finetune_single_device", "full_single_device"),
    ],
)
def test_a_recipe_is_chosen_by_what_is_trained_and_where(
    overrides: list[str], placement: TrainingResources, name: str, suffix: str
) -> None:
    found = choose_recipe("llama3_2/1B", overrides, placement)
    assert found == Recipe(name, f"llama3_2/1B_{suffix}")


def test_dora_and_a_base_that_is_not_quantized_are_lora() -> None:
    assert adaptation(QLORA) == "qlora"
    assert adaptation([*QLORA, "model.use_dora=True"]) == "lora"
    assert adaptation(["model.quantize_base=False", *LORA]) == "lora"
    assert adaptation(["model.quantize_base=True", "epochs=1"]) == "qlora"
    assert adaptation(["epochs=1"]) == "full"


def test_processes_meet_only_where_there_are_several() -> None:
    assert not TrainingResources().needs_rendezvous
    assert not TrainingResources(gpus=1).needs_rendezvous
    assert not TrainingResources(gpus=2, processes=1).needs_rendezvous
    for several in (
        TrainingResources(gpus=2),
        TrainingResources(cpus=2),
        TrainingResources(nodes=2),
        TWO,
    ):
        assert several.needs_rendezvous


def test_a_runtimes_name_tells_its_model() -> None:
    assert model_of("torchtune-llama3.2-1b") == "llama3_2/1B"
    assert model_of("anything-qwen2.5-1.5b") == "qwen2_5/1.5B"
    assert model_of("torch-distributed") == ""
    assert model_of("a-b-c-d") == ""


@pytest.mark.parametrize(
    ("model", "overrides", "placement", "subjects"),
    [
        ("llama3_2/1B", [], ONE, []),
        ("llama3_2/1B", QLORA, ONE, []),
        ("qwen2_5/1.5B", LORA, TWO, []),
        ("llama3_3/70B", [], TrainingResources(nodes=2, gpus=8), []),
        ("llama3_2/8B", [], ONE, ["model"]),
        ("llama3_2/3B", [], TrainingResources(nodes=2, gpus=1), ["nodes"]),
        ("llama3_3/70B", LORA, TrainingResources(nodes=2, gpus=8), ["nodes"]),
        ("qwen2_5/1.5B", QLORA, ONE, ["model"]),
        ("llama3_2/1B", QLORA, TWO, ["processes"]),
    ],
)
def test_what_no_recipe_trains_is_refused(
    model: str, overrides: list[str], placement: TrainingResources, subjects: list[str]
) -> None:
    assert [one.subject for one in refusals(model, overrides, placement)] == subjects


def test_paths_are_the_runtimes_alone() -> None:
    overrides = ["epochs=1", "tokenizer.path=/etc/passwd", "output_dir=/"]
    found = list(refusals("llama3_2/1B", overrides, ONE))
    assert [(one.subject, one.index) for one in found] == [("overrides", 1), ("overrides", 2)]
    assert "'tokenizer.path' is managed by the runtime" in found[0].message
