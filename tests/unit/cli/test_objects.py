"""An object is shown a field a line, what lies within it below, and nothing runs into the edge."""

from hypothesis import given
from hypothesis import strategies as st

from windlass.cli.framework.objects import object_lines

JOB = {
    "id": "ftjob-1",
    "error": None,
    "hyperparameters": {"n_epochs": 8, "batch_size": 8},
    "method": {"type": "dpo", "dpo": {"hyperparameters": {"beta": 0.1}}},
    "result_files": ["file-1", "file-2"],
    "windlass": {
        "state": "running",
        "queue": {"reason": None},
        "progress": {"step": 3, "rate": 8.10710269},
    },
}


def test_objects_within_lie_below_their_names() -> None:
    assert list(object_lines(JOB)) == [
        "id:               ftjob-1",
        "hyperparameters:  n_epochs 8, batch_size 8",
        "method:",
        "  type:  dpo",
        "  dpo:",
        "    hyperparameters:  beta 0.1",
        "result_files:     file-1, file-2",
        "windlass:",
        "  state:     running",
        "  progress:  step 3, rate 8.1071",
    ]


def test_what_is_empty_takes_no_line_and_a_key_stays_with_its_value() -> None:
    progress = {"step": 136, "total_steps": 136, "train_loss": 0.662793, "phase": None}
    item = {"model": {"kind": "base", "warnings": [], "queue": {"reason": None}}, "p": progress}
    assert list(object_lines(item, 46)) == [
        "model:  kind base",
        "p:      step 136, total_steps 136,",
        "        train_loss 0.662793",
    ]


def test_long_values_are_broken_between_words_below_themselves() -> None:
    lines = list(object_lines({"reason": "It waits for a place on " * 4}, 50))
    assert len(lines) > 2
    assert all(len(line) <= 50 for line in lines)
    assert all(line.startswith(" " * 9) for line in lines[1:])


def test_a_word_that_has_no_room_beside_its_name_is_below_it_and_whole() -> None:
    item = {"id": "file-1", "fine_tuned_model": "ft:my-model:acme:colors:u", "why": "no room"}
    assert list(object_lines(item, 60)) == [
        "id:                file-1",
        "fine_tuned_model:  ft:my-model:acme:colors:u",
        "why:               no room",
    ]
    assert list(object_lines(item, 40)) == [
        "id:                file-1",
        "fine_tuned_model:",
        "  ft:my-model:acme:colors:u",
        "why:               no room",
    ]
    assert list(object_lines({"warnings": ["It is at " + 45 * "a" + " now."]}, 50)) == [
        "warnings:",
        "  It is at",
        f"  {45 * 'a'}",
        "  now.",
    ]


def test_what_a_tenant_names_cannot_move_the_cursor() -> None:
    given_names = {"metadata": {"\x1b[2J": "\x1b[1A"}, "list": ["\x1b]0;x\x07"]}
    assert "\x1b" not in "\n".join(object_lines(given_names))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
    st.integers(20, 200),
)
def test_every_document_can_be_shown(value: object, width: int) -> None:
    assert all("\n" not in line for line in object_lines({"value": value}, width))
