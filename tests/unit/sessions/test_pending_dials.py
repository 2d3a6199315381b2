"""Control streams, and who waits for what they bring."""

import asyncio

import pytest
from tests.unit.tunnel.test_byte_stream import streams

from windlass.api.sessions.v1.sessions_pb2 import Dial
from windlass.core.errors import InvalidArgument, ResourceExhausted
from windlass.sessions.tunnel import domain, pending_dials
from windlass.sessions.tunnel.domain import ConnectionLimits
from windlass.sessions.tunnel.pending_dials import ControlStream, PendingDials, Slots
from windlass.sessions.tunnel.store import superseded


async def test_a_line_says_what_was_sent_in_its_order() -> None:
    control = ControlStream("cluster-a", "s1", 1)
    for number in range(3):
        control.send(Dial(connection_id=str(number)))
    said = [await control.next() for _ in range(3)]
    assert [dial.connection_id for dial in said if dial] == ["0", "1", "2"]


async def test_a_silent_line_beats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_dials, "HEARTBEAT_SECONDS", 0.01)
    assert await ControlStream("cluster-a", "s1", 1).next() == Dial()


async def test_a_line_that_was_replaced_ends_in_order() -> None:
    control = ControlStream("cluster-a", "s1", 1)
    control.send(Dial(connection_id="before"))
    control.end()
    assert await control.next() == Dial(connection_id="before")
    assert await control.next() is None


async def test_a_line_that_was_fenced_says_so() -> None:
    control = ControlStream("cluster-a", "s1", 1)
    control.end(superseded())
    control.end()
    with pytest.raises(type(superseded())):
        await control.next()


async def test_a_line_that_nobody_reads_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_dials, "MAX_WAITING", 3)
    control = ControlStream("cluster-a", "s1", 1)
    for _ in range(4):
        assert not control.ended.done()
        control.send(Dial(connection_id="c"))
    assert control.ended.result() is not None


async def test_a_connection_is_brought_once_and_by_its_cluster_alone() -> None:
    dials = PendingDials()
    stream, _ = streams()
    with dials.expecting("c1", "cluster-a") as brought:
        assert dials.claim("c1", "cluster-b") is None
        assert dials.claim("c2", "cluster-a") is None
        waiter = dials.claim("c1", "cluster-a")
        assert waiter is brought
        assert dials.claim("c1", "cluster-a") is None
        brought.set_result(stream)
    assert stream.error is None


async def test_who_left_is_not_waited_for_and_what_came_is_ended() -> None:
    dials = PendingDials()
    stream, _ = streams()

    async def wait() -> None:
        with dials.expecting("c1", "cluster-a") as brought:
            waiter = dials.claim("c1", "cluster-a")
            assert waiter is not None
            waiter.set_result(stream)
            await asyncio.sleep(0)
            assert brought.done()
            raise TimeoutError

    with pytest.raises(TimeoutError):
        await wait()
    assert dials.claim("c1", "cluster-a") is None
    assert stream.error is not None


def test_slots_are_bounded_for_each_cluster_and_in_all() -> None:
    slots = Slots(ConnectionLimits(per_cluster=2, in_all=3))
    releases = [slots.take("a"), slots.take("a"), slots.take("b")]
    for cluster in ("a", "b", "c"):
        with pytest.raises(ResourceExhausted):
            slots.take(cluster)
    releases[0]()
    slots.take("c")
    with pytest.raises(ResourceExhausted):
        slots.take("a")


def test_an_id_says_whose_it_is() -> None:
    made = {domain.new_connection_id("replica1") for _ in range(100)}
    assert len(made) == 100
    assert {domain.replica_of(connection_id) for connection_id in made} == {"replica1"}


@pytest.mark.parametrize("value", ["", "a b", "../x", "-a", "x" * 200, "a\n"])
def test_a_session_is_an_identifier(value: str) -> None:
    with pytest.raises(InvalidArgument, match="session_id"):
        domain.check_session(value)
