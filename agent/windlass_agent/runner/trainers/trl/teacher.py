"""Compatibility check of a teacher and its student, before either is loaded."""

from pathlib import Path

import msgspec
from transformers import AutoConfig

from windlass_agent.runner.protocol.outcome import Failure

_FIELD = "windlass.config.teacher"


def check_teacher(teacher: Path, student: Path) -> None:
    """Raises Failure `teacher_does_not_fit` unless both give probabilities to the same tokens."""
    theirs, ours = (AutoConfig.from_pretrained(each) for each in (teacher, student))
    sizes = [config.get_text_config().vocab_size for config in (theirs, ours)]
    if sizes[0] != sizes[1]:
        reason = f"the teacher has {sizes[0]} tokens and the model {sizes[1]}"
    elif _tokens(teacher) != _tokens(student):
        reason = "their tokenizers name tokens differently"
    else:
        return
    raise Failure(
        "teacher_does_not_fit",
        f"The model cannot learn from this teacher: {reason}. Take one of the same family.",
        param=_FIELD,
    )


def _tokens(model: Path) -> object:
    path = model / "tokenizer.json"
    return msgspec.json.decode(path.read_bytes())["model"]["vocab"] if path.exists() else None
