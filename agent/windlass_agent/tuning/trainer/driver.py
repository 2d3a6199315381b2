"""The thread that an engine computes on."""

import threading
from collections import deque
from concurrent.futures import Future
from typing import Any

from windlass.core import telemetry
from windlass_agent.tuning.endings import RunClosed, end
from windlass_agent.tuning.engine import TuningEngine
from windlass_agent.tuning.requests.operations import Operation, RunSpec
from windlass_agent.tuning.requests.prompts import Continuations, PromptRequest

log = telemetry.logger("tuning")


class EngineThread:
    """Carries out what an engine was asked as soon as it was; rests while nothing waits."""

    def __init__(self, engine: TuningEngine, name: str):
        self.engine = engine
        self._asked = threading.Event()
        self._ending = False
        self._parkings: deque[Future[int]] = deque()
        self._restorings: deque[Future[None]] = deque()
        self._is_parked = False
        self._thread = threading.Thread(target=self._run, name=f"tuning-{name}", daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        """False once it was stopped or failed: whatever the engine held is lost then."""
        return self._thread.is_alive() and not self._ending

    def open(self, run: str, spec: RunSpec) -> None:
        """Makes a run, as the engine does."""
        self.engine.open(run, spec)

    def submit(self, run: str, operation: Operation) -> "Future[Any]":
        """Queues an operation, as the engine does."""
        future = self.engine.submit(run, operation)
        self._asked.set()
        return future

    def sample(self, request: PromptRequest) -> "Future[Continuations]":
        """Queues a prompt, as the engine does."""
        future = self.engine.sample(request)
        self._asked.set()
        return future

    def park(self) -> "Future[int]":
        """Moves all from the device once nothing waits any more; then rests until `restore`."""
        future: Future[int] = Future()
        self._parkings.append(future)
        self._asked.set()
        return future

    def restore(self) -> "Future[None]":
        """Moves all back to the device, and goes on."""
        future: Future[None] = Future()
        self._restorings.append(future)
        self._asked.set()
        return future

    def stop(self) -> None:
        """Ends after the pass that runs; whoever waits gets RunClosed."""
        self._ending = True
        self._asked.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._ending:
                # Cleared first, so that what comes in the meantime is not slept through.
                self._asked.clear()
                self._switch()
                if self._is_parked or not self._worked():
                    self._asked.wait()
        except Exception as error:
            log.error("engine_lost", exc_info=error)
        finally:
            self._ending = True
            self.engine.stop()
            left: list[Future[Any]] = [*self._parkings, *self._restorings]
            for future in left:
                end(future, RunClosed("the engine stopped"))

    def _worked(self) -> bool:
        """Returns False where nothing waits; then it may be parked."""
        if self.engine.advance():
            return True
        self._park()
        return False

    def _switch(self) -> None:
        while self._restorings:
            self.engine.restore()
            self._is_parked = False
            end(self._restorings.popleft(), None)
        if self._is_parked:
            self._park()

    def _park(self) -> None:
        while self._parkings:
            self._is_parked = True
            end(self._parkings.popleft(), self.engine.park())
