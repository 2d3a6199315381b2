"""/v1/fine_tuning/jobs."""

from typing import Annotated, Any

from fastapi import Header, Query, Request
from fastapi.responses import Response, StreamingResponse

from windlass.api.jobs.v1 import jobs_pb2 as pb
from windlass.api.jobs.v1 import jobs_pb2_grpc as rpc
from windlass.bounds import LATEST
from windlass.core.app import App
from windlass.gateway.openai.following import Followed, log_bytes, server_sent, while_allowed
from windlass.gateway.openai.rendering import (
    ENDED,
    Json,
    page,
    render_checkpoint,
    render_event,
    render_explanation,
    render_job,
    states_of,
)
from windlass.gateway.parameters import INT64, After, Limit, LongLimit, bracketed, bracketed_pairs
from windlass.gateway.resource_router import ResourceRouter

_SINCE = "Only jobs created at this time (Unix seconds) or later."
# How far a search for jobs without metadata looks on, in pages of 100.
SEARCH_PAGES = 100
# What a key must go on to allow while something is followed.
READ = "jobs.read"


def fine_tuning_router(app: App) -> ResourceRouter:
    """Fine-tuning jobs, but for their creation: see `creation`."""
    router = ResourceRouter(prefix="/fine_tuning/jobs", tags=["fine-tuning"])
    jobs = app.clients.stub(rpc.JobsServiceStub)

    @router.get("")
    async def list_jobs(
        request: Request,
        after: After = "",
        limit: Limit = 0,
        created_after: Annotated[int, Query(ge=0, le=LATEST, description=_SINCE)] = 0,
    ) -> Json:
        """The project's jobs, newest first; `metadata[k]=v` filters, `metadata=null` too.

        `status` may be repeated: a job with any of them is listed.
        """
        wanted = pb.ListJobsRequest(
            after=after,
            limit=limit,
            metadata=bracketed_pairs(request, "metadata"),
            states=[state for one in bracketed(request, "status") for state in states_of(one)],
            created_after=created_after,
        )
        if request.query_params.get("metadata") in ("null", ""):
            return await _without_metadata(jobs, wanted)
        answer = await jobs.ListJobs(wanted)
        return page([render_job(job) for job in answer.jobs], answer.has_more)

    @router.get("/{job_id}")
    async def retrieve_job(job_id: str) -> Json:
        """Returns one job."""
        return render_job(await jobs.GetJob(pb.GetJobRequest(job_id=job_id)))

    @router.post("/{job_id}/cancel")
    async def cancel_job(job_id: str) -> Json:
        """Asks the job to end."""
        return render_job(await jobs.CancelJob(pb.CancelJobRequest(job_id=job_id)))

    @router.post("/{job_id}/pause")
    async def pause_job(job_id: str) -> Json:
        """Saves a checkpoint and gives the resources back."""
        return render_job(await jobs.PauseJob(pb.PauseJobRequest(job_id=job_id)))

    @router.post("/{job_id}/resume")
    async def resume_job(job_id: str) -> Json:
        """Goes on from the last checkpoint."""
        return render_job(await jobs.ResumeJob(pb.ResumeJobRequest(job_id=job_id)))

    @router.get("/{job_id}/explain")
    async def explain_job(job_id: str) -> Json:
        """Returns why the job is where it is, or why it waits: a verdict on every cluster."""
        return render_explanation(await jobs.ExplainJob(pb.ExplainJobRequest(job_id=job_id)))

    _add_records(router, jobs)
    return router


def _add_records(router: ResourceRouter, jobs: rpc.JobsServiceAsyncStub) -> None:
    @router.get("/{job_id}/events", response_model=None)
    async def list_events(
        job_id: str,
        request: Request,
        after: After = "",
        limit: LongLimit = 0,
        stream: bool = False,
        last_event_id: Annotated[str, Header(max_length=256)] = "",
    ) -> Any:
        """Events, newest first; with `stream=true` in order and live, server-sent.

        A stream goes on after `Last-Event-ID`, or else after `after`. It is over with `[DONE]`;
        a client that has all events of an ended job is answered 204, and need not come again.
        """
        if stream:
            if last_event_id and await _is_all(jobs, job_id, last_event_id):
                return Response(status_code=204)
            return await _live(jobs, request, job_id, last_event_id or after)
        answer = await jobs.ListEvents(
            pb.ListEventsRequest(job_id=job_id, after=after, limit=limit)
        )
        return page([render_event(event) for event in answer.events], answer.has_more)

    @router.get("/{job_id}/checkpoints")
    async def list_checkpoints(job_id: str, after: After = "", limit: Limit = 0) -> Json:
        """Checkpoints, each usable as a model."""
        answer = await jobs.ListCheckpoints(
            pb.ListCheckpointsRequest(job_id=job_id, after=after, limit=limit)
        )
        found = [render_checkpoint(checkpoint, job_id) for checkpoint in answer.checkpoints]
        return page(found, answer.has_more)

    @router.get("/{job_id}/logs", response_class=StreamingResponse)
    async def read_log(
        job_id: str,
        request: Request,
        follow: bool = False,
        offset: Annotated[int, Query(ge=0, le=INT64)] = 0,
    ) -> StreamingResponse:
        """The job's log from a byte on; with `follow` until the job has ended."""
        await jobs.GetJob(pb.GetJobRequest(job_id=job_id))
        chunks = jobs.ReadLog(pb.ReadLogRequest(job_id=job_id, offset=offset, follow=follow))
        allowed = while_allowed(request.scope["state"]["exchange"], READ, chunks)
        return Followed(chunks, log_bytes(allowed), media_type="text/plain; charset=utf-8")


async def _live(
    jobs: rpc.JobsServiceAsyncStub, request: Request, job_id: str, after: str
) -> Response:
    events = jobs.WatchEvents(pb.WatchEventsRequest(job_id=job_id, after=after))
    # A refusal comes now, while a status can still say so.
    await events.wait_for_connection()
    return Followed(
        events,
        server_sent(while_allowed(request.scope["state"]["exchange"], READ, events)),
        media_type="text/event-stream",
        headers={"cache-control": "no-cache", "x-accel-buffering": "no"},
    )


async def _is_all(jobs: rpc.JobsServiceAsyncStub, job_id: str, event_id: str) -> bool:
    """Returns True if a job has ended, and with this event."""
    job = await jobs.GetJob(pb.GetJobRequest(job_id=job_id))
    if job.state not in ENDED:
        return False
    newest = await jobs.ListEvents(pb.ListEventsRequest(job_id=job_id, limit=1))
    return [event.id for event in newest.events] == [event_id]


async def _without_metadata(jobs: rpc.JobsServiceAsyncStub, wanted: pb.ListJobsRequest) -> Json:
    found: list[pb.Job] = []
    limit, wanted.limit = wanted.limit or 20, 100
    for _ in range(SEARCH_PAGES):
        answer = await jobs.ListJobs(wanted)
        found += [job for job in answer.jobs if not job.metadata]
        if len(found) > limit or not answer.has_more:
            break
        wanted.after = answer.jobs[-1].id
    return page([render_job(job) for job in found[:limit]], len(found) > limit)
