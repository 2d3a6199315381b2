"""The flags that we give, by release of TRL: what each release's own parser takes.

`tests/contract/test_trl_parser.py` holds the table to what those parsers said beside
transformers 5.23, and to the parser of the TRL that is installed. A release is added with what
its parser says; one that nobody has asked is refused.
"""

from collections.abc import Mapping

from windlass.backends.trl.methods import TRLTrainerType as Kind

PINNED = "1.16.0"

# Of every method.
_SHARED = """
    model_name_or_path dataset_name output_dir eval_strategy eval_steps resume_from_checkpoint
    use_cpu bf16 fp16 dtype gradient_checkpointing dataloader_pin_memory
    num_train_epochs max_steps per_device_train_batch_size per_device_eval_batch_size
    gradient_accumulation_steps learning_rate lr_scheduler_type warmup_steps weight_decay seed
    use_peft lora_r lora_alpha lora_dropout lora_target_modules lora_task_type
    use_rslora use_dora load_in_4bit bnb_4bit_quant_type use_bnb_nested_quant
    logging_steps disable_tqdm report_to save_strategy enable_jit_checkpoint
    fsdp fsdp_config deepspeed
"""
SHARED = frozenset(_SHARED.split())
_ONLINE = (
    "reward_funcs reward_model_name_or_path num_generations num_generations_eval "
    "max_completion_length"
)
_1_16 = {
    Kind.SFT: "max_length packing dataset_text_field assistant_only_loss",
    Kind.DPO: "max_length beta loss_type",
    # From `trl.experimental`, which has no command of its own: ours runs it.
    Kind.ORPO: "max_length beta",
    Kind.KTO: "max_length beta loss_type desirable_weight undesirable_weight",
    Kind.GRPO: f"{_ONLINE} temperature beta",
    Kind.RLOO: f"{_ONLINE} temperature beta",
    Kind.REWARD: "max_length center_rewards_coefficient",
    Kind.DISTILLATION: "teacher_model_name_or_path max_completion_length temperature beta",
}
_EVERY = {kind: frozenset(flags.split()) for kind, flags in _1_16.items()}
VERSIONS: Mapping[str, Mapping[Kind, frozenset[str]]] = {
    "1.0.0": {kind: flags for kind, flags in _EVERY.items() if kind is not Kind.DISTILLATION},
    "1.13.0": _EVERY,
    PINNED: _EVERY,
}
