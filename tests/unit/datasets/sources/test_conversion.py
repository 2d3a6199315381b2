import contextlib
import csv
import gzip
import io
import json
import tracemalloc
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from tests.unit.datasets import examples

from windlass.datasets import DatasetError, inspect_file
from windlass.datasets.shapes import RowShape
from windlass.datasets.sources import Conversion, convert

in_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
Rows = list[dict[str, Any]]

words = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).filter(str.strip)
alpaca_rows = st.fixed_dictionaries(
    {"instruction": words, "output": words}, optional={"input": words}
)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def system(text: str) -> dict[str, Any]:
    return {"role": "system", "content": text}


def write(folder: Path, name: str, content: bytes | Rows) -> Path:
    path = folder / name
    if isinstance(content, list):
        content = "\n".join(map(json.dumps, content)).encode()
    path.write_bytes(content)
    return path


def converted(folder: Path, content: bytes | Rows, *, name: str = "rows.jsonl") -> Rows:
    target = folder / "out.jsonl"
    convert(write(folder, name, content), target)
    inspect_file(target)
    return [json.loads(line) for line in target.read_bytes().splitlines()]


def report(folder: Path, content: bytes | Rows, *, name: str = "rows.jsonl") -> Conversion:
    return convert(write(folder, name, content), folder / "out.jsonl")


def test_rows_of_alpaca_become_conversations(tmp_path: Path) -> None:
    rows: Rows = [
        {"instruction": "Add.", "input": "1 and 2", "output": "3", "text": "…"},
        {"instruction": "Say hi.", "input": "", "output": "hi", "system": "Be kind."},
        {"instruction": "And now?", "output": "bye", "history": [["Hello?", "Hello."]]},
        {"instruction": "What is it?", "context": "A box.", "response": "A box."},
    ]
    first, second, third, fourth = converted(tmp_path, rows)
    assert first == {"messages": [user("Add.\n\n1 and 2"), assistant("3")]}
    assert second == {"messages": [system("Be kind."), user("Say hi."), assistant("hi")]}
    assert third["messages"][:2] == [user("Hello?"), assistant("Hello.")]
    assert fourth["messages"] == [user("What is it?\n\nA box."), assistant("A box.")]
    assert dict(report(tmp_path, rows).left_out) == {"text": 1}


def test_sharegpt_with_tools(tmp_path: Path) -> None:
    call = {"name": "weather", "arguments": {"city": "Bern"}}
    row = {
        "conversations": [
            {"from": "human", "value": "Rain?"},
            {"from": "function_call", "value": json.dumps(call)},
            {"from": "observation", "value": "sun"},
            {"from": "gpt", "value": "No."},
        ],
        "system": "Be brief.",
        "tools": json.dumps([{"name": "weather", "parameters": {}}]),
    }
    (example,) = converted(tmp_path, [row])
    assert example["messages"][0] == system("Be brief.")
    made = example["messages"][2]["tool_calls"][0]
    assert json.loads(made["function"]["arguments"]) == {"city": "Bern"}
    assert example["messages"][3] == {"role": "tool", "content": "sun", "tool_call_id": made["id"]}
    assert example["tools"][0]["function"]["name"] == "weather"


@pytest.mark.parametrize(
    "row",
    [
        {"conversations": [{"from": "user", "value": "a"}, {"from": "chatgpt", "value": "b"}]},
        {"conversation": [{"role": "human", "text": "a"}, {"role": "bot", "text": "b"}]},
        {"messages": [{"from": "Human", "value": "a"}, {"from": "GPT", "value": "b"}]},
        {"messages": [user("a"), assistant("b")], "source": "web"},
        {"prompt": "a", "completion": "b"},
        {"question": "a", "answer": "b"},
        {"prompt": [user("a")], "response": [assistant("b")]},
        {"instruction": "a", "output": "b"},
    ],
)
def test_spellings_of_one_conversation(tmp_path: Path, row: dict[str, Any]) -> None:
    assert converted(tmp_path, [row]) == [{"messages": [user("a"), assistant("b")]}]


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "a", "chosen": "b", "rejected": "c"},
        {"prompt": [user("a")], "chosen": [assistant("b")], "rejected": [assistant("c")]},
        {"question": "a", "chosen": assistant("b"), "rejected": assistant("c")},
        {"chosen": [user("a"), assistant("b")], "rejected": [user("a"), assistant("c")]},
        {
            "prompt": "a",
            "chosen": [user("a"), assistant("b")],
            "rejected": [user("a"), assistant("c")],
        },
        {"instruction": "a", "input": "", "chosen": "b", "rejected": "c"},
        {
            "conversations": [{"from": "human", "value": "a"}],
            "chosen": {"from": "gpt", "value": "b"},
            "rejected": {"from": "gpt", "value": "c"},
        },
        {"chosen": "\n\nHuman: a\n\nAssistant: b", "rejected": "\n\nHuman: a\n\nAssistant: c"},
        {"input": "a", "preferred_output": "b", "non_preferred_output": "c"},
        {"messages": [user("a")], "chosen": "b", "rejected": "c"},
    ],
)
def test_spellings_of_one_preference(tmp_path: Path, row: dict[str, Any]) -> None:
    assert converted(tmp_path, [row]) == [
        {
            "input": {"messages": [user("a")]},
            "preferred_output": [assistant("b")],
            "non_preferred_output": [assistant("c")],
        }
    ]


