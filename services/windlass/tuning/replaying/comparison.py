"""Comparison of what a replay computed with what was recorded, bit by bit; pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import sqlalchemy as sa

from windlass.api.tuning.v1 import tuning_pb2 as pb
from windlass.tuning.execution.conversion import digest_of
from windlass.tuning.replaying.shadow import Retraced

Row = sa.Row[Any]
_SHOWN = 16


@dataclass(slots=True)
class Comparison:
    """Counts of what was compared, and the first that differs."""

    operations: int = 0
    results: int = 0
    weights: int = 0
    uncompared: int = 0
    differing: int = 0
    first: pb.ReplayDifference | None = None
    gaps: list[str] = field(default_factory=list)

    def add(self, row: Row, kind: str, recorded: pb.Result | None, retraced: Retraced) -> None:
        """Compares one operation by its result and its digests, as far as they are kept."""
        self.operations += 1
        if retraced.weights is not None and row.weights_digest is not None:
            self.weights += 1
            before, after = bytes(row.weights_digest), retraced.weights
            if before != after:
                self._differ(row, kind, "weights", before.hex()[:_SHOWN], after.hex()[:_SHOWN])
        elif retraced.result is not None and row.result_digest is not None:
            self.results += 1
            self._compare(row, kind, recorded, retraced.result)
        else:
            self.uncompared += 1

    def _compare(
        self, row: Row, kind: str, recorded: pb.Result | None, computed: pb.Result
    ) -> None:
        digest, written = digest_of(computed), bytes(row.result_digest)
        if recorded is not None and digest_of(recorded) != digest:
            self._differ(row, kind, *difference(recorded, computed))
        elif written != digest:
            self._differ(row, kind, "digest", written.hex()[:_SHOWN], digest.hex()[:_SHOWN])

    def _differ(self, row: Row, kind: str, what: str, recorded: str, computed: str) -> None:
        self.differing += 1
        if self.first is None:
            self.first = pb.ReplayDifference(
                operation_id=row.id,
                seq_id=row.seq_id,
                kind=kind,
                what=what,
                recorded=recorded,
                computed=computed,
            )


def difference(recorded: pb.Result, computed: pb.Result) -> tuple[str, str, str]:
    """The first thing in which two results differ, as it is in the one and in the other."""
    kinds = recorded.WhichOneof("result") or "nothing", computed.WhichOneof("result") or "nothing"
    if kinds[0] != kinds[1]:
        return "result", *kinds
    if kinds[0] == "failure":
        return "failure", recorded.failure.message[:200], computed.failure.message[:200]
    if kinds[0] == "metrics":
        return _of_metrics(recorded.metrics.metrics, computed.metrics.metrics)
    before, after = recorded.forward_backward, computed.forward_backward
    if (found := _of_metrics(before.metrics, after.metrics))[0]:
        return found
    return "outputs", digest_of(recorded).hex()[:_SHOWN], digest_of(computed).hex()[:_SHOWN]


def _of_metrics(
    recorded: Mapping[str, float], computed: Mapping[str, float]
) -> tuple[str, str, str]:
    for name in sorted({*recorded, *computed}):
        before, after = recorded.get(name), computed.get(name)
        if before != after:
            return name, repr(before), repr(after)
    return "", "", ""
