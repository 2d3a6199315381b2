"""A flood of refusals or reads is a few events and a number, whatever its caller names."""

import asyncio
import base64
from pathlib import Path

import pytest
from tests.support.waiting import until

from windlass.api.rbac.v1 import rbac_pb2 as pb
from windlass.audit import AuditQueue, queue, sums
from windlass.audit.sums import WHOLE, EventSums
from windlass.core.spool import read_lines

READ = "windlass.api.rbac.v1.RbacService/ListAuditEvents"
CHANGE = "windlass.api.rbac.v1.RbacService/PutAuditRetention"


def event(
    number: int, *, key: str = "key_a", action: str = READ, outcome: str = "PERMISSION_DENIED"
) -> pb.AuditEvent:
    return pb.AuditEvent(
        id=f"audit_{number}", at_ms=number, organization_id="org", key_id=key, action=action,
        outcome=outcome, resource=f"r{number}", request_id=f"req_{number}", address="192.0.2.1",
    )  # fmt: skip


def test_the_first_are_whole_and_the_rest_is_one() -> None:
    counted = EventSums()
    admitted = [number for number in range(100) if counted.admits(event(number))]
    assert admitted == list(range(WHOLE))
    (summed,) = counted.take()
    assert (summed.action, summed.key_id, summed.address) == (READ, "key_a", "192.0.2.1")
    assert summed.repeats + 1 == 100 - WHOLE
    assert (summed.at_ms, summed.resource, summed.request_id) == (99, "", "")
    # Another window begins.
    assert counted.admits(event(1))
    assert counted.take() == []


def test_callers_and_actions_are_counted_apart() -> None:
    counted = EventSums()
    for number in range(WHOLE):
        assert counted.admits(event(number))
    assert not counted.admits(event(50))
    assert counted.admits(event(51, key="key_b"))
    assert counted.admits(event(52, action=READ + "2"))


def test_what_is_done_is_never_summed() -> None:
    counted = EventSums()
    for outcome in ("OK", "NOT_FOUND", "INTERNAL"):
        done = [event(n, outcome=outcome, action=CHANGE) for n in range(3 * WHOLE)]
        assert all(counted.admits(one) for one in done)


def test_what_is_read_again_is_summed() -> None:
    counted = EventSums()
    same = [event(1, outcome="OK") for _ in range(5)]
    assert [counted.admits(one) for one in same] == [True, False, False, False, False]
    others = [counted.admits(event(n, outcome="OK")) for n in range(2, 2 * WHOLE)]
    assert others.count(True) == WHOLE - 1
    # A refusal of the same is another matter.
    assert counted.admits(event(1))
    (summed,) = counted.take()
    assert (summed.outcome, summed.resource) == ("OK", "")
    assert summed.repeats + 1 == 4 + others.count(False)


def test_no_name_that_a_caller_chooses_makes_another_sum() -> None:
    counted = EventSums()
    for number in range(1000):
        counted.admits(event(number, action=f"kubernetes/get pods{number}"))
        counted.admits(event(number, action=f"gateway/POST /v1/{number}"))
    assert sorted(one.action for one in counted.take()) == ["gateway/*", "kubernetes/*"]


def recorded(folder: Path) -> list[pb.AuditEvent]:
    return [
        pb.AuditEvent.FromString(base64.b64decode(line))
        for path in sorted(folder.glob("*.log"))
        for line in read_lines(path)
    ]


async def test_sums_are_written_when_their_window_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue's peer is away here, so that everything stays in the spool."""
    monkeypatch.setattr(queue, "WINDOW_SECONDS", 0.01)

    def nobody() -> None:
        raise AssertionError("asked before the end of the test")

    audit = AuditQueue(nobody, tmp_path)  # type: ignore[arg-type]  # never asked
    audit.shipper.run = asyncio.Event().wait  # type: ignore[method-assign, assignment]  # away
    running = asyncio.create_task(audit.run())
    for number in range(30):
        audit.add(event(number))
    found = await until(lambda: recorded(tmp_path), holds=lambda got: len(got) == WHOLE + 1)
    assert found[-1].repeats == 30 - WHOLE - 1
    for number in range(WHOLE + 1):
        audit.add(event(number, key="key_z"))
    # Nothing is lost when the process stops.
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert [one.key_id for one in recorded(tmp_path)].count("key_z") == WHOLE + 1


def test_sums_are_bounded_in_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "MOST_CALLERS", 5)
    audit = AuditQueue(lambda: None, tmp_path)  # type: ignore[arg-type, return-value]  # never asked
    for number in range(WHOLE + 2):
        audit.add(event(number))
    for number in range(20):
        audit.add(event(number, key=f"key_{number}"))
    found = recorded(tmp_path)
    assert len(found) == WHOLE + 20 + 1
    assert [one.repeats for one in found if one.repeats] == [1]