def test_instructions_stay_before_a_conversation_that_is_repeated(tmp_path: Path) -> None:
    answers = {
        "chosen": [user("a"), assistant("b")],
        "rejected": [user("a"), assistant("c")],
    }
    for prompt in ({"prompt": [system("s"), user("a")]}, {"prompt": "a", "system": "s"}):
        (example,) = converted(tmp_path, [prompt | answers])
        assert example["input"]["messages"] == [system("s"), user("a")]


def test_words_and_numbers_are_read_as_labels(tmp_path: Path) -> None:
    found = converted(tmp_path, b"prompt,completion,label\na,b,True\nc,d,0\n", name="a.csv")
    assert [row["label"] for row in found] == [True, False]


@pytest.mark.parametrize("name", ["json", "jsonl", "csv", "tsv", "parquet", "json.gz", "jsonl.zst"])
def test_one_table_in_every_container(tmp_path: Path, name: str) -> None:
    rows = [{"Prompt": 'say "a,\nb"', "Completion": "é"}, {"Prompt": "c", "Completion": "d"}]
    lower = [{key.lower(): value for key, value in row.items()} for row in rows]
    expected = [{"messages": [user(row["prompt"]), assistant(row["completion"])]} for row in lower]
    content = "\n".join(map(json.dumps, lower)).encode()
    if name.startswith("json.") or name == "json":
        content = json.dumps(lower, indent=1, ensure_ascii=False).encode()
    elif name in ("csv", "tsv"):
        text = io.StringIO()
        writer = csv.DictWriter(text, ["Prompt", "Completion"], dialect="excel")
        if name == "tsv":
            writer = csv.DictWriter(text, ["Prompt", "Completion"], dialect="excel-tab")
        writer.writeheader()
        writer.writerows(rows)
        content = b"\xef\xbb\xbf" + text.getvalue().encode()
    elif name == "parquet":
        parquet.write_table(pa.Table.from_pylist(lower), tmp_path / "made")
        content = (tmp_path / "made").read_bytes()
    if name.endswith(".gz"):
        content = gzip.compress(content[:20]) + gzip.compress(content[20:])
    elif name.endswith(".zst"):
        content = b"".join(
            pa.compress(part, codec="zstd", asbytes=True) for part in (content[:9], content[9:])
        )
    assert converted(tmp_path, content, name=f"rows.{name}") == expected


def test_rows_that_do_not_fit_are_counted_with_number_and_field(tmp_path: Path) -> None:
    rows: Rows = [
        {"instruction": "a", "output": "b"},
        {"instruction": "a", "output": " "},
        {"instruction": "a"},
        {"instruction": ["a"], "output": "b"},
        {"instruction": "c", "output": 7},
        {"instruction": "a", "output": ""},
    ]
    found = report(tmp_path, rows)
    assert (found.shape, found.format, found.read, found.written) == ("alpaca", "chat", 6, 2)
    assert [(fault.message, fault.count, fault.lines) for fault in found.skipped.kinds] == [
        ("output: is empty.", 2, [2, 6]),
        ("output: is missing.", 1, [3]),
        ("instruction: must be text, not a list.", 1, [4]),
    ]


def test_strict_stops_at_the_first_and_leaves_nothing(tmp_path: Path) -> None:
    path = write(tmp_path, "rows.jsonl", [{"prompt": "a", "completion": "b"}, {"prompt": "a"}])
    with pytest.raises(DatasetError) as caught:
        convert(path, tmp_path / "out.jsonl", strict=True)
    assert (caught.value.line, caught.value.param) == (2, "completion")
    assert [each.name for each in tmp_path.iterdir()] == ["rows.jsonl"]


