"""The servicers of jobs for tenants and for other services."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Any

from windlass.api.jobs.v1 import jobs_pb2 as pb
from windlass.api.jobs.v1 import jobs_pb2_grpc as rpc
from windlass.core.clock import now_ms
from windlass.core.db.paging import cut, page_of, page_size, read_fitting
from windlass.core.errors import InvalidArgument
from windlass.core.rpc.auth import current
from windlass.jobs.creation import requests
from windlass.jobs.creation.admission import JobAdmission
from windlass.jobs.domain import transitions
from windlass.jobs.domain.job import JobState, Queue
from windlass.jobs.scheduling.capacity import Capacity
from windlass.jobs.scheduling.choosing import PlacementRequest, choose
from windlass.jobs.scheduling.cluster_snapshot import ClusterSnapshot
from windlass.jobs.scheduling.explaining import Explanations
from windlass.jobs.scheduling.runtimes import runtimes_of
from windlass.jobs.scheduling.scoring import UNFIT
from windlass.jobs.storage.history import HistoryStore
from windlass.jobs.storage.logs import LogStore
from windlass.jobs.storage.store import JobStore
from windlass.jobs.transport import messages
from windlass.jobs.transport.stream_quota import EventStreams
from windlass.jobs_api.extension import Resources
from windlass.jobs_api.query import UnsentFiles, typed
from windlass.jobs_api.request import CheckJob, decoded

MAX_EVENTS = 1000
# Read of a list at once: at their largest, a few of them fill a message.
JOBS_AT_ONCE, EVENTS_AT_ONCE = 20, 200
MAX_USES = 100


class JobsServicer(rpc.JobsServiceServicer):
    """JobsService."""

    def __init__(
        self,
        store: JobStore,
        history: HistoryStore,
        logs: LogStore,
        admission: JobAdmission,
        explanations: Explanations,
        capacity: Capacity,
        streams: EventStreams,
        *,
        grace_ms: int,
    ):
        self._store = store
        self._streams = streams
        self._history = history
        self._logs = logs
        self._admission = admission
        self._explanations = explanations
        self._capacity = capacity
        self._grace_ms = grace_ms

    async def CreateJob(self, request: pb.CreateJobRequest, context: Any) -> pb.Job:
        """Checks everything that can be checked, then stores the job."""
        now = now_ms()
        asked = await decoded(request.document)
        job, plan, doubt = await self._admission.admit(
            current(), asked, now, request_id=request.request_id
        )
        change = transitions.created(job, plan, now, doubt=doubt)
        return messages.job(await self._store.create(change))

    async def CheckJob(self, request: pb.CheckJobRequest, context: Any) -> pb.Job:
        """Checks as `CreateJob` does, and stores nothing; `queue.reason` says where it would run,
        or why it would wait.
        """
        now = now_ms()
        said = {name: getattr(request, name) for name in UnsentFiles.__struct_fields__}
        unsent = typed({name: value for name, value in said.items() if value}, UnsentFiles)
        asked = await decoded(request.document, CheckJob)
        job, plan, doubt = await self._admission.admit(current(), asked, now, unsent=unsent)
        await self._store.require_room(job)
        job = transitions.created(job, plan, now).job
        queued = replace(job, state=JobState.QUEUED)
        reason = doubt or (await self._explanations.of(queued, now)).summary
        return messages.job(replace(job, id="", queue=Queue(reason=reason)))

    async def ListJobs(self, request: pb.ListJobsRequest, context: Any) -> pb.ListJobsResponse:
        """The project's jobs, newest first."""
        wanted = partial(
            self._store.list,
            current().require_project(),
            metadata=requests.metadata(request.metadata),
            states=list(request.states),
            created_after_ms=requests.moment(request.created_after, "created_after") * 1000,
        )
        page, more = await read_fitting(
            lambda after, limit: wanted(after=after, limit=limit),
            messages.job,
            lambda job: job.id,
            after=request.after,
            size=page_size(request.limit),
            at_once=JOBS_AT_ONCE,
        )
        return pb.ListJobsResponse(jobs=page, has_more=more)

    async def GetJob(self, request: pb.GetJobRequest, context: Any) -> pb.Job:
        """Returns one job."""
        job = await self._store.get(current().require_project(), request.job_id)
        return messages.job(job)

    async def CancelJob(self, request: pb.CancelJobRequest, context: Any) -> pb.Job:
        """Requests the cancellation of a job."""
        job = await self._store.change(
            request.job_id,
            lambda job: transitions.cancel_requested(job, now_ms(), grace_ms=self._grace_ms),
            project_id=current().require_project(),
        )
        return messages.job(job)

    async def PauseJob(self, request: pb.PauseJobRequest, context: Any) -> pb.Job:
        """Requests that a job save its state and release its resources."""
        job = await self._store.change(
            request.job_id,
            lambda job: transitions.pause_requested(job, now_ms(), grace_ms=self._grace_ms),
            project_id=current().require_project(),
        )
        return messages.job(job)

    async def ResumeJob(self, request: pb.ResumeJobRequest, context: Any) -> pb.Job:
        """Resumes a paused job."""
        job = await self._store.change(
            request.job_id,
            lambda job: transitions.resume_requested(job, now_ms()),
            project_id=current().require_project(),
        )
        return messages.job(job)

    async def ExplainJob(self, request: pb.ExplainJobRequest, context: Any) -> pb.Explanation:
        """Returns why a job is where it is, or why it waits."""
        job = await self._store.get(current().require_project(), request.job_id)
        return messages.explanation(job, await self._explanations.of(job, now_ms()))

    async def ListEvents(
        self, request: pb.ListEventsRequest, context: Any
    ) -> pb.ListEventsResponse:
        """A job's events, newest first."""
        size = page_size(request.limit, max_limit=MAX_EVENTS)
        job = await self._store.get(current().require_project(), request.job_id)
        page, more = await read_fitting(
            lambda after, limit: self._history.events(job, after=after, limit=limit),
            messages.event,
            lambda event: event.id,
            after=request.after,
            size=size,
            at_once=EVENTS_AT_ONCE,
        )
        return pb.ListEventsResponse(events=page, has_more=more)

    async def WatchEvents(
        self, request: pb.WatchEventsRequest, context: Any
    ) -> AsyncIterator[pb.Event]:
        """A job's events in order, until it has ended."""
        job = await self._store.get(current().require_project(), request.job_id)
        async with (
            self._streams.one(job.organization_id, job.project_id),
            aclosing(self._history.follow(job, request.after)) as events,
        ):
            # Says that nothing is refused any more, however long the first event takes.
            await context.send_initial_metadata(())
            async for event in events:
                yield messages.event(event)

    async def ListCheckpoints(
        self, request: pb.ListCheckpointsRequest, context: Any
    ) -> pb.ListCheckpointsResponse:
        """A job's checkpoints, latest step first."""
        size = page_size(request.limit, default=10)
        job = await self._store.get(current().require_project(), request.job_id)
        rows = await self._history.checkpoints(job, after=request.after, limit=size + 1)
        page, more = cut(rows, size)
        found = [messages.checkpoint(row) for row in page]
        return pb.ListCheckpointsResponse(checkpoints=found, has_more=more)

    async def ReadLog(self, request: pb.ReadLogRequest, context: Any) -> AsyncIterator[pb.LogChunk]:
        """A job's log."""
        project_id = current().require_project()
        if request.offset < 0:
            raise InvalidArgument("offset must not be negative.", param="offset")
        job = await self._store.get(project_id, request.job_id)
        chunks = self._logs.read(project_id, job, offset=request.offset, follow=request.follow)
        async for chunk in chunks:
            yield messages.log_chunk(chunk)

    async def ListRuntimes(
        self, request: pb.ListRuntimesRequest, context: Any
    ) -> pb.ListRuntimesResponse:
        """The runtimes that the project can train with now."""
        project_id = current().require_project()
        await self._capacity.look()
        found = runtimes_of(self._capacity.snapshot or ClusterSnapshot(), project_id)
        page, more = page_of(found, lambda one: one.name, after=request.after, limit=request.limit)
        return pb.ListRuntimesResponse(runtimes=map(messages.runtime, page), has_more=more)


