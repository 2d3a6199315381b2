"""`python -m windlass_agent.runner.trainers.trl.entry COMMAND FLAGS`: TRL's script, with a report.

With `--wait` command and flags come as JSON on the standard input, once the libraries are imported.
The flags are those of `trl <command>`. Before TRL's script runs, the rows of the dataset
folder are tokenized here (see `chat_tokens`), so `assistant_only_loss` is in their labels.
"""

import importlib
import sys
from functools import partialmethod
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NoReturn

import transformers.trainer
from transformers import AutoConfig, AutoTokenizer, PreTrainedModel

from windlass_agent.runner.protocol import trainer_events
from windlass_agent.runner.protocol.event_file import EventFile
from windlass_agent.runner.protocol.outcome import Failure
from windlass_agent.runner.protocol.waiting import WAIT, told
from windlass_agent.runner.trainers import ranks
from windlass_agent.runner.trainers.saving import split_options
from windlass_agent.runner.trainers.threads import spare_threads
from windlass_agent.runner.trainers.tokenizing import Tokenizing
from windlass_agent.runner.trainers.trl import continuing
from windlass_agent.runner.trainers.trl.callback import EventCallback
from windlass_agent.runner.trainers.trl.experts import leave_experts, name_experts
from windlass_agent.runner.trainers.trl.quantization import check_quantization
from windlass_agent.runner.trainers.trl.teacher import check_teacher

# One PUT to S3 takes 5 GiB; transformers would write files of up to 50 GB.
_SHARD_SIZE = "4GB"
_COMMANDS = {
    **{
        name: f"trl.scripts.{name}"
        for name in ("sft", "dpo", "kto", "reward", "distillation", "grpo", "rloo")
    },
    "orpo": "windlass_agent.runner.trainers.trl.orpo",
}
# Their own answers take part of the context.
_SAMPLING = ("grpo", "rloo", "distillation")
_NO_DEEPSPEED = Failure(
    "deepspeed_not_installed",
    "The runner's image has no deepspeed, which zero2 and zero3 need; fsdp2 needs nothing more.",
    param="windlass.config.sharding",
)
_PARTS = (("train.jsonl", "training_file"), ("test.jsonl", "validation_file"))


def main() -> None:
    """Trains; errors that the tenant can correct become a Failed event, with exit code 1."""
    command = sys.argv[1]
    clock, argv = split_options(sys.argv[2:])
    adapter, argv = continuing.split_option(argv)
    if command not in _COMMANDS:
        raise SystemExit(f"{command} is not one of {', '.join(_COMMANDS)}")
    events = EventFile.of_environment()
    if "--deepspeed" in argv and find_spec("deepspeed") is None:
        _fail(events, _NO_DEEPSPEED)
    transformers.trainer.DEFAULT_CALLBACKS.append(EventCallback(events, clock))
    script: Any = importlib.import_module(_COMMANDS[command])
    parsed = script.make_parser(prog=f"trl {command}").parse_args_and_config(argv)
    script_args, training_args, model_args, _ = parsed
    PreTrainedModel.save_pretrained = partialmethod(
        PreTrainedModel.save_pretrained, max_shard_size=_SHARD_SIZE
    )
    # The filter would hide a loss that is no number from the log.
    training_args.logging_nan_inf_filter = False
    training_args.enable_jit_checkpoint = False
    try:
        check_quantization(in_4bit=model_args.load_in_4bit)
        _tokenize(command, script_args, training_args, model_args, events)
        if command == "distillation":
            check_teacher(
                Path(training_args.teacher_model_name_or_path), Path(model_args.model_name_or_path)
            )
        spare_threads(Path(model_args.model_name_or_path))
        name_experts(Path(model_args.model_name_or_path))
        leave_experts(model_args)
        # Reading the arguments made it.
        ranks.hold_group()
        if adapter is not None:
            continuing.begin_with(adapter, command, training_args)
        script.main(*parsed)
    except Failure as failure:
        _fail(events, failure)


def _import_scripts() -> None:
    for module in _COMMANDS.values():
        # Another's would write a warning to the log of every job.
        if module.startswith("trl."):
            importlib.import_module(module)


def _fail(events: EventFile, failure: Failure) -> NoReturn:
    events.write(
        trainer_events.Failed(code=failure.code, message=failure.message, param=failure.param)
    )
    raise SystemExit(1) from None


def _tokenize(
    command: str, script_args: Any, training_args: Any, model_args: Any, events: EventFile
) -> None:
    limit = getattr(training_args, "max_length", None)
    if command in _SAMPLING:
        limit = _fit_context(training_args, model_args.model_name_or_path, events)
    tokenizing = Tokenizing(
        tokenizer=AutoTokenizer.from_pretrained(model_args.model_name_or_path),
        limit=limit,
        vocabulary=AutoConfig.from_pretrained(model_args.model_name_or_path)
        .get_text_config()
        .vocab_size,
        answers_alone=getattr(training_args, "assistant_only_loss", False),
        whole=command == "reward",
        as_text=command == "orpo",
    )
    prepare = tokenizing.chat if command == "sft" else tokenizing.answers
    source = Path(script_args.dataset_name)
    target = source / "tokens"
    with training_args.main_process_first(local=True):
        if not target.exists():
            draft = target.with_suffix(".draft")
            draft.mkdir(parents=True)
            for name, param in _PARTS:
                if (source / name).exists():
                    events.write(prepare(source / name, draft / name, param=param))
            draft.rename(target)
    script_args.dataset_name = str(target)
    if command == "sft":
        training_args.assistant_only_loss = False


def _fit_context(training_args: Any, model: str, events: EventFile) -> int | None:
    """The longest prompt; leaves at most half of the context to its answer.

    TRL would go on sampling where the model knows no positions any more.
    """
    context = getattr(AutoConfig.from_pretrained(model), "max_position_embeddings", None)
    if context is None:
        return None
    most = context // 2
    if training_args.max_completion_length > most:
        events.write(
            trainer_events.Noted(
                message=f"Answers end after {most} tokens instead of "
                f"{training_args.max_completion_length}: the model's context has {context}."
            )
        )
        training_args.max_completion_length = most
    room: int = context - training_args.max_completion_length
    return room


if __name__ == "__main__":
    if sys.argv[1:] == [WAIT]:
        _import_scripts()
        sys.argv[1:] = told()
    ranks.run(main)
