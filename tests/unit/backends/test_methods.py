import pytest

from windlass.backends import InvalidConfig, methods
from windlass.datasets import formats_for


@pytest.mark.parametrize(
    ("openai", "ours", "chosen"),
    [
        ("", None, "supervised"),
        ("dpo", None, "dpo"),
        ("", "kto", "kto"),
        ("", "reward", "reward"),
        ("reinforcement", None, "reinforcement"),
        ("reinforcement", "grpo", "reinforcement"),
        ("reinforcement", "rloo", "rloo"),
    ],
)
def test_a_method_is_openais_or_ours(openai: str, ours: object, chosen: str) -> None:
    assert methods.choose(openai, ours) == chosen


@pytest.mark.parametrize(
    ("openai", "ours", "field", "sentence"),
    [
        ("sft", None, "method.type", "must be one of supervised, dpo"),
        ("supervised", "kto", "windlass.method", "and method cannot both be given"),
        ("", "ppo", "windlass.method", "GRPO and RLOO also learn from rewards"),
        ("", "dpo", "windlass.method", "set method.type"),
        ("", "", "windlass.method", "must be one of kto, orpo, reward, distillation"),
        ("", {}, "windlass.method", "must be one of"),
        ("", "rloo", "windlass.method", "goes with method.type 'reinforcement' and its grader"),
        ("dpo", "grpo", "windlass.method", "goes with method.type 'reinforcement'"),
        ("reinforcement", "kto", "windlass.method", "cannot both be given"),
    ],
)
def test_a_choice_that_is_none_is_refused_by_its_field(
    openai: str, ours: object, field: str, sentence: str
) -> None:
    with pytest.raises(InvalidConfig, match=sentence) as caught:
        methods.choose(openai, ours)
    assert caught.value.field == field


def test_each_method_takes_files_of_some_format() -> None:
    assert set(methods.READS) >= {*methods.OPENAI, *methods.OURS} >= methods.SCORING
    assert all(formats_for(read) for read in methods.READS.values())
    assert set(formats_for(methods.READS["kto"])) == {"unpaired_preference", "preference"}
