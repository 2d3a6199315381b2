"""An audit log as JSON lines: signed checkpoints first, then every event with its hash.

Before them is the signed note of what was dropped, where something was.

Each line is canonical JSON, so that no two readers see different things in it.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from windlass.audit_chain.links import GENESIS, canonical
from windlass.audit_chain.walk import ChainCheckpoint, ChainFault, ChainWalk, CheckpointForged

if TYPE_CHECKING:
    # Signatures need more than a client brings.
    from windlass.audit_chain.checkpoints import CheckpointKey

LINE_BYTES = 64 * 1024
_CHECKPOINT, _DROPPED, _HASH = "checkpoint", "dropped", "hash"
_Stored = tuple[Mapping[str, Any], bytes]


@dataclass(frozen=True, slots=True)
class FileVerdict:
    """The owner of a file's log, the event up to which it is right, and the first fault."""

    organization_id: str
    sequence: int
    # Of the newest checkpoint; 0 without one.
    checkpoint_sequence: int
    fault: ChainFault | None
    # Events up to this one were dropped; 0: none.
    dropped_sequence: int = 0


class _DamagedLine(ValueError):
    """A line that no export wrote."""


def checkpoint_line(jws: str) -> bytes:
    """The line of a checkpoint."""
    return canonical({_CHECKPOINT: jws}) + b"\n"


def dropped_line(jws: str) -> bytes:
    """The line of the note that the events before the file's first were dropped."""
    return canonical({_DROPPED: jws}) + b"\n"


def event_line(event: Mapping[str, Any], digest: str) -> bytes:
    """The line of an event, whose hash is `digest` in hex."""
    return canonical({**event, _HASH: digest}) + b"\n"


def verify_file(lines: Iterable[bytes], key: "CheckpointKey") -> FileVerdict:
    """Walks a file against its own checkpoints, which `key` must have signed."""
    rest = iter(lines)
    dropped, tokens, first = _tokens(rest)
    start = ChainCheckpoint("", 0, GENESIS, 0)
    try:
        if dropped:
            start = key.verify(dropped, organization_id=None, dropped=True)
        checkpoints = [key.verify(token, organization_id=None) for token in tokens]
        signed = [start, *checkpoints] if dropped else checkpoints
        owners = {one.organization_id for one in signed}
        if len(owners) > 1:
            raise CheckpointForged("signed for another organization")
    except CheckpointForged as error:
        return _nothing(ChainFault(1, "forged_checkpoint", f"A checkpoint is {error}."))
    if not tokens and not first:
        return _nothing(ChainFault(1, "damaged", "The file is empty."))
    known = {one.sequence: one.hash for one in checkpoints if one.sequence > start.sequence}
    said = _said(first) if first else {}
    owner = owners.pop() if owners else str(said.get("organization_id", ""))
    walk = ChainWalk(owner, sequence=start.sequence, hash=start.hash, checkpoints=known)
    fault: ChainFault | None
    try:
        fault = walk.follow(_events([first, *rest] if first else [])) or walk.end()
    except _DamagedLine as error:
        fault = ChainFault(walk.sequence + 1, "damaged", str(error))
    newest = max((one.sequence for one in checkpoints), default=0)
    return FileVerdict(owner, walk.sequence, newest, fault, start.sequence)


def _nothing(fault: ChainFault) -> FileVerdict:
    return FileVerdict("", 0, 0, fault)


def _tokens(lines: Iterator[bytes]) -> tuple[str, list[str], bytes]:
    """The note of what was dropped, the checkpoints, and the first line that is neither.

    Each is empty where there is none.
    """
    dropped, tokens = "", list[str]()
    for number, line in enumerate(lines):
        said = _said(line)
        if set(said) == {_DROPPED} and not number:
            dropped = str(said[_DROPPED])
        elif set(said) == {_CHECKPOINT}:
            tokens.append(str(said[_CHECKPOINT]))
        else:
            return dropped, tokens, line
    return dropped, tokens, b""


def _said(line: bytes) -> dict[str, Any]:
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def _events(lines: Iterable[bytes]) -> Iterator[_Stored]:
    for line in lines:
        said = _said(line)
        if not isinstance(said.get(_HASH), str) or not _is_canonical(said, line):
            raise _DamagedLine("The line is not as an export writes it.")
        try:
            digest = bytes.fromhex(said.pop(_HASH))
        except ValueError as error:
            raise _DamagedLine("The line has no hash.") from error
        yield said, digest


def _is_canonical(said: Mapping[str, Any], line: bytes) -> bool:
    try:
        return canonical(said) + b"\n" == line
    except (TypeError, ValueError):
        # Half of a surrogate pair, or a number that no event has.
        return False
