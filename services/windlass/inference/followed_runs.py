"""Runs whose weights engines follow: what is newest, and what a project may have of it."""

import asyncio
from collections.abc import Iterable, Mapping

import grpc

from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.tuning.v1 import publishing_pb2 as pb
from windlass.api.tuning.v1.publishing_pb2_grpc import PublishingServiceAsyncStub
from windlass.core import telemetry
from windlass.core.errors import InvalidArgument, NotFound, from_rpc
from windlass.inference.domain import Engine

log = telemetry.logger("inference")
SCHEME = "tinker://"
# How old an answer may be when engines are planned.
FRESH_SECONDS = 1.0
_NO_SERVICE = "This installation has no tuning service, whose runs could be followed."
_GONE = "The run is gone, or this project may not read its weights any more."


class FollowedRuns:
    """Asks the tuning service, in the name of the project of each engine."""

    def __init__(self, tuning: PublishingServiceAsyncStub | None):
        """`tuning` is None in an installation without that service."""
        self._tuning = tuning
        self._newest: dict[tuple[str, str], int] = {}
        self._asked_at = 0.0

    async def require(self, organization_id: str, project_id: str, follow: str) -> None:
        """Raises InvalidArgument for what is no run that the project may follow."""
        run_id = follow.removeprefix(SCHEME)
        if not follow.startswith(SCHEME) or "/" in run_id or not run_id.isprintable():
            raise InvalidArgument("follow must be `tinker://RUN`, or empty.", param="follow")
        request = pb.FindNewestVersionRequest(
            organization_id=organization_id, project_id=project_id, run_id=run_id
        )
        if self._tuning is None:
            raise InvalidArgument(_NO_SERVICE, param="follow")
        try:
            await self._tuning.FindNewestVersion(request)
        except grpc.aio.AioRpcError as error:
            refusal = from_rpc(error)
            if isinstance(refusal, NotFound):
                raise NotFound(
                    f"No such full-parameter run: {run_id!r}.",
                    reason="run_not_found",
                    param="follow",
                ) from error
            raise refusal from error

    async def newest(self, engines: Iterable[Engine]) -> Mapping[tuple[str, str], int]:
        """The newest versions of the runs that engines follow, by project and `tinker://RUN`.

        Of a run that cannot be asked about now it is what was said last.
        """
        owners = {
            (one.project_id, one.follow): one.organization_id for one in engines if one.follow
        }
        clock = asyncio.get_running_loop().time()
        if owners.keys() == self._newest.keys() and clock - self._asked_at < FRESH_SECONDS:
            return self._newest
        found: dict[tuple[str, str], int] = {}
        for key, organization_id in owners.items():
            version = await self._ask(organization_id, *key)
            if version is None:
                version = self._newest.get(key)
            if version is not None:
                found[key] = version
        self._newest, self._asked_at = found, clock
        return found

    async def versions(self, engine: Engine) -> clusters_pb2.FollowedWeights | None:
        """Returns what an engine should have now; None for one that follows nothing."""
        if not engine.follow:
            return None
        run_id = engine.follow.removeprefix(SCHEME)
        if self._tuning is None:
            return clusters_pb2.FollowedWeights(run_id=run_id, message=_NO_SERVICE)
        request = pb.FindVersionsRequest(
            organization_id=engine.organization_id, project_id=engine.project_id, run_id=run_id
        )
        try:
            return await self._tuning.FindVersions(request)
        except grpc.aio.AioRpcError as error:
            if not isinstance(from_rpc(error), NotFound):
                raise
            return clusters_pb2.FollowedWeights(run_id=run_id, message=_GONE)

    async def _ask(self, organization_id: str, project_id: str, follow: str) -> int | None:
        if self._tuning is None:
            return None
        request = pb.FindNewestVersionRequest(
            organization_id=organization_id,
            project_id=project_id,
            run_id=follow.removeprefix(SCHEME),
        )
        try:
            return (await self._tuning.FindNewestVersion(request)).version
        except grpc.aio.AioRpcError as error:
            if isinstance(from_rpc(error), NotFound):
                return 0
            log.warning("followed_run_unknown", error=error.details())
            return None
