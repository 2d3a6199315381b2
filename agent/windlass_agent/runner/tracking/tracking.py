"""All trackers of one attempt."""

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from windlass.api.runner.v1 import runner_pb2 as pb
from windlass_agent.clock import now_ms
from windlass_agent.runner.protocol.outcome import OutcomeKind
from windlass_agent.runner.reporting.metrics import History
from windlass_agent.runner.reporting.model_card import ModelCard
from windlass_agent.runner.reporting.reporter import Reporter
from windlass_agent.runner.tracking import tensorboard
from windlass_agent.runner.tracking.endpoint import TrackerClient, basic, open_session
from windlass_agent.runner.tracking.feed import TrackerFeed
from windlass_agent.runner.tracking.mlflow import MlflowTracker
from windlass_agent.runner.tracking.port import Point, TrackedRun, Tracker, TrackerError, Unwilling
from windlass_agent.runner.tracking.wandb import WandbTracker

# What a job that has ended waits for its trackers; one that is stopped has less time.
_CLOSE_SECONDS = 15.0
_STOP_SECONDS = 5.0


class AttemptTracking:
    """Feeds of an attempt; without trackers it does nothing."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._session: aiohttp.ClientSession | None = None
        self._feeds: list[TrackerFeed] = []
        self._tensorboard = False

    def begin(self, assignment: pb.Assignment, card: ModelCard) -> None:
        """Starts to report where an assignment says; measurements follow by themselves."""
        if not assignment.trackers:
            return
        for one in assignment.trackers:
            self._reporter.hide(_text(one.secret))
        run = TrackedRun(
            job_id=assignment.job_id,
            base_model=assignment.base_model,
            model_name=assignment.model_name,
            params=card.params(),
        )
        self._session = open_session()
        for one in assignment.trackers:
            try:
                if one.problem:
                    raise Unwilling(one.problem)
                if one.type == "tensorboard":
                    self._tensorboard = True
                    continue
                tracker = _open(one, self._session)
            except TrackerError as error:
                self._reporter.warn(f"A tracker receives no reports of this job: {error}")
                continue
            self._feeds.append(TrackerFeed(tracker, run, self._reporter))
        if self._feeds:
            self._reporter.follow(self._measured)

    async def result_files(self, folder: Path, history: History) -> list[Path]:
        """The result files of the job: TensorBoard's, where the job asked for it."""
        if not self._tensorboard:
            return []
        try:
            return [await asyncio.to_thread(tensorboard.write, folder, history)]
        except TrackerError as error:
            self._reporter.warn(f"No file for TensorBoard is written: {error}.")
            return []

    async def close(self, verdict: OutcomeKind, files: Sequence[Path]) -> None:
        """Ends all runs; takes some seconds at most, and raises nothing."""
        seconds = _STOP_SECONDS if verdict is OutcomeKind.STOPPED else _CLOSE_SECONDS
        there = [file for file in files if file.exists()]
        await asyncio.gather(*(each.close(verdict, there, seconds=seconds) for each in self._feeds))

    async def leave(self) -> None:
        """Lets go of everything at once."""
        for each in self._feeds:
            each.cancel()
        if self._session is not None:
            await self._session.close()

    def _measured(self, metrics: pb.StepMetrics) -> None:
        finite = {name: value for name, value in metrics.values.items() if math.isfinite(value)}
        point = Point(metrics.step, now_ms(), finite)
        for each in self._feeds:
            each.add(point)


def _open(one: pb.Tracker, session: aiohttp.ClientSession) -> Tracker:
    """A tracker by what the assignment says of it; raises Unwilling."""
    config: dict[str, Any] = msgspec.json.decode(one.config)
    secret = _secret(one)
    if one.type == "mlflow":
        name = config.get("username")
        authorization = basic(name, secret) if name else f"Bearer {secret}"
        endpoint = TrackerClient(session, one.url, authorization if secret else "")
        return MlflowTracker(endpoint, one.url, config)
    if one.type == "wandb":
        return WandbTracker(TrackerClient(session, one.url, basic("api", secret)), one.url, config)
    raise Unwilling(f"this runner does not support {one.type!r}")


def _text(secret: bytes) -> str:
    return secret.decode(errors="replace").strip()


def _secret(one: pb.Tracker) -> str:
    text = _text(one.secret)
    if text and not (text.isascii() and text.isprintable()):
        raise Unwilling(f"the secret {one.type!r} holds characters that HTTP cannot carry")
    return text
