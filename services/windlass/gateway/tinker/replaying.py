"""Replays and forks of runs, which the SDK has no word for."""

from typing import Any

import msgspec

from windlass.api.tuning.v1 import tuning_pb2 as pb
from windlass.api.tuning.v1 import tuning_pb2_grpc as rpc
from windlass.gateway.tinker.requests import TinkerRequest
from windlass.gateway.tinker.routing import Answer, TinkerRoute, route

# As long as a log may be; a client that leaves ends it.
REPLAY_SECONDS = 6 * 3600.0


class OperationBody(msgspec.Struct):
    """The last operation to compute, by its number or its id; empty: all."""

    operation: str = ""
    # Of what a fork makes.
    name: str = ""


class ReplayRoutes:
    """Routes that compute a log again."""

    def __init__(self, tuning: rpc.TuningServiceAsyncStub):
        self._tuning = tuning

    def routes(self) -> tuple[TinkerRoute, ...]:
        """Every route; each ends with its client."""
        return (
            route("POST", "training_runs/{run_id}/replay", self._replay, is_long=True),
            route("POST", "training_runs/{run_id}/fork", self._fork, is_long=True),
        )

    async def _replay(self, request: TinkerRequest) -> Answer:
        asked = request.decoded(OperationBody)
        report = await self._tuning.ReplayRun(
            pb.ReplayRunRequest(run_id=request.names["run_id"], operation=asked.operation),
            timeout=REPLAY_SECONDS,
        )
        return _report_json(report)

    async def _fork(self, request: TinkerRequest) -> Answer:
        asked = request.decoded(OperationBody)
        made = await self._tuning.ForkRun(
            pb.ForkRunRequest(
                run_id=request.names["run_id"], operation=asked.operation, name=asked.name
            ),
            timeout=REPLAY_SECONDS,
        )
        return {
            "training_run_id": made.run_id,
            "session_id": made.session_id,
            "tinker_path": made.path,
            "request_id": made.operation_id,
        }


def _report_json(report: pb.ReplayReport) -> dict[str, Any]:
    found: dict[str, Any] = {
        "training_run_id": report.run_id,
        "agrees": report.agrees,
        "exclusive": report.exclusive,
        "began_at": report.began_at,
        "first_place": report.first_place,
        "last_place": report.last_place,
        "operations": report.operations,
        "results_compared": report.results_compared,
        "weights_compared": report.weights_compared,
        "not_compared": report.not_compared,
        "differing": report.differing,
        "first_difference": None,
        "gaps": list(report.gaps),
    }
    if report.HasField("first_difference"):
        first = report.first_difference
        found["first_difference"] = {
            "request_id": first.operation_id,
            "seq_id": first.seq_id,
            "kind": first.kind,
            "what": first.what,
            "recorded": first.recorded,
            "computed": first.computed,
        }
    return found
