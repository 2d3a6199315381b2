"""What is written into a request, and what is taken out of a stream at every cut of the bytes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.errors import InvalidArgument
from windlass.gateway.inference import sse
from windlass.gateway.inference.head import CacheSalts, for_engine, read_head
from windlass.gateway.inference.sse import EventTooLong, Show, UsageFilter
from windlass.gateway.usage.token_usage import usage_of

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
# Text that looks like what the filter searches for.
TRICKY = st.sampled_from(
    ['"usage":{"a":1}}', '\\"usage\\":null}', "data: x", "}\n\n{", '"choices":[]', "[DONE]", "é\r"]
)
TEXT = st.text(max_size=20) | TRICKY
USAGE = st.fixed_dictionaries(
    {"prompt_tokens": st.integers(0, 10**6), "completion_tokens": st.integers(0, 10**6)},
    optional={"prompt_tokens_details": st.fixed_dictionaries({"cached_tokens": st.integers(0, 9)})},
)
CHOICE = st.fixed_dictionaries(
    {"index": st.just(0), "delta": st.fixed_dictionaries({"content": TEXT})},
    optional={"logprobs": st.dictionaries(TEXT, st.integers(), max_size=2)},
)


@given(
    st.dictionaries(st.text().filter(lambda key: key != "stream_options"), JSON, max_size=4),
    st.sampled_from([None, {}, {"include_usage": False}, {"include_usage": True, "x": [1]}]),
    st.sampled_from([None, 0, 2]),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["", "5a17"]),
    st.sampled_from([{}, {"cache_salt": "theirs"}, {"priority": -9, "cache_salt": None}]),
)
def test_only_the_gateways_own_fields_are_written(
    extra: dict[str, Any],
    options: Any,
    indent: int | None,
    ascii_only: bool,
    usage: bool,
    salt: str,
    steering: dict[str, Any],
) -> None:
    known = {"model": "m", "stream": True, "max_tokens": 3, "max_completion_tokens": 3, "n": 1}
    document = {**extra, **steering, **known}
    if options is not None:
        document["stream_options"] = options
    body = json.dumps(document, indent=indent, ensure_ascii=ascii_only).encode(
        "utf-8", "surrogatepass"
    )
    written = for_engine(body, read_head(body), usage=usage, salt=salt)
    if usage:
        every = {"include_usage": True, "continuous_usage_stats": True}
        document["stream_options"] = {**(options or {}), **every}
    if salt:
        document |= {"cache_salt": salt, "priority": 0}
    assert json.loads(written) == document
    assert usage or salt or written is body


@pytest.mark.parametrize("usage", [False, True])
def test_values_of_others_keep_their_bytes(usage: bool) -> None:
    body = b'{"model":"m","seed":12345678901234567890123,"t":1.10,"e":1E400,"u":"\\u00e9"}'
    spliced = for_engine(body, read_head(body), usage=usage, salt="" if usage else "x")
    for value in (b"12345678901234567890123", b"1.10", b"1E400", b'"\\u00e9"'):
        assert value in spliced


def test_of_two_equal_fields_the_last_holds() -> None:
    body = b'{"model":"a","stream_options":{"include_usage":false},"model":"b"}'
    head = read_head(body)
    written = for_engine(body, head, usage=True, salt="x")
    assert head.model == json.loads(written)["model"] == "b"


def test_of_two_salts_none_is_the_clients() -> None:
    body = b'{"cache_salt":"a","model":"m","cache\\u005fsalt":"b"}'
    written = for_engine(body, read_head(body), usage=False, salt="ours")
    assert json.loads(written, object_pairs_hook=list).count(("cache_salt", "ours")) == 1
    assert written.count(b"salt") == 1


@pytest.mark.parametrize(
    ("tier", "background", "priority"),
    [("auto", False, 0), ("flex", True, 10), ("priority", False, 0), (["flex"], False, 0)],
)
def test_who_may_wait_comes_after_others(tier: Any, background: bool, priority: int) -> None:
    body = json.dumps({"model": "m", "service_tier": tier, "priority": -5}).encode()
    head = read_head(body)
    assert head.may_wait is background
    written = for_engine(body, head, usage=False, salt="x", background=head.may_wait)
    assert json.loads(written)["priority"] == priority


def test_a_salt_belongs_to_an_organization_and_all_gateways_know_it() -> None:
    one, other = CacheSalts(b"k" * 32), CacheSalts(b"l" * 32)
    assert one.of("org_a") == CacheSalts(b"k" * 32).of("org_a")
    assert len({one.of("org_a"), one.of("org_b"), other.of("org_a")}) == 3
    # vLLM: at most 128 characters, none of @, / and the backslash.
    assert len(one.of("org_a")) == 64
    assert one.of("org_a").isalnum()


@pytest.mark.parametrize("body", [b"", b"null", b"[1]", b'{"model":""}', b'{"model":"m"', b"{}x"])
def test_a_body_without_a_model_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidArgument):
        read_head(body)


Shape = tuple[dict[str, Any], bool]


@st.composite
def chunks(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A stream as engines send them: usage in each chunk, at its end or elsewhere."""
    made = []
    for _ in range(draw(st.integers(0, 5))):
        chunk: dict[str, Any] = {"id": draw(TEXT), "choices": [draw(CHOICE)]}
        usage = draw(st.none() | USAGE)
        if usage is not None or draw(st.booleans()):
            chunk["usage"] = usage
        if draw(st.booleans()):
            chunk = dict(reversed(chunk.items()))
        made.append(chunk)
    if draw(st.booleans()):
        made.append({"id": "last", "choices": [], "usage": draw(USAGE)})
    return made


