"""Process beside an engine that trains its weights: `python -m windlass_vllm.training.worker`.

Its first line of input says where the engine is; it ends when its input does.
"""

import contextlib
import os
import resource
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import torch
import zmq

from windlass_vllm.messages import (
    MOST_BYTES,
    Applied,
    Cancel,
    Fence,
    FromWorker,
    JobEnded,
    Pass,
    PutBack,
    Ready,
    Save,
    ToWorker,
    Train,
    WorkerStart,
    frames,
    to_worker,
)
from windlass_vllm.refusal import Refused
from windlass_vllm.training.job_chain import JobChain
from windlass_vllm.training.running import JobCancelled, TrainingRun
from windlass_vllm.training.saving import put_back, save
from windlass_vllm.training.seen_engine import SeenEngine
from windlass_vllm.training.viewed_model import view_model
from windlass_vllm.weights.cuda import open_cuda
from windlass_vllm.weights.handles import read_handles
from windlass_vllm.weights.private_folder import PrivateFolder
from windlass_vllm.weights.shared_files import open_shared
from windlass_vllm.weights.step_counter import StepCounter


class ApiServer:
    """The other end of the socket, which says what to train and hears of each step."""

    def __init__(self, socket: str, token: bytes) -> None:
        self._token = token
        self._socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
        self._socket.setsockopt(zmq.MAXMSGSIZE, MOST_BYTES)
        self._socket.setsockopt(zmq.LINGER, 1000)
        self._socket.connect(f"ipc://{socket}")
        self._cancelled: set[str] = set()

    def send(self, message: FromWorker) -> None:
        """Sends a message; waits while the other end is slow."""
        self._socket.send_multipart(frames(message, self._token))

    def next_job(self) -> Train | Save | PutBack:
        """Waits for a job."""
        while True:
            if isinstance(message := self._receive(), Train | Save | PutBack):
                return message

    def is_cancelled(self, job: str) -> bool:
        """Returns whether a job was to end by now."""
        while self._socket.poll(0):
            self._receive()
        return job in self._cancelled

    @contextlib.contextmanager
    def fence(self, job: str, *, certain: bool = False) -> Iterator[None]:
        """Keeps serving still; raises JobCancelled once the job was to end, unless certain."""
        self.send(Fence(job))
        while certain or job not in self._cancelled:
            if self._receive() == Pass(job):
                try:
                    yield
                finally:
                    self.send(Applied(job))
                return
        raise JobCancelled

    def _receive(self) -> ToWorker | None:
        message = to_worker(self._socket.recv_multipart(), self._token)
        if isinstance(message, Cancel):
            self._cancelled = {message.job}
        return message


def main() -> None:
    """Runs until the input ends."""
    start = msgspec.json.decode(sys.stdin.buffer.readline(), type=WorkerStart)
    threading.Thread(target=_end_with_input, daemon=True).start()
    _yield_to_serving(start)
    server = ApiServer(start.socket, start.token)
    try:
        engine = _see(start)
    except Refused as error:
        server.send(JobEnded("", "failed", 0, error.reason, str(error)))
        zmq.Context.instance().term()
        return
    server.send(Ready(os.getpid()))
    chain = JobChain(engine)
    while True:
        job = server.next_job()
        if isinstance(job, Train) and job.is_chained:
            server.send(chain.run(job, server))
        elif isinstance(job, Train):
            chain.break_off()
            server.send(TrainingRun(engine, job, server).run())
        else:
            server.send(_versioned(engine, job, server, chain))


def _versioned(
    engine: SeenEngine, job: Save | PutBack, server: ApiServer, chain: JobChain
) -> JobEnded:
    """Saves the live weights or puts saved ones back, and returns how it ended."""
    try:
        if isinstance(job, Save):
            version = save(engine, Path(job.model), Path(job.run), **chain.kept._asdict())
        else:
            chain.break_off()
            version = put_back(engine, Path(job.run), lambda: server.fence(job.job, certain=True))
            chain.resume(Path(job.run))
    except Refused as error:
        return JobEnded(job.job, "failed", 0, error.reason, str(error))
    return JobEnded(job.job, "succeeded", 0, version=version)


def _see(start: WorkerStart) -> SeenEngine:
    """The engine's own memory, and a model over it."""
    folder = PrivateFolder(Path(start.folder))
    try:
        handles = read_handles(folder, start.generation, start.key)
        live = open_shared(folder, handles) if handles.device == "cpu" else open_cuda(handles)
        counter = StepCounter(folder)
    finally:
        folder.close()
    return SeenEngine(handles, live, view_model(handles, live), counter)


def _yield_to_serving(start: WorkerStart) -> None:
    """Lets the engine go first for processors, and the kernel take this process for its memory."""
    os.nice(start.niceness)
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    torch.set_num_threads(start.threads)
    if start.memory_bytes:
        resource.setrlimit(resource.RLIMIT_DATA, (start.memory_bytes, start.memory_bytes))


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    main()
