"""Choice of the examples of the next pass."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from windlass_agent.tuning.requests.operations import RunSpec
from windlass_agent.tuning.scheduling.queues import Portion, RunQueue, Ticket
from windlass_agent.tuning.scheduling.shares import TokenShares


@dataclass(eq=False)
class PassQueue:
    """A run as the planner sees it."""

    spec: RunSpec
    queue: RunQueue = field(default_factory=RunQueue)


class PassPlanner:
    """Fills passes, by weight over projects and evenly over a project's runs."""

    def __init__(self, tokens: int, runs: int):
        self._tokens = tokens
        self._most_runs = runs
        self._projects = TokenShares()
        self._runs = TokenShares()

    def plan(self, runs: Mapping[str, PassQueue]) -> dict[str, list[Portion]]:
        """Takes the examples of a pass from the queues, by run; empty when no example waits.

        A pass holds `tokens` at most, or one longer example, of up to `runs` runs. An example of
        an exclusive run is alone.
        """
        waiting = {name: run for name, run in runs.items() if run.queue.next_tokens() is not None}
        self._projects.observe({run.spec.project for run in waiting.values()})
        self._runs.observe(waiting)
        taken: dict[str, dict[Ticket, list[int]]] = {}
        room = self._tokens
        while waiting:
            name = self._next(waiting)
            run = waiting[name]
            tokens = run.queue.next_tokens()
            if name not in taken and len(taken) >= self._most_runs:
                del waiting[name]
                continue
            if tokens is None or (run.spec.exclusive and taken) or (tokens > room and taken):
                # A shorter one of somebody else would overtake it again and again.
                if tokens is not None and tokens > room:
                    break
                del waiting[name]
                continue
            ticket, place = run.queue.take()
            taken.setdefault(name, {}).setdefault(ticket, []).append(place)
            self._projects.charge(run.spec.project, tokens, run.spec.weight)
            self._runs.charge(name, tokens)
            room -= tokens
            if run.spec.exclusive:
                break
        return {
            name: [Portion(ticket, tuple(places)) for ticket, places in tickets.items()]
            for name, tickets in taken.items()
        }

    def _next(self, waiting: Mapping[str, PassQueue]) -> str:
        project = self._projects.least_served({run.spec.project for run in waiting.values()})
        return self._runs.least_served(
            name for name, run in waiting.items() if run.spec.project == project
        )
