"""Reporter of a running job: messages, phases and metrics, in order."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping

from windlass.api.runner.v1 import runner_pb2 as pb
from windlass.core.telemetry import logger
from windlass_agent.clock import now_ms
from windlass_agent.machine.path_redaction import redact_paths
from windlass_agent.runner.protocol.link import AgentLink
from windlass_agent.runner.reporting.spool import EventSpool

_BATCH = 200
# Reports of a trainer that measures each step share a call; the first goes at once.
_PACE_SECONDS = 0.5
# An agent that answers without storing is not asked in a hurry.
_UNSTORED_SECONDS = 0.5

_log = logger("runner")


class Reporter:
    """Writes events to the spool and, in `run`, hands them to the agent."""

    def __init__(self, link: AgentLink, spool: EventSpool) -> None:
        self._link = link
        self._spool = spool
        self._appended = asyncio.Event()
        self._drained = asyncio.Event()
        self._drained.set()
        self._hurry = asyncio.Event()
        self._followers: list[Callable[[pb.StepMetrics], None]] = []
        self._hidden: list[str] = []

    @property
    def last_seq(self) -> int:
        """The number of the newest event; 0 before the first."""
        return self._spool.last_seq

    def follow(self, follower: Callable[[pb.StepMetrics], None]) -> None:
        """Shows `follower` each measurement from now on."""
        self._followers.append(follower)

    def hide(self, secret: str) -> None:
        """Keeps a text out of every message from now on."""
        if secret:
            self._hidden.append(secret)

    def info(self, message: str) -> None:
        """Reports something that is as it should be."""
        self._append(pb.RunEvent(level=pb.LEVEL_INFO, message=message))

    def warn(self, message: str) -> None:
        """Reports something that people should know of."""
        self._append(pb.RunEvent(level=pb.LEVEL_WARN, message=message))

    def phase(self, name: str, message: str) -> None:
        """The beginning of a phase, such as training, by the names of the contract."""
        self._append(pb.RunEvent(level=pb.LEVEL_INFO, message=message, phase=name))

    def metrics(self, metrics: pb.StepMetrics, values: Mapping[str, float]) -> None:
        """Reports the measures of a step."""
        metrics.values.update(values)
        event = pb.RunEvent(level=pb.LEVEL_INFO, metrics=metrics)
        known = ((name, values[key]) for key, name in _MEASURES if key in values)
        # Zero is added since a loss of rewards is often -0.0.
        shown = ", ".join(f"{name}={round(value, 4) + 0.0:.4f}" for name, value in known)
        event.message = f"Step {metrics.step}/{metrics.total_steps}: {shown or 'measured'}"
        self._append(event)
        for follower in self._followers:
            follower(metrics)

    def evaluation(self, result: pb.EvaluationResult, message: str) -> None:
        """Reports how the fine-tuned model compares."""
        self._append(pb.RunEvent(level=pb.LEVEL_INFO, message=message, evaluation=result))

    async def run(self) -> None:
        """Sends what is appended, until cancelled; raises CallRefused."""
        while True:
            await self._appended.wait()
            self._appended.clear()
            while not self._spool.is_empty:
                await self._send()
            self._drained.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PACE_SECONDS):
                    await self._hurry.wait()

    async def flush(self) -> None:
        """Returns when the agent has stored everything so far; `run` must be running."""
        self._hurry.set()
        await self._drained.wait()
        self._hurry.clear()

    async def _send(self) -> None:
        events = self._spool.batch(_BATCH)
        stored = await self._link.report(events)
        if stored < events[0].seq:
            await asyncio.sleep(_UNSTORED_SECONDS)
        self._spool.acknowledge(stored)

    def _append(self, event: pb.RunEvent) -> None:
        event.at_ms = now_ms()
        event.message = redact_paths(event.message)
        for secret in self._hidden:
            event.message = event.message.replace(secret, "(hidden)")
        self._spool.append(event)
        self._drained.clear()
        self._appended.set()


class LogOnlyReporter(Reporter):
    """A reporter for a node that does not report for its job: events stay in its own log."""

    async def run(self) -> None:
        """Waits until cancelled."""
        await asyncio.Event().wait()

    async def flush(self) -> None:
        """Returns at once: nothing is on its way."""

    def _append(self, event: pb.RunEvent) -> None:
        _log.info("node_event", message=event.message)


_MEASURES = (
    ("train_mean_reward", "training reward"),
    ("valid_mean_reward", "validation reward"),
    ("train_loss", "training loss"),
    ("valid_loss", "validation loss"),
)
