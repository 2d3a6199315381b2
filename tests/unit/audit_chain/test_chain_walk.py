"""What an attacker makes of a chain is found at the first event that is not right."""

import json
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import orjson
import pytest

from windlass.audit_chain.links import GENESIS, canonical, link, standard
from windlass.audit_chain.walk import ChainFault, ChainWalk

Stored = list[tuple[dict[str, Any], bytes]]
EVENTS = 20
ODD = 'a\nb\r\x00\x1b[31m"\\\u2028\u202e{"id":"audit_forged"}'


def made(events: int = EVENTS, *, start: int = 1, previous: bytes = GENESIS) -> Stored:
    found: Stored = []
    for sequence in range(start, start + events):
        event = {
            "id": f"audit_{sequence}", "at_ms": 1_700_000_000_000 + sequence, "project_id": "",
            "organization_id": "org_a", "action": "s/Do", "resource": f"r{sequence}",
            "sequence": sequence,
        }  # fmt: skip
        previous = link(previous, event)
        found.append((event, previous))
    return found


def fault(stored: Stored, checkpoints: dict[int, bytes] | None = None) -> ChainFault | None:
    walk = ChainWalk("org_a", checkpoints=checkpoints)
    return walk.follow(stored) or walk.end()


def at(stored: Stored, sequence: int) -> bytes:
    return stored[sequence - 1][1]


def edit(stored: Stored) -> None:
    stored[6][0]["resource"] = "another"


def forge_hash(stored: Stored) -> None:
    stored[6] = (stored[6][0], sha256(b"x").digest())


def edit_with_its_hash(stored: Stored) -> None:
    edit(stored)
    stored[6] = (stored[6][0], link(at(stored, 6), stored[6][0]))


def delete(stored: Stored) -> None:
    del stored[6]


def delete_and_number_anew(stored: Stored) -> None:
    delete(stored)
    for number, (event, _) in enumerate(stored, 1):
        event["sequence"] = number


def slip_in(stored: Stored) -> None:
    stored.insert(6, (dict(stored[5][0], id="audit_forged"), at(stored, 6)))


def swap(stored: Stored) -> None:
    stored[6], stored[7] = stored[7], stored[6]


def swap_and_number_anew(stored: Stored) -> None:
    swap(stored)
    stored[6][0]["sequence"], stored[7][0]["sequence"] = 7, 8


def take_anothers(stored: Stored) -> None:
    stored[6][0]["organization_id"] = "org_b"


@pytest.mark.parametrize(
    ("attack", "sequence", "kind"),
    [
        (edit, 7, "changed"), (forge_hash, 7, "changed"), (edit_with_its_hash, 8, "changed"),
        (delete, 7, "removed"), (delete_and_number_anew, 7, "changed"), (slip_in, 7, "slipped_in"),
        (swap, 7, "removed"), (swap_and_number_anew, 7, "changed"), (take_anothers, 7, "foreign"),
    ],
)  # fmt: skip
def test_an_attack_is_found_where_it_begins(
    attack: Callable[[Stored], None], sequence: int, kind: str
) -> None:
    stored = made()
    assert fault(stored) is None
    attack(stored)
    found = fault(stored)
    assert found is not None
    assert (found.sequence, found.kind) == (sequence, kind)


def test_a_cut_end_is_found_by_a_checkpoint() -> None:
    stored = made()
    known = {10: at(stored, 10), 18: at(stored, 18)}
    assert fault(stored, known) is None
    found = fault(stored[:15], known)
    assert found is not None
    assert (found.sequence, found.kind) == (16, "cut_off")
    # What no checkpoint has seen can be cut.
    assert fault(stored[:18], known) is None


def test_a_chain_that_was_made_anew_differs_from_a_checkpoint() -> None:
    stored = made()
    known = {5: at(stored, 5), 18: at(stored, 18)}
    edited = list(stored)
    previous = at(stored, 9)
    for place in range(9, EVENTS):
        event = dict(stored[place][0], resource="another")
        previous = link(previous, event)
        edited[place] = (event, previous)
    assert fault(edited) is None
    found = fault(edited, known)
    assert found is not None
    assert (found.sequence, found.kind) == (6, "rewritten")


def test_a_walk_goes_on_where_another_ended() -> None:
    stored = made()
    walk = ChainWalk("org_a", sequence=8, hash=at(stored, 8))
    assert walk.follow(stored[8:]) is None
    assert (walk.sequence, walk.hash) == (EVENTS, at(stored, EVENTS))


def test_no_text_leaves_its_line() -> None:
    event = dict.fromkeys(("id", "action", "resource", "user_id", "request_id"), ODD)
    line = canonical(event)
    assert b"\n" not in line
    assert b"\r" not in line
    assert json.loads(line) == event


def test_both_writers_write_the_same() -> None:
    """Sorted names, no spaces, few escapes."""
    event = {"b": ODD + "\x7fé\U0001d400", "a": 2**52, "empty": "", "none": 0}
    said = {name: value for name, value in event.items() if value}
    assert canonical(event) == standard(said) == orjson.dumps(said, option=orjson.OPT_SORT_KEYS)
