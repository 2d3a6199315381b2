"""Refusals of engines, in sentences: no library's text, no class of Python, no other model."""

from typing import Any

import orjson
import pytest

from windlass.gateway.inference.refusals import engine_error, stream_error

REFUSED = "The engine refused the request."
LISTED = (
    "1 validation error:\n  {{'type': 'missing', 'loc': 'body.messages', 'msg': {msg}, "
    "'input': '<dict of 1 items>'}}"
)


@pytest.mark.parametrize(
    ("said", "param", "message"),
    [
        (LISTED.format(msg="'Field required'"), "body.messages", "field required"),
        (LISTED.format(msg="\"Value error, not 'x' (parameter=n)\""), "n", "not 'x'"),
        (LISTED.format(msg=r"'it\'s wrong'"), "n", "it's wrong"),
        ("2 validation errors:\n  ...[truncated]", "body.n", "the engine refused it"),
    ],
)
def test_a_validation_error_is_a_sentence_with_the_field(
    said: str, param: str, message: str
) -> None:
    error = refused(400, said, param=param)
    field = param.removeprefix("body.")
    assert (error.param, error.message) == (field, f"Invalid value for '{field}': {message}.")


@pytest.mark.parametrize(
    ("place", "field"),
    [
        ("body.messages.0.ChatCompletionDeveloperMessageParam.content", "messages.0.content"),
        ("messages.0.ChatCompletionAssistantMessageParam.tool_calls.0.id",
         "messages.0.tool_calls.0.id"),
        ("body.prompt.list[list[int]].0", "prompt.0"),
        ("tools.0.function-wrap[Tool.check()].name", "tools.0.name"),
    ],
)  # fmt: skip
def test_a_field_is_named_without_the_librarys_classes(place: str, field: str) -> None:
    error = refused(400, LISTED.format(msg="'Field required'"), param=place)
    assert (error.param, error.message) == (field, f"Invalid value for '{field}': field required.")


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("top_p must be in (0, 1], got 2.0. (parameter=top_p, value=2.0)",
         "top_p must be in (0, 1], got 2.0."),
        ("The model `m` does not exist. Valid aliases: theirs, others.",
         "The model `m` does not exist."),
        ("Only one kind may be set: {'json': None, 'regex': 'a'}", "Only one kind may be set"),
        ("Bad template\n  File \"x.py\", line 3\n", "Bad template"),
        ("", REFUSED),
        ("{'a': 1}", REFUSED),
        ("1 validation error for Chat\nmessages.0.role\n  Field required [type=missing, input=1]\n",
         "Invalid value for 'messages.0.role': field required."),
        ("1 validation error:\n  {'loc': 'x'}", REFUSED),
    ],
)  # fmt: skip
def test_a_message_ends_where_the_library_begins(said: str, message: str) -> None:
    assert refused(400, said).message == message


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [
        (400, "invalid_request_error", None),
        (404, "invalid_request_error", None),
        (429, "rate_limit_error", None),
        (501, "server_error", None),
        (503, "service_unavailable_error", None),
        (500, "server_error", "engine_error"),
    ],
)
def test_classes_and_numbers_of_the_engine_are_not_shown(
    status: int, kind: str, code: str | None
) -> None:
    error = refused(status, "No.", type="SomePythonError", code=status)
    assert (error.status, error.kind, error.code) == (status, kind, code)
    assert ("retry-after" in error.headers) is (status == 503)


def test_openais_own_words_pass() -> None:
    error = refused(400, "no", type="invalid_request_error", code="invalid_value", param="n")
    assert (error.kind, error.code, error.param) == ("invalid_request_error", "invalid_value", "n")


def test_a_prompt_that_is_too_long_has_openais_code() -> None:
    said = "This model's maximum context length is 512 tokens. However, your prompt is longer."
    error = refused(400, f"{said} (parameter=input_tokens, value=600)", param="input_tokens")
    assert (error.code, error.param, error.message) == ("context_length_exceeded", None, said)


@pytest.mark.parametrize("body", [b"<html>x</html>", b"", b"[]", b'{"error":{}}', b'{"error":3}'])
def test_a_body_of_another_form_is_not_shown(body: bytes) -> None:
    assert engine_error(400, body).message == REFUSED


def test_fastapis_own_form_is_read() -> None:
    body = b'{"detail":[{"loc":["body","messages",0],"msg":"Input should be a dict"}]}'
    error = engine_error(422, body)
    assert error.message == "Invalid value for 'messages.0': input should be a dict."


def test_an_error_within_a_stream_is_converted_unless_it_is_ours() -> None:
    theirs = {"message": "KeyError: 7", "type": "InternalServerError", "param": None, "code": 500}
    shown = orjson.loads(stream_error(orjson.dumps({"error": theirs})))["error"]
    assert "KeyError" not in shown["message"]
    assert shown["code"] == "engine_error"
    ours = orjson.dumps({"error": {"message": "Too complex.", "code": "invalid_json_schema"}})
    assert stream_error(ours) == ours
    for other in ({"object": "error", "message": "KeyError: 7"}, {"error": "KeyError: 7"}, [7]):
        assert b"KeyError" not in stream_error(orjson.dumps(other))


def refused(status: int, message: str, **fields: Any) -> Any:
    error = {"message": message, "type": "BadRequestError", "param": None, "code": status}
    return engine_error(status, orjson.dumps({"error": {**error, **fields}}))