def encode(chunks: list[dict[str, Any]], *, spaced: bool, ascii_only: bool, end: bytes) -> bytes:
    separators = None if spaced else (",", ":")
    events = [
        b"data: " + json.dumps(one, separators=separators, ensure_ascii=ascii_only).encode()
        for one in chunks
    ]
    return b"".join(event + end + end for event in [*events, b"data: [DONE]"])


def decode(data: bytes) -> list[Any]:
    events = [event for event in data.decode().split("\n\n") if event]
    assert all(event.startswith("data: ") for event in events)
    return [
        "done" if event == "data: [DONE]" else json.loads(event.removeprefix("data: "))
        for event in events
    ]


def expected(chunks: list[dict[str, Any]], show: Show) -> list[Any]:
    shown: list[Any] = []
    for chunk in chunks:
        closing = not chunk["choices"]
        if show is Show.NOTHING:
            if closing:
                continue
            chunk = {key: value for key, value in chunk.items() if key != "usage"}
        elif show is Show.LAST and "usage" in chunk and not closing:
            chunk = {**chunk, "usage": None}
        shown.append(chunk)
    return [*shown, "done"]


@given(
    chunks(),
    st.sampled_from(Show),
    st.booleans(),
    st.booleans(),
    st.sampled_from([b"\n", b"\r\n"]),
    st.lists(st.integers(1, 40), min_size=1, max_size=30),
)
def test_the_filter_shows_what_was_asked_for_at_every_cut(
    stream: list[dict[str, Any]],
    show: Show,
    spaced: bool,
    ascii_only: bool,
    end: bytes,
    cuts: list[int],
) -> None:
    data = encode(stream, spaced=spaced, ascii_only=ascii_only, end=end)
    events, shown, at, turn = UsageFilter(show), b"", 0, 0
    while at < len(data):
        size = cuts[turn % len(cuts)]
        piece = events.feed(data[at : at + size])
        assert piece == b"" or piece.endswith(b"\n\n")
        shown += piece
        at, turn = at + size, turn + 1
    shown += events.finish()
    assert decode(shown) == expected(stream, show)
    counted = [chunk["usage"] for chunk in stream if chunk.get("usage")]
    wanted = counted[-1] if counted else {"prompt_tokens": 0, "completion_tokens": 0}
    assert events.usage.prompt_tokens == wanted["prompt_tokens"]
    assert events.usage.completion_tokens == wanted["completion_tokens"]


VLLM_CHUNK = (
    b'data: {"id":"chatcmpl-9a","object":"chat.completion.chunk","created":1,"model":"tiny",'
    b'"choices":[{"index":0,"delta":{"content":"A"},"logprobs":null,"finish_reason":null,'
    b'"token_ids":null}],"usage":{"prompt_tokens":12,"total_tokens":13,"completion_tokens":1,'
    b'"prompt_tokens_details":%s,"completion_tokens_details":null}%s}\n\n'
)
VLLM_LAST = (
    b'data: {"id":"chatcmpl-9a","object":"chat.completion.chunk","created":1,"model":"tiny",'
    b'"choices":[],"usage":{"prompt_tokens":12,"total_tokens":15,"completion_tokens":3,'
    b'"prompt_tokens_details":{"cached_tokens":8},'
    b'"completion_tokens_details":{"reasoning_tokens":2}},"system_fingerprint":"vllm"}\n\n'
)


