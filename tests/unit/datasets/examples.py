"""Valid examples of every shape, drawn at random."""

import json
from typing import Any

from hypothesis import strategies as st

text = st.text(max_size=40)
names = st.text(min_size=1, max_size=12)
content = text | st.lists(
    st.fixed_dictionaries({"type": st.just("text"), "text": text}), min_size=1, max_size=3
)
json_objects = st.dictionaries(text, st.none() | st.integers() | text | st.lists(text), max_size=3)
arguments = json_objects.map(json.dumps)


def _message(role: str) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {"role": st.just(role), "content": content}, optional={"name": text}
    )


questions = st.sampled_from(["system", "developer", "user"]).flatmap(_message)
answers = st.fixed_dictionaries(
    {"role": st.just("assistant"), "content": content},
    optional={"weight": st.sampled_from([0, 1]), "name": text, "refusal": st.none()},
)
learned = st.fixed_dictionaries(
    {"role": st.just("assistant"), "content": content}, optional={"weight": st.just(1)}
)


@st.composite
def _tool_turn(draw: st.DrawFn) -> list[dict[str, Any]]:
    call = draw(names)
    function = {"name": draw(names), "arguments": draw(arguments)}
    return [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": call, "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": call, "content": draw(content)},
    ]


turns = _tool_turn() | st.lists(questions | answers, min_size=1, max_size=4)
tools = st.lists(
    st.fixed_dictionaries(
        {
            "type": st.just("function"),
            "function": st.fixed_dictionaries(
                {"name": names},
                optional={
                    "description": text,
                    "parameters": json_objects,
                    "strict": st.booleans(),
                },
            ),
        }
    ),
    max_size=2,
)
settings = st.fixed_dictionaries(
    {}, optional={"tools": tools, "parallel_tool_calls": st.booleans()}
)


@st.composite
def _chat(draw: st.DrawFn) -> dict[str, Any]:
    before = [message for turn in draw(st.lists(turns, max_size=3)) for message in turn]
    return {"messages": [*before, draw(learned)], **draw(settings)}


@st.composite
def _preference(draw: st.DrawFn) -> dict[str, Any]:
    before = [message for turn in draw(st.lists(turns, max_size=2)) for message in turn]
    return {
        "input": {"messages": [*before, draw(questions)], **draw(settings)},
        "preferred_output": [draw(answers)],
        "non_preferred_output": [draw(answers)],
    }


@st.composite
def _unpaired(draw: st.DrawFn) -> dict[str, Any]:
    before = [message for turn in draw(st.lists(turns, max_size=2)) for message in turn]
    offered = {name: value for name, value in draw(settings).items() if name == "tools"}
    return {
        "prompt": [*before, draw(questions)],
        "completion": [draw(answers)],
        "label": draw(st.booleans()),
        **offered,
    }


chat = _chat()
preference = _preference()
unpaired = _unpaired()
examples = chat | preference | unpaired


def line(example: object) -> bytes:
    """Writes an example as one line, as a user's program would."""
    return json.dumps(example, ensure_ascii=False).encode(errors="surrogatepass")
