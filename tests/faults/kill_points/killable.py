"""An installation whose processes end themselves at named points, and are started again at once."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx
from tests.faults.lone_agent import LoneAgent
from tests.faults.site import BASE, Site, training_rows
from tests.support.factories.feather import make_feather
from tests.support.processes.windlass import Windlass, make_single, running
from tests.support.waiting import wait_until

from windlass.core.killpoints import VARIABLE

T = TypeVar("T")
HERE = Path(__file__).parent
# The backend whose trainer takes milliseconds.
INSTANT = HERE / "instant"
EPOCHS = 2
# The trainer's steps of an epoch, each of which ends with a checkpoint.
STEPS = 2
LOOK_SECONDS = 0.05


@dataclass
class Killable:
    """A server and an agent of its own, supervised; jobs train in milliseconds."""

    site: Site
    agent: LoneAgent
    points: Path
    restarts: list[str] = field(default_factory=list)

    @property
    def windlass(self) -> Windlass:
        return self.site.windlass

    @contextmanager
    def killed_at(self, point: str) -> Iterator[None]:
        """Whichever process first gets to the point during the block is killed there."""
        self.restarts.clear()
        (self.points / point).touch()
        try:
            yield
            reached = self.points / f"{point}.reached"
            wait_until(reached.exists, f"{point} ({self.windlass.logs()})")
            reached.unlink()
        finally:
            (self.points / point).unlink(missing_ok=True)

    def upload(self) -> str:
        """A training file of a client that repeats what was not answered; its id."""
        files = {"file": ("train.jsonl", training_rows())}
        return self._repeated(
            lambda http: http.post("/v1/files", data={"purpose": "fine-tune"}, files=files)
        )

    def create(self, file_id: str, key: str) -> str:
        """A job of such a client, told apart by an idempotency key; its id."""
        hyperparameters = {"n_epochs": EPOCHS}
        body = {
            "model": BASE,
            "training_file": file_id,
            "method": {"type": "supervised", "supervised": {"hyperparameters": hyperparameters}},
            "windlass": {"backend": "instant"},
        }
        headers = {"Idempotency-Key": key}
        return self._repeated(
            lambda http: http.post("/v1/fine_tuning/jobs", json=body, headers=headers)
        )

    def _repeated(self, ask: Callable[[httpx.Client], httpx.Response]) -> str:
        def once() -> str | None:
            with suppress(httpx.TransportError):
                answer = ask(self.site.http)
                if answer.status_code < 500:
                    assert answer.status_code == 200, answer.text
                    return str(answer.json()["id"])
            return None

        return wait_until(once, "an answer")

    def supervise(self, stop: threading.Event) -> None:
        """Starts again what has ended, as an operating system does."""
        while not stop.wait(LOOK_SECONDS):
            if self.windlass.processes["all"].poll() is not None:
                self.restarts.append("server")
                self.windlass.start()
            if self.agent.process is not None and self.agent.process.poll() is not None:
                self.restarts.append("agent")
                self.agent.start()


@contextmanager
def killable(folder: Path, database_url: str, **settings: Any) -> Iterator[Killable]:
    points = folder / "points"
    points.mkdir()
    environment = {VARIABLE: str(points), "PYTHONPATH": str(INSTANT)}
    made = make_single(
        folder / "data",
        {"agent": {"enabled": False}, "database": {"url": database_url, "migrate": False}}
        | settings,
    )
    made.environments["all"] = environment
    with running(made):
        site = Site(made, every=0.3)
        site.import_base(make_feather(folder / "feather"))
        # Within walls a runner would not see the points.
        unwalled = environment | {"WINDLASS_AGENT_CONFINEMENT": "off"}
        program = str(HERE / "killable_agent.py")
        agent = LoneAgent(site, program=program, environment=unwalled)
        agent.start()
        wait_until(lambda: [c for c in site.get("/clusters")["data"] if c["live"]], "an agent")
        one = Killable(site, agent, points)
        stop = threading.Event()
        supervisor = threading.Thread(target=one.supervise, args=(stop,))
        supervisor.start()
        try:
            yield one
        finally:
            stop.set()
            supervisor.join()
            agent.stop()