@pytest.mark.parametrize("details", [b"null", b'{"cached_tokens":8}'])
@pytest.mark.parametrize("rest", [b"", b',"prompt_token_ids":[1]'])
@pytest.mark.parametrize("show", list(Show))
@pytest.mark.parametrize("step", [7, 10_000])
def test_vllms_stream_shows_what_was_asked_for(
    details: bytes, rest: bytes, show: Show, step: int
) -> None:
    chunk = VLLM_CHUNK % (details, rest)
    data = chunk + VLLM_LAST + b"data: [DONE]\n\n"
    events = UsageFilter(show)
    shown = b"".join(events.feed(data[at : at + step]) for at in range(0, len(data), step))
    usages = [one.get("usage") for one in decode(shown) if one != "done"]
    if show is Show.NOTHING:
        assert (len(usages), b"usage" in shown) == (1, False)
    else:
        assert usages[0] is None if show is Show.LAST else usages[0]["completion_tokens"] == 1
        assert VLLM_LAST in shown
        assert usages[1]["prompt_tokens_details"] == {"cached_tokens": 8}
        assert usages[1]["completion_tokens_details"] == {"reasoning_tokens": 2}
    assert rest in shown
    assert (events.usage.prompt_tokens, events.usage.completion_tokens) == (12, 3)


def test_an_error_within_a_stream_is_a_sentence() -> None:
    data = (
        b'data: {"error": {"message": "1 validation error:\\n {\'msg\': \'Too many\'}", '
        b'"type": "BadRequestError", "param": "body.n", "code": 400}}\n\n'
    )
    events = UsageFilter(Show.NOTHING)
    (shown,) = decode(events.feed(data))
    assert shown["error"] == {
        "message": "Invalid value for 'n': too many.",
        "type": "invalid_request_error",
        "param": "n",
        "code": None,
    }
    said = b'data: {"choices":[{"delta":{"content":"\\"error\\""}}]}\n\n'
    assert events.feed(said) == said


@pytest.mark.parametrize(
    "event",
    [
        b'data:{"error":{"message":"KeyError /srv","code":500}}',
        b'data: {"error":{"message":"KeyError /srv","code":500}}',
        b'data: { "error" : "KeyError /srv"}',
        b'data: {"object":"error","message":"KeyError /srv","code":500}',
        b'data: {"message":"KeyError /srv","object": "error"}',
        b'event: error\ndata: {"error":{"message":"KeyError /srv","code":500}}',
        b'event:error\ndata: {"message":"KeyError /srv","code":500}',
        b"event: error\ndata: KeyError /srv",
        b'data: {"error":\ndata: {"message":"KeyError /srv","code":500}}',
    ],
)
@pytest.mark.parametrize("step", [5, 10_000])
def test_an_error_is_recognized_in_every_form(event: bytes, step: int) -> None:
    data = event + b"\n\n"
    events = UsageFilter(Show.LAST)
    shown = b"".join(events.feed(data[at : at + step]) for at in range(0, len(data), step))
    (error,) = decode(shown)
    assert "KeyError" not in error["error"]["message"]
    assert error["error"]["code"] == "engine_error"


def test_words_of_an_answer_are_no_error() -> None:
    for data in (
        b'data: {"choices":[{"delta":{"tool_calls":[{"function":{"name":"error"}}]}}]}\n\n',
        b'data: {"id":"a","choices":[{"delta":{"content":"event: error\\n"}}]}\n\n',
        b"event: errors\ndata: {}\n\n",
        b'data: "error"\n\n',
    ):
        assert UsageFilter(Show.LAST).feed(data) == data


def test_an_event_that_does_not_end_is_no_more_than_its_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sse, "EVENT_BYTES", 100)
    events = UsageFilter(Show.LAST)
    whole = b"data: " + b"x" * 90 + b"\n\n"
    assert b"".join(events.feed(whole[at : at + 1]) for at in range(len(whole))) == whole
    assert events.feed(b"x" * 100) == b""
    with pytest.raises(EventTooLong):
        events.feed(b"x")
    with pytest.raises(EventTooLong):
        UsageFilter(Show.LAST).feed(b"x" * 101)


def test_other_events_pass_untouched() -> None:
    data = b': beat\n\nevent: x\ndata: {"usage": "no chunk"}\n\ndata: not json "usage"\n\n'
    events = UsageFilter(Show.NOTHING)
    assert events.feed(data) == data.replace(b'{"usage": "no chunk"}', b"{}")
    assert events.usage.prompt_tokens == 0


def test_data_on_several_lines_is_one_chunk() -> None:
    data = b'event: e\ndata: {"choices":[1],\ndata: "usage":{"prompt_tokens":3}}\n\n'
    events = UsageFilter(Show.NOTHING)
    assert events.feed(data) == b'event: e\ndata: {"choices":[1]}\n\n'
    assert events.usage.prompt_tokens == 3


@pytest.mark.parametrize(
    ("body", "tokens"),
    [
        (b'{"usage":{"prompt_tokens":3,"total_tokens":3}}', 3),
        (b'{"usage":{"prompt_tokens":3,"completion_tokens":null}}', 3),
        (b'{"usage":null}', 0),
        (b"{}", 0),
        (b"broken", 0),
        (b'{"usage":{"prompt_tokens":"x"}}', 0),
    ],
)
def test_usage_of_a_whole_answer(body: bytes, tokens: int) -> None:
    assert usage_of(body).prompt_tokens == tokens