class JobsInternalServicer(rpc.JobsInternalServiceServicer):
    """JobsInternalService."""

    def __init__(self, store: JobStore, capacity: Capacity):
        self._store = store
        self._capacity = capacity

    async def FindUses(self, request: pb.FindUsesRequest, context: Any) -> pb.FindUsesResponse:
        """Live jobs that use a file or a model."""
        used = await self._store.uses(
            file_id=request.file_id,
            model_version_id=request.model_version_id,
            limit=MAX_USES,
        )
        return pb.FindUsesResponse(job_ids=used.keys(), project_ids=used.values())

    async def ChooseCluster(
        self, request: pb.ChooseClusterRequest, context: Any
    ) -> pb.ChooseClusterResponse:
        """The cluster that suits a workload best, or why none does."""
        await self._capacity.look()
        snapshot, asked = self._capacity.snapshot, request.resources
        if snapshot is None:
            return pb.ChooseClusterResponse(reason=UNFIT)
        wanted = PlacementRequest(
            project_id=request.project_id,
            resources=Resources(gpus=asked.gpus, cpus=asked.cpus, memory_bytes=asked.memory_bytes),
            except_cluster=request.except_cluster,
        )
        chosen = choose(wanted, snapshot, self._capacity.load)
        return pb.ChooseClusterResponse(
            cluster_id=chosen.cluster_id if chosen.fits else "",
            cluster_name=chosen.cluster_name,
            reason=chosen.reason,
        )
