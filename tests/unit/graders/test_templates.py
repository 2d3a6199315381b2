"""Templates: what a path finds, what is put in, and what is refused."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.graders import Fault, Subject, Ungradable
from windlass.graders.templates import InvalidTemplate, compile_template

ITEM: dict[str, Any] = {
    "answer": "blue",
    "count": 3,
    "none": None,
    "with-dash": "x",
    "deep": {"list": [{"name": "first"}, {"name": "second"}]},
}
SUBJECT = Subject('{"colour": {"name": "blue"}, "tags": ["a", "b"]}', ITEM)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no braces", "no braces"),
        ("", ""),
        ("{{item.answer}}", "blue"),
        ("{{ item.answer }}!", "blue!"),
        ("{{item.count}} {{item.none}}", "3 null"),
        ("{{item.with-dash}}", "x"),
        ("{{item.deep.list[1].name}}", "second"),
        ("{{item['answer']}} {{item[\"deep\"].list[0]['name']}}", "blue first"),
        ("{{item.deep.list[0]}}", '{"name":"first"}'),
        ("{{sample.output_text}}", SUBJECT.sample),
        ("{{sample.output_json.colour.name}}", "blue"),
        ("{{sample.output_json.tags[1]}}", "b"),
        ("{ {{item.answer}} }", "{ blue }"),
        ("{{item.answer", "{{item.answer"),
    ],
)
def test_a_template_is_filled(text: str, expected: str) -> None:
    assert compile_template(text).fill(SUBJECT) == expected


def test_a_text_of_many_braces_is_read_at_once() -> None:
    text = "{{" * 30_000
    assert compile_template(text).fill(SUBJECT) == text


def test_a_short_text_cannot_be_filled_without_bound() -> None:
    template = compile_template("{{sample.output_text}}" * 2000)
    with pytest.raises(Ungradable, match="exceeds"):
        template.fill(Subject("x" * 1000, {}))


def test_what_is_put_in_is_no_template() -> None:
    subject = Subject("{{item.secret}}", {"secret": "s"})
    assert compile_template("{{sample.output_text}}").fill(subject) == "{{item.secret}}"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{{}}", "must begin with `item.`"),
        ("{{answer}}", "must begin with `item.`"),
        ("{{items.answer}}", "must begin with `item.`"),
        ("{{item}}", "does not name a field"),
        ("{{item.}}", "is not a path"),
        ("{{item answer}}", "is not a path"),
        ("{{item.a | upper}}", "is not a path"),
        ("{{item[-1]}}", "is not a path"),
        ("{{item.__class__()}} {{item.a b}}", "is not a path"),
        ("{{sample.choices[0]}}", "a sample has only"),
        ("{{sample.output_text.length}}", "a sample has only"),
    ],
)
def test_a_template_that_names_nothing_is_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidTemplate, match=why):
        compile_template(text)


@pytest.mark.parametrize(
    ("text", "sample", "fault"),
    [
        ("{{item.missing}}", "", Fault.INVALID_VARIABLE),
        ("{{item.answer.more}}", "", Fault.INVALID_VARIABLE),
        ("{{item.deep.list[2]}}", "", Fault.INVALID_VARIABLE),
        ("{{item.deep[0]}}", "", Fault.INVALID_VARIABLE),
        ("{{sample.output_json.a}}", "not JSON", Fault.SAMPLE_PARSE),
        ("{{sample.output_json.a}}", "{}", Fault.SAMPLE_PARSE),
        ("{{sample.output_json.a}}", "[" * 100_000, Fault.SAMPLE_PARSE),
    ],
)
def test_what_is_not_there_is_a_fault(text: str, sample: str, fault: Fault) -> None:
    with pytest.raises(Ungradable) as raised:
        compile_template(text).fill(Subject(sample, ITEM))
    assert raised.value.fault is fault


@given(st.text(max_size=60), st.text(max_size=20))
def test_any_text_is_refused_or_filled(text: str, name: str) -> None:
    with contextlib.suppress(InvalidTemplate, Ungradable):
        template = compile_template(f"{text}{{{{item.{name}}}}}")
        assert isinstance(template.fill(SUBJECT), str)
