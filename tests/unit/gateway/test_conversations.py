"""Requests of one conversation go to one engine, as long as it is not much busier than others."""

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.gateway.inference.engines import EngineConnectionPool, Engines
from windlass.gateway.inference.engines.choice import BUSIER
from windlass.gateway.inference.head import read_head
from windlass.gateway.inference.routes import EngineEndpoint

ORGANIZATION = "org-a"
SYSTEM = {"role": "system", "content": "You answer briefly."}


def number(
    messages: Any = None,
    *,
    organization: str = ORGANIZATION,
    session: bytes = b"",
    **fields: Any,
) -> int:
    body = {"model": "m"} | ({"messages": messages} if messages is not None else {}) | fields
    return read_head(json.dumps(body).encode()).conversation(organization, session)


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def endpoints(count: int) -> list[EngineEndpoint]:
    return [
        EngineEndpoint(f"eng-{one}", f"tunnel://east/eng-{one}", frozenset())
        for one in range(count)
    ]


def test_every_turn_of_a_conversation_has_its_number() -> None:
    turns = [SYSTEM, user("Where is the harbour?")]
    first = number(turns)
    turns += [{"role": "assistant", "content": "In the south."}, user("And the station?")]
    assert number(turns) == first != 0
    assert number([SYSTEM, user("Where is the station?")]) != first
    assert number(turns, organization="org-b") != first
    assert number(turns, model="another") != first


def test_the_callers_own_key_comes_first_and_a_prompt_goes_by_its_beginning() -> None:
    assert number([user("a")], prompt_cache_key="k") == number([user("b")], prompt_cache_key="k")
    assert number([user("a")], prompt_cache_key="k") != number([user("a")])
    in_session = number([user("a")], session=b"s")
    assert in_session == number([user("b")], session=b"s") != number([user("a")], session=b"t")
    assert in_session != number([user("a")], session=b"s", organization="org-b")
    assert number([user("a")], session=b"s", prompt_cache_key="k") == number(prompt_cache_key="k")
    assert number(prompt="Once upon") == number(prompt="Once upon") != number(prompt="Twice")
    assert number() == 0


@pytest.mark.parametrize("messages", [3, "text", [1, 2], [None], [{"role": []}], [[[]]], {}])
def test_what_is_no_conversation_is_no_error(messages: Any) -> None:
    assert number(messages) >= 0


def choice(
    engines: Engines, there: list[EngineEndpoint], conversation: int = 0
) -> EngineConnectionPool:
    found = engines.choose(there, conversation)
    assert found is not None
    return found


async def test_conversations_spread_and_stay() -> None:
    engines, there = Engines(), endpoints(4)
    numbers = [number([user(f"Question {one}")]) for one in range(400)]
    chosen = {one: choice(engines, there, one).address for one in numbers}
    assert all(choice(engines, there, one).address == address for one, address in chosen.items())
    shares = Counter(chosen.values())
    assert len(shares) == 4
    assert min(shares.values()) > 50
    # Another gateway chooses alike, and one engine less moves its own conversations alone.
    other, fewer = Engines(), there[1:]
    for one, address in chosen.items():
        assert choice(other, there, one).address == address
        if address != there[0].address:
            assert choice(other, fewer, one).address == address


@given(st.lists(st.integers(0, 30), min_size=2, max_size=8), st.integers(1, 2**50))
async def test_none_is_chosen_that_is_much_busier(active: list[int], conversation: int) -> None:
    engines, there = Engines(), endpoints(len(active))
    for endpoint, number_of_requests in zip(there, active, strict=True):
        engines._pool(endpoint.address).active = number_of_requests
    assert choice(engines, there, conversation).active <= min(active) + BUSIER
    assert choice(engines, there).active == min(active)
