"""Trackers of experiments: whether a job may report to them, and what its runner is told."""

from collections.abc import Sequence

import grpc
import msgspec

from windlass.api.runner.v1 import runner_pb2
from windlass.api.users.v1 import users_pb2, users_pb2_grpc
from windlass.core.errors import AppError, InvalidArgument, NotFound, Unavailable, from_rpc
from windlass.jobs.domain.job import Job
from windlass.jobs.tracking.destinations import destination
from windlass.jobs_api.integrations import Integration, OfMlflow, OfWandb, kind_of


class Trackers:
    """Asks users for secrets; holds the origins that an operator allows."""

    def __init__(
        self,
        users: users_pb2_grpc.UsersInternalServiceAsyncStub,
        *,
        allowed: Sequence[str],
        wandb_url: str,
    ):
        self._users = users
        self._allowed = allowed
        self._wandb_url = wandb_url

    async def admit(self, project_id: str, integrations: Sequence[Integration]) -> None:
        """Returns if all may be reported to and their secrets are there; raises InvalidArgument."""
        for index, one in enumerate(integrations):
            self._destination(one, f"integrations.{index}.{kind_of(one)}")
        wanted = {one.secret: index for index, one in enumerate(integrations) if one.secret}
        if not wanted:
            return
        request = users_pb2.FindSecretsRequest(project_id=project_id, names=sorted(wanted))
        try:
            found = await self._users.FindSecrets(request)
        except grpc.aio.AioRpcError as error:
            raise from_rpc(error) from error
        for name in sorted(wanted.keys() - set(found.names)):
            raise InvalidArgument(
                f"The project has no secret {name!r} for this tracker. Store it with "
                f"`windlass secrets put {name}`.",
                reason="secret_not_found",
                param=f"integrations.{wanted[name]}.{name}",
            )

    async def told(self, job: Job) -> list[runner_pb2.Tracker]:
        """The settings of each tracker that the attempt's runner needs, with secrets as they are
        now.

        One that became impossible is told with its problem: no job fails for its tracker.
        """
        try:
            integrations = msgspec.convert(job.spec.integrations, list[Integration])
        except msgspec.ValidationError as error:
            # A job of an earlier version, which was less particular.
            return [runner_pb2.Tracker(problem=f"integrations: {error}.")]
        told = []
        for one in integrations:
            config = msgspec.json.encode(msgspec.to_builtins(one).get(kind_of(one), {}))
            tracker = runner_pb2.Tracker(type=kind_of(one), config=config)
            try:
                url = self._destination(one, kind_of(one))
                tracker.secret = await self._reveal(job, one.secret)
                tracker.url = url
            except Unavailable:
                # The runner asks again.
                raise
            except AppError as error:
                tracker.problem = error.message
            told.append(tracker)
        return told

    def _destination(self, one: Integration, param: str) -> str:
        """The address of a tracker, empty for a file; raises InvalidArgument."""
        if isinstance(one, OfWandb):
            return destination(self._wandb_url, self._allowed, param=param)
        if isinstance(one, OfMlflow):
            uri = f"{param}.tracking_uri"
            return destination(one.mlflow.tracking_uri, self._allowed, param=uri)
        return ""

    async def _reveal(self, job: Job, name: str) -> bytes:
        if not name:
            return b""
        request = users_pb2.RevealSecretRequest(
            project_id=job.project_id, name=name, used_by=job.id
        )
        try:
            return bytes((await self._users.RevealSecret(request)).value)
        except grpc.aio.AioRpcError as error:
            failure = from_rpc(error)
            if isinstance(failure, NotFound):
                raise NotFound(f"The project's secret {name!r} was deleted.") from error
            raise failure from error