def test_a_file_of_nothing_is_not_written(tmp_path: Path) -> None:
    assert report(tmp_path, b'{"foo": 1}\n').written == 0
    assert report(tmp_path, b"[]", name="a.json").read == 0
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize(
    ("name", "content", "line", "said"),
    [
        ("a.json", b'[{"prompt": "a", "completion": "b"}, {"b" 2}]', 2, "delimiter"),
        ("a.json", b'[{"prompt": "a", "completion": "b"}', 2, "the end"),
        ("a.json", b'[{"prompt": "a", "completion": "b"}] x', 2, "closing ]"),
        ("a.json", b'[{"a": "\xff"}]', 1, "UTF-8"),
        ("a.json", b"[" * 100_000, 1, "nested"),
        ("a.csv", b'prompt,completion\n"a,b\n', 1, "CSV"),
        ("a.csv", b"prompt,completion\na,\xff\n", 1, "UTF-8"),
        ("a.csv", b"prompt,completion\na,b\n" + b"a," * 2**23, 2, "8 MiB"),
        ("a.csv", b'prompt,completion\n"' + b'\n","' * 2**22, 1, "8 MiB"),
        ("a.csv", b"a," * 2**23, 1, "8 MiB"),
        ("a.gz", gzip.compress(b'{"prompt": "a"}\n' * 999, mtime=0)[:-9], None, "cut off"),
        ("a.zst", b"\x28\xb5\x2f\xfdxxxx", None, "damaged"),
        ("a.parquet", b"PAR1xxxx", None, "Parquet"),
    ],
)
def test_what_cannot_be_read_says_where(
    tmp_path: Path, name: str, content: bytes, line: int | None, said: str
) -> None:
    with pytest.raises(DatasetError, match=said) as caught:
        report(tmp_path, content, name=name)
    assert caught.value.line == line
    assert not (tmp_path / "out.jsonl").exists()


def test_pairs_without_a_difference_or_a_prompt_are_refused(tmp_path: Path) -> None:
    rows: Rows = [
        {"prompt": "a", "chosen": "b", "rejected": "b"},
        {"chosen": "b", "rejected": "c"},
        {"prompt": "a", "chosen": [user("b")], "rejected": "c"},
        {"chosen": [user("a"), assistant("b")], "rejected": [user("z"), assistant("c")]},
    ]
    said = [fault.message for fault in report(tmp_path, rows).skipped.kinds]
    assert said == [
        "rejected: is the same answer as chosen.",
        "prompt: is missing.",
        "chosen: must end with a message of the assistant.",
        "rejected: must differ from chosen in its last message alone.",
    ]


@in_folder
@given(examples.examples)
def test_what_is_an_example_already_stays_as_it_is(tmp_path: Path, example: Any) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(examples.line(example))
    try:
        before = inspect_file(path)
    except DatasetError:
        return
    found = convert(path, tmp_path / "out.jsonl")
    assert (found.written, found.skipped.count, found.left_out) == (1, 0, {})
    assert inspect_file(tmp_path / "out.jsonl").format == before.format


@in_folder
@given(st.lists(alpaca_rows, min_size=1, max_size=6), st.sampled_from(["json", "jsonl", "csv"]))
def test_tables_round_trip(tmp_path: Path, rows: Rows, name: str) -> None:
    content = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    if name == "json":
        content = json.dumps(rows, ensure_ascii=False)
    elif name == "csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, ["instruction", "input", "output"])
        writer.writeheader()
        writer.writerows(rows)
        content = text.getvalue()
    found = converted(tmp_path, content.encode(), name=f"rows.{name}")
    assert found == [
        {
            "messages": [
                user("\n\n".join(filter(None, (row["instruction"], row.get("input"))))),
                assistant(row["output"]),
            ]
        }
        for row in rows
    ]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["from", "role", "value", "content", "tool_calls", "name", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)
odd_rows = st.dictionaries(
    st.sampled_from(
        [
            *("instruction", "input", "output", "history", "system", "tools", "label", "messages"),
            *("conversations", "prompt", "completion", "chosen", "rejected", "preferred_output"),
        ]
    ),
    json_values,
    max_size=5,
)


@in_folder
@given(st.lists(odd_rows, min_size=1, max_size=4), st.sampled_from([None, *RowShape]))
def test_no_row_crashes_and_whatever_is_written_is_a_training_file(
    tmp_path: Path, rows: Rows, shape: RowShape | None
) -> None:
    path, target = write(tmp_path, "rows.jsonl", rows), tmp_path / "out.jsonl"
    target.unlink(missing_ok=True)
    found = convert(path, target, shape=shape)
    assert found.read == found.written + found.skipped.count == len(rows)
    assert target.exists() is bool(found.written)
    if found.written:
        assert inspect_file(target).examples == found.written


@in_folder
@given(
    st.binary(max_size=200),
    st.sampled_from(["a.json", "a.csv", "a.tsv", "a.jsonl", "a.gz", "a.parquet"]),
    st.sampled_from([b"", b"[", b"PAR1", b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"prompt,completion\n"]),
)
def test_no_bytes_crash(tmp_path: Path, content: bytes, name: str, begin: bytes) -> None:
    with contextlib.suppress(DatasetError):
        report(tmp_path, begin + content, name=name)


def test_an_array_takes_no_memory_for_its_length(tmp_path: Path) -> None:
    row = json.dumps({"instruction": "a" * 1000, "output": "b"})
    path = tmp_path / "rows.json"
    path.write_text("[" + ",".join([row] * 20_000) + "]")
    tracemalloc.start()
    try:
        found = convert(path, tmp_path / "out.jsonl")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.written == 20_000
    assert peak < 8 * 2**20 < path.stat().st_size
