"""TRL: its scripts under torchrun, which alone honours what Kubeflow Trainer sets.

TRL's own command starts one process whatever `PET_*` says, and `python -m trl` none at all.
"""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches

from windlass.backends.trl.methods import TRLTrainerType
from windlass.backends.trl.parsers import parser_flags
from windlass.backends.trl.versions import VERSIONS
from windlass.kubernetes.labels import PREFIX
from windlass_agent.frameworks.objects import TrainerSpec, TrainingRuntime, TrainJobRefusal

VERSION = PREFIX + "trl-version"
# Mandatory, and lost with the runtime's arguments when a TrainJob has its own.
_PLACES = ("model_name_or_path", "dataset_name", "output_dir")
_SCRIPTS = frozenset(TRLTrainerType) - {TRLTrainerType.PPO, TRLTrainerType.ORPO}
_INSTEAD = {
    TRLTrainerType.PPO: "TRL has no PPO trainer; use grpo or rloo, which also learn from rewards",
    TRLTrainerType.ORPO: "TRL has no script for ORPO; use dpo, which reads the same examples",
}
# Of releases before 1.0, and of the launcher that is not used.
_FORMER = {
    "max_seq_length": "use --max_length",
    "max_prompt_length": "use --max_length, which limits prompt and answer together",
    "torch_dtype": "use --dtype",
    "no_cuda": "use --use_cpu true",
    "num_processes": "set numProcPerNode to the processes of a node",
    "accelerate_config": "torchrun starts the training, not accelerate",
}
# Read before TRL's parser is asked.
_BEFORE = frozenset({"config"})
# TRL's parser has no bare form of these.
_VALUED = frozenset({"bf16", "tf32", "disable_tqdm"})


def complete(trainer: TrainerSpec, runtime: TrainingRuntime) -> TrainerSpec:
    """Returns the trainer with torchrun before TRL's script, and with the runtime's places."""
    method, args = _method(trainer)
    if method is None and trainer.command:
        return trainer
    fields = {}
    if method is not None:
        fields["command"] = ["torchrun", "-m", f"trl.scripts.{method}"]
    if trainer.args:
        fields["args"] = [*_missing(args, runtime.args), *args] if args else []
    return trainer.having(**fields)


def refusals(trainer: TrainerSpec, runtime: TrainingRuntime) -> Iterator[TrainJobRefusal]:
    """Yields methods and flags that TRL has not, where the command is TRL's."""
    method, args = _method(trainer)
    if method is None and trainer.command:
        return
    release = VERSIONS.get(runtime.annotations.get(VERSION, ""))
    known = _SCRIPTS if release is None else _SCRIPTS & release.keys()
    if method in _INSTEAD:
        yield TrainJobRefusal("spec.trainer.command", _INSTEAD[TRLTrainerType(method)])
    elif method is not None and method not in known:
        names = ", ".join(sorted(known))
        yield TrainJobRefusal(
            "spec.trainer.command", f"TRL cannot train '{method}' here; use one of {names}"
        )
    shift = len(trainer.args) - len(args)
    taken = _taken(method, runtime)
    for index, (name, has_value) in _flags(args):
        field = f"spec.trainer.args[{index + shift}]"
        if release is not None and name in _FORMER:
            yield TrainJobRefusal(field, f"TRL has no --{name}: {_FORMER[name]}")
        elif taken and not _is_taken(name, taken):
            close = "".join(f"; use --{one}" for one in get_close_matches(name, taken, 1))
            yield TrainJobRefusal(
                field, f"the runtime's release of TRL has no --{name} here{close}"
            )
        if name in _VALUED and not has_value:
            yield TrainJobRefusal(field, f"write --{name} true or --{name} false")


def _taken(method: str | None, runtime: TrainingRuntime) -> frozenset[str]:
    """Every flag of the script that will run; empty where it cannot be known."""
    if method is None:
        method, _ = _method(TrainerSpec({"command": list(runtime.command)}))
    flags = parser_flags(runtime.annotations.get(VERSION, "")).get(method or "")
    return flags | _BEFORE if flags else frozenset()


def _is_taken(name: str, flags: frozenset[str]) -> bool:
    """Returns True if argparse takes it, by name, by a prefix or as the `no_` of a true default."""
    return any(flag.startswith((name, name.removeprefix("no_"))) for flag in flags)


def _method(trainer: TrainerSpec) -> tuple[str | None, tuple[str, ...]]:
    """The method of a TRL command, and its arguments; None for another command."""
    words = trainer.command
    match words:
        case ("python" | "python3" | "torchrun", "-m", script) if script.startswith("trl.scripts."):
            return script.removeprefix("trl.scripts."), trainer.args
        case ("python" | "python3" | "torchrun", "-m", "trl", *rest):
            pass
        case ("trl", *rest):
            pass
        case _:
            return None, trainer.args
    method, *args = [*rest, *trainer.args] or [""]
    return method, tuple(args)


def _flags(args: Sequence[str]) -> Iterator[tuple[int, tuple[str, bool]]]:
    """Each flag's place and name, and whether a value follows it."""
    for index, word in enumerate(args):
        if word.startswith("--"):
            name, assigned, _ = word[2:].partition("=")
            following = args[index + 1 : index + 2]
            has_value = bool(assigned) or bool(following and not following[0].startswith("--"))
            yield index, (name.replace("-", "_"), has_value)


def _missing(args: Sequence[str], ours: Sequence[str]) -> Iterator[str]:
    """The runtime's places that the arguments do not name; a file of settings may name them."""
    given = {name for _, (name, _) in _flags(args)}
    if "config" in given:
        return
    for index, (name, has_value) in _flags(ours):
        if name in _PLACES and name not in given:
            yield from ours[index : index + 1 + (has_value and "=" not in ours[index])]
