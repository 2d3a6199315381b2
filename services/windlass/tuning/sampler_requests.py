"""Requests about samplers: a new one, and the ends of what it was asked."""

from collections.abc import Sequence

from windlass.api.tuning.v1 import tuning_pb2 as pb
from windlass.core.errors import InvalidArgument
from windlass.core.rpc.auth import Principal
from windlass.tuning import messages
from windlass.tuning.admission import MAX_SAMPLE_SEQ_ID, known_model, reader_of
from windlass.tuning.domain import CLIENT_NUMBERS, LONGEST_WAIT_MS, parse_path, sampler_id_of
from windlass.tuning.ending import SamplerEnds
from windlass.tuning.storage.checkpoints import WeightsStore
from windlass.tuning.storage.ends import EndsQuery
from windlass.tuning.storage.sessions import TuningSessionStore
from windlass.tuning_api.trainers.records import TrainableModel


class SamplerRequests:
    """Judges and carries out what clients ask about samplers."""

    def __init__(
        self,
        sessions: TuningSessionStore,
        checkpoints: WeightsStore,
        ends: SamplerEnds,
        models: Sequence[TrainableModel],
    ):
        self._sessions = sessions
        self._checkpoints = checkpoints
        self._ends = ends
        self._models = models

    async def create(self, caller: Principal, request: pb.CreateSamplerRequest) -> pb.Sampler:
        """Makes a sampler of a base model or a checkpoint that the caller may read."""
        project_id = caller.require_project()
        await self._sessions.get(project_id, request.session_id)
        base_model, checkpoint_id = request.base_model, ""
        if request.path:
            found = await self._checkpoints.find(reader_of(caller), parse_path(request.path))
            base_model, checkpoint_id = found.base_model, found.id
        caller.require_model(base_model, "base_model")
        row = await self._sessions.create_sampler(
            project_id,
            {
                "id": sampler_id_of(request.session_id, request.number),
                "organization_id": caller.organization_id,
                "project_id": project_id,
                "session_id": request.session_id,
                "base_model": known_model(self._models, base_model).name,
                "checkpoint_id": checkpoint_id,
                "run_id": "",
                "path": request.path,
            },
        )
        return messages.sampler(row)

    async def ended(self, project_id: str, request: pb.PollEndedRequest) -> pb.PollEndedResponse:
        """Waits for ends of what a client of a sampler asked."""
        sampler = await self._sessions.sampler(project_id, request.sampler_id)
        numbers = (request.client_number, request.cursor)
        if not all(0 <= number <= MAX_SAMPLE_SEQ_ID for number in numbers):
            raise InvalidArgument("client_number or cursor is out of range.", param="cursor")
        query = EndsQuery(project_id, sampler.id, *numbers)
        if query.client_number * CLIENT_NUMBERS > MAX_SAMPLE_SEQ_ID:
            raise InvalidArgument("client_number is out of range.", param="client_number")
        if not 0 <= request.wait_seconds <= LONGEST_WAIT_MS / 1000:
            raise InvalidArgument("wait_seconds is out of range.", param="wait_seconds")
        found = await self._ends.wait(query, request.wait_seconds)
        return pb.PollEndedResponse(
            operation_ids=[one for one, _ in found],
            cursor=found[-1][1] if found else request.cursor,
        )
