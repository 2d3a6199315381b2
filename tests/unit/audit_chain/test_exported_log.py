"""A file of an audit log is verified without a server, against a key that is known otherwise."""

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from windlass.audit_chain.checkpoints import CheckpointKey
from windlass.audit_chain.exported import checkpoint_line, event_line, verify_file
from windlass.audit_chain.links import GENESIS, details_digest, link
from windlass.audit_chain.walk import ChainCheckpoint

PAIR = CheckpointKey.derived(b"k" * 32)
KEY = CheckpointKey.public(PAIR.jwk)
STRANGER = CheckpointKey.derived(b"s" * 32)
CHECKPOINTS = (4, 9)
DETAILED = 7
Lines = list[bytes]


def exported(*, pair: CheckpointKey = PAIR, text: str = "r", organization: str = "org_a") -> Lines:
    """Two checkpoints and twelve events."""
    events, hashes, previous = [], {}, GENESIS
    for sequence in range(1, 13):
        event: dict[str, Any] = {
            "id": f"audit_{sequence}", "sequence": sequence, "organization_id": organization,
            "resource": text, "project_id": None, "key_id": "",
        }  # fmt: skip
        if sequence == DETAILED:
            event |= {"before": '{"title":"one"}', "after": "{}", "details_salt": "5a" * 16}
            event["details_digest"] = details_digest(event)
        previous = hashes[sequence] = link(previous, event)
        events.append(event_line(event, previous.hex()))
    signed = [
        checkpoint_line(pair.sign(ChainCheckpoint(organization, one, hashes[one], 1)))
        for one in CHECKPOINTS
    ]
    return [*signed, *events]


def test_an_untouched_file_is_right() -> None:
    for text in ("r", 'a\nb\r\x00"\\\u2028{"id":1}', "\U0001d400é"):
        lines = exported(text=text)
        assert len(b"".join(lines).splitlines()) == len(lines)
        found = verify_file(lines, KEY)
        assert (found.organization_id, found.sequence, found.fault) == ("org_a", 12, None)
        assert found.checkpoint_sequence == 9


def changed(lines: Lines, place: int, old: bytes, new: bytes) -> Lines:
    return [*lines[:place], lines[place].replace(old, new), *lines[place + 1 :]]


def told(lines: Lines, **details: str) -> Lines:
    """Has the event with details tell others."""
    place = DETAILED + len(CHECKPOINTS) - 1
    event = json.loads(lines[place]) | details
    return [*lines[:place], event_line(event, event.pop("hash")), *lines[place + 1 :]]


ERASED = {"before": "", "after": "", "details_salt": ""}


def test_erased_details_are_right() -> None:
    assert verify_file(told(exported(), **ERASED), KEY).fault is None


ATTACKS: dict[str, tuple[Callable[[Lines], Lines], int, str]] = {
    "edited": (lambda it: changed(it, 6, b'"r"', b'"x"'), 5, "changed"),
    "another hash": (lambda it: changed(it, 6, b'"hash":"', b'"hash":"00'), 5, "changed"),
    "no hash": (lambda it: changed(it, 6, b'"hash":"', b'"hash":"x'), 5, "damaged"),
    "removed": (lambda it: it[:6] + it[7:], 5, "removed"),
    "slipped in": (lambda it: [*it[:6], it[5], *it[6:]], 5, "slipped_in"),
    "swapped": (lambda it: [*it[:6], it[7], it[6], *it[8:]], 5, "removed"),
    "cut": (lambda it: it[:9], 8, "cut_off"),
    "all cut": (lambda it: it[:2], 1, "cut_off"),
    "half a line": (lambda it: [*it[:-1], it[-1][:-20]], 12, "damaged"),
    "no line end": (lambda it: [*it[:-1], it[-1][:-1]], 12, "damaged"),
    "a name twice": (
        lambda it: changed(it, 6, b'"resource"', b'"resource":"x","resource"'), 5, "damaged",
    ),
    "another form": (lambda it: changed(it, 6, b'"resource":', b'"resource": '), 5, "damaged"),
    "half a character": (lambda it: changed(it, 6, b'"r"', b'"\\ud800"'), 5, "damaged"),
    "a large number": (lambda it: changed(it, 6, b'"r"', b"9" * 40), 5, "damaged"),
    "other details": (lambda it: told(it, before='{"title":"two"}'), 7, "changed"),
    "details of an event without": (
        lambda it: changed(it, 6, b'{"hash"', b'{"after":"{}","hash"'), 5, "changed",
    ),
    "details moved": (lambda it: told(it, before="{}", after='{"title":"one"}'), 7, "changed"),
    "another salt": (lambda it: told(it, details_salt="5b" * 16), 7, "changed"),
    "half of the details erased": (lambda it: told(it, before=""), 7, "changed"),
    "a digest taken away": (lambda it: told(it, **ERASED, details_digest=""), 7, "changed"),
    "rewritten": (lambda it: it[:2] + exported(text="x")[2:], 1, "rewritten"),
    "empty": (lambda it: [], 1, "damaged"),
    "no JSON": (lambda it: [b"[" * 60_000], 1, "damaged"),
    "signed by another": (lambda it: exported(pair=STRANGER), 1, "forged_checkpoint"),
    "of another": (
        lambda it: exported(organization="org_b")[:1] + it, 1, "forged_checkpoint",
    ),
    "with another's end": (
        lambda it: it[:6] + exported(organization="org_b")[6:], 5, "foreign",
    ),
    "a checkpoint's number changed": (
        lambda it: changed(it, 0, b'"checkpoint":"ey', b'"checkpoint":"ez'), 1,
        "forged_checkpoint",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_on_a_file_is_found(name: str) -> None:
    attack, sequence, kind = ATTACKS[name]
    fault = verify_file(attack(exported()), KEY).fault
    assert fault is not None
    assert (fault.sequence, fault.kind) == (sequence, kind)


def test_a_line_is_what_anybody_reads() -> None:
    said = json.loads(exported()[2])
    assert said == {
        "id": "audit_1", "sequence": 1, "organization_id": "org_a", "resource": "r",
        "hash": said["hash"],
    }  # fmt: skip


def test_a_client_exports_without_what_signs() -> None:
    """Neither signatures nor the fast writer come with the client alone."""
    code = (
        "import sys\n"
        "for name in ('orjson', 'joserfc', 'cryptography'): sys.modules[name] = None\n"
        "from windlass.audit_chain.exported import event_line\n"
        "sys.stdout.buffer.write(event_line({'b': 'é\\n', 'a': 1}, 'ff'))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert done.stdout == event_line({"b": "é\n", "a": 1}, "ff")
