"""Showing work that takes a while: bars on a terminal, plain lines elsewhere."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from windlass.client.display.text import human_size, printable
from windlass.client.resources.files import Progress as BytesSeen
from windlass.client.resources.files import ignore

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Task
    from rich.text import Text


@dataclass(frozen=True, slots=True)
class TrainingProgress:
    """State of a training by the metrics events seen so far."""

    step: int = 0
    total: int = 0
    attempt: int = 0
    reward: float | None = None
    loss: float | None = None
    tokens_per_second: float | None = None
    # The first step of this attempt and when it was seen (Unix seconds): what speed is measured by.
    since_step: int = 0
    since: float = 0.0
    at: float = 0.0

    def after(self, event: dict[str, Any]) -> "TrainingProgress":
        """The state once `event` is known; one that is no metrics event changes nothing."""
        data = event.get("data")
        if event.get("type") != "metrics" or not isinstance(data, dict):
            return self
        step, at = int(data.get("step") or 0), float(event.get("created_at") or 0)
        # A resumed attempt has a clock of its own: the pause before it is no training.
        attempt = int(data.get("attempt") or 0)
        again = not self.since or step < self.step or attempt != self.attempt
        return replace(
            self,
            step=step,
            total=int(data.get("total_steps") or self.total),
            attempt=attempt,
            reward=data.get("train_mean_reward", self.reward),
            loss=data.get("train_loss", self.loss),
            tokens_per_second=data.get("tokens_per_second", self.tokens_per_second),
            since_step=step if again else self.since_step,
            since=at if again else self.since,
            at=at,
        )

    def interrupted(self) -> "TrainingProgress":
        """The state while no steps are made: the next measurement begins the clock anew."""
        return replace(self, since=0.0)

    @property
    def seconds_left(self) -> float | None:
        """The time left at the speed of this attempt so far; None while that is unknown."""
        done, spent = self.step - self.since_step, self.at - self.since
        if not self.since or done <= 0 or spent <= 0 or self.total < self.step:
            return None
        return (self.total - self.step) * spent / done

    def describe(self) -> str:
        """Reward, loss, speed and time left, as far as they are known."""
        left = self.seconds_left if self.step < self.total else None
        return measures(self.reward, self.loss, self.tokens_per_second, left)


def measures(
    reward: float | None, loss: float | None, tokens_per_second: float | None, left: float | None
) -> str:
    """A training's latest measures and the seconds left, as far as they are known."""
    parts = []
    if reward is not None:
        parts.append(f"reward {reward:.4g}")
    if loss is not None:
        # Zero is added since a loss of rewards is often -0.0.
        parts.append(f"loss {round(loss, 6) + 0.0:.4g}")
    if tokens_per_second:
        parts.append(f"{tokens_per_second:,.0f} tokens/s")
    if left is not None:
        parts.append(f"{duration(left)} left")
    return " · ".join(parts)


def duration(seconds: float) -> str:
    """Minutes and seconds, with hours when there are any."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def event_line(event: dict[str, Any]) -> str:
    """Returns an event as a line of text: time, level unless it is only information, message."""
    at = time.strftime("%H:%M:%S", time.localtime(event.get("created_at") or 0))
    level = event.get("level") or "info"
    loud = "" if level == "info" else f"{level}: "
    return f"{at}  {loud}{printable(str(event.get('message') or ''))}"


def say(console: "Console", line: str, *, soft_wrap: bool = True) -> None:
    """Prints a line as it is."""
    # What a tenant names may hold `:ticket:` and `[red]`, and is no markup.
    console.print(line, markup=False, emoji=False, highlight=False, soft_wrap=soft_wrap)


@contextmanager
def transfer(title: str, total: int, console: "Console | None") -> Iterator[BytesSeen]:
    """Yields what to call with every piece of `total` bytes that went by.

    Without a console nothing is shown; a console that is no terminal gets one
    line when all is done.
    """
    if console is None:
        yield ignore
        return
    if not console.is_terminal:
        began = time.monotonic()
        yield ignore
        seconds = max(time.monotonic() - began, 1e-3)
        line = f"{title}: {human_size(total)} in {seconds:.1f} s"
        say(console, line)
        return
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.text import Text

    class Speed(TransferSpeedColumn):
        """The speed, and nothing while it is unknown."""

        def render(self, task: "Task") -> "Text":
            """Shows no question mark for what came in one piece."""
            return super().render(task) if task.finished_speed or task.speed else Text()

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        DownloadColumn(),
        Speed(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console) as view:
        task = view.add_task(printable(title), total=total)
        yield lambda size: view.advance(task, size)
