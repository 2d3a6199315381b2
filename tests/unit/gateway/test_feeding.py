"""What a request with consent becomes, and what of its answer is shown and kept."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from windlass.api.inference.v1 import feeds_pb2 as pb
from windlass.core.rpc.auth import Principal
from windlass.gateway.errors import HttpError
from windlass.gateway.inference.feeding import Consent, Feeding
from windlass.gateway.inference.head import read_head
from windlass.inference_api.routes import CHAT, COMPLETIONS, EMBEDDINGS

CALLER = Principal("org", "proj", key_id="key_1")
CHOICE: dict[str, Any] = {
    "index": 0,
    "message": {"role": "assistant", "content": "yes"},
    "finish_reason": "stop",
    "token_ids": [3],
}
ANSWER: dict[str, Any] = {
    "id": "c1",
    "prompt_token_ids": [1, 2],
    "choices": [CHOICE],
    "usage": {"prompt_tokens": 2, "completion_tokens": 1, "total_tokens": 3},
}


class Feeds:
    """The service, of which a test sees what it was asked."""

    def __init__(self, feed_id: str = "feed-1") -> None:
        self.feed_id = feed_id
        self.found: list[pb.FindFeedRequest] = []
        self.kept: list[pb.KeepAnswersRequest] = []

    async def FindFeed(self, request: pb.FindFeedRequest, timeout: float) -> pb.FindFeedResponse:
        self.found.append(request)
        return pb.FindFeedResponse(feed_id=self.feed_id)

    async def KeepAnswers(
        self, request: pb.KeepAnswersRequest, timeout: float
    ) -> pb.KeepAnswersResponse:
        self.kept.append(request)
        return pb.KeepAnswersResponse(kept=len(request.answers))


async def consent(
    feeds: Feeds, path: str = CHAT, *, images: bool = False, **words: Any
) -> Consent | None:
    body = {"model": "mine", "messages": [{"role": "user", "content": "so?"}], "store": True}
    raw = msgspec.json.encode({k: v for k, v in (body | words).items() if v is not ...})
    exchange: Any = SimpleNamespace(path=path, caller=CALLER, serial="req_1")
    service: Any = feeds
    return await Feeding(service).consent(exchange, read_head(raw), raw, images=images)


async def given(feeds: Feeds, **words: Any) -> Consent:
    found = await consent(feeds, **words)
    assert found is not None
    return found


@pytest.mark.parametrize("store", [False, None, 1, "true", ...])
async def test_without_consent_nobody_is_asked(store: Any) -> None:
    feeds = Feeds()
    assert await consent(feeds, store=store) is None
    assert await consent(feeds, path=EMBEDDINGS) is None
    assert feeds.found == []


async def test_without_a_feed_the_request_is_as_it_was() -> None:
    feeds = Feeds("")
    assert await consent(feeds, stream=True) is None
    (asked,) = feeds.found
    assert (asked.project_id, asked.key_id, asked.model) == ("proj", "key_1", "mine")


async def test_what_cannot_be_kept_is_refused_by_its_name() -> None:
    for call, param in (
        (consent(Feeds(), stream=True), "stream"),
        (consent(Feeds(), images=True), "messages"),
    ):
        with pytest.raises(HttpError) as refused:
            await call
        assert (refused.value.status, refused.value.param) == (400, param)


async def test_an_engine_tells_ids_which_the_client_does_not_see() -> None:
    feeds = Feeds()
    found = await given(feeds, metadata={"wanted": "yes"}, temperature=0.5)
    asked = msgspec.json.decode(found.body)
    assert asked["return_token_ids"]
    assert asked["temperature"] == 0.5
    assert "store" not in asked
    raw = msgspec.json.encode(ANSWER)
    shown = msgspec.json.decode(found.shown(raw))
    assert "prompt_token_ids" not in shown
    assert "token_ids" not in shown["choices"][0]
    assert (shown["usage"], shown["id"]) == (ANSWER["usage"], "c1")
    assert await found.keep(raw) == [(b"x-windlass-kept", b"1")]
    (kept,) = feeds.kept
    assert (kept.feed_id, kept.key_id, kept.request_id) == ("feed-1", "key_1", "req_1")
    item = msgspec.json.decode(kept.item)
    assert item == {"messages": [{"role": "user", "content": "so?"}], "metadata": {"wanted": "yes"}}
    (answer,) = kept.answers
    assert answer.text == "yes"
    assert list(answer.sample.context_ids) == [1, 2]
    assert list(answer.sample.continuation_ids) == [3]


async def test_a_client_that_asks_for_ids_sees_them() -> None:
    found = await given(Feeds(), return_token_ids=True)
    raw = msgspec.json.encode(ANSWER)
    assert found.shown(raw) == raw


async def test_completions_have_ids_of_each_choice() -> None:
    feeds = Feeds()
    found = await given(feeds, path=COMPLETIONS, messages=..., prompt="a")
    choice = {"text": "b", "finish_reason": "length", "prompt_token_ids": [9], "token_ids": [8]}
    raw = msgspec.json.encode({"choices": [choice, choice | {"text": "c", "token_ids": [7]}]})
    assert msgspec.json.decode(found.shown(raw))["choices"][1] == {
        "text": "c", "finish_reason": "length",
    }  # fmt: skip
    assert await found.keep(raw) == [(b"x-windlass-kept", b"2")]
    assert [list(one.sample.continuation_ids) for one in feeds.kept[0].answers] == [[8], [7]]
    assert msgspec.json.decode(feeds.kept[0].item) == {"prompt": "a"}


async def test_what_is_no_whole_text_is_not_kept() -> None:
    feeds = Feeds()
    found = await given(feeds)
    choice = dict(CHOICE)
    for broken in (
        b"no JSON",
        b'{"choices": 1}',
        msgspec.json.encode({"choices": [choice | {"finish_reason": "tool_calls"}]}),
        msgspec.json.encode({"choices": [choice | {"message": {"content": None}}]}),
        msgspec.json.encode({"choices": [choice | {"token_ids": [2**40]}]}),
    ):
        assert await found.keep(broken) == [(b"x-windlass-kept", b"0")]
        found.shown(broken)
    assert feeds.kept == []
