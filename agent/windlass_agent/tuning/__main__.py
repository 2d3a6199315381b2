"""`python -m windlass_agent.tuning`: a trainer's process.

Its token comes by its first line, and it ends with whoever started it. In a pod it knows the token
by its digest, and listens where only the pod's keeper comes.
"""

import argparse
import asyncio
import hashlib
import os
import shutil
import signal
import sys
import threading
import time
from pathlib import Path

import grpc

from windlass.api.trainer.v1.trainer_pb2_grpc import add_TrainerServiceServicer_to_server
from windlass.core.rpc.clients import PINGED_OPTIONS
from windlass.core.telemetry import configure_logging, logger
from windlass.tuning_api.trainers.described import UnreadableModel
from windlass.tuning_api.trainers.engines import UnknownEngine
from windlass.tuning_api.trainers.port import Trainer
from windlass.tuning_api.trainers.remote.process import END_SECONDS
from windlass_agent.loop import run as run_loop
from windlass_agent.tuning.full.loading import full_engine, load_full_trainer
from windlass_agent.tuning.full.ranks import rank_here
from windlass_agent.tuning.network.base import UnfitBase
from windlass_agent.tuning.requests.limits import TuningLimits
from windlass_agent.tuning.serving.servicer import TrainerServicer
from windlass_agent.tuning.trainer.loading import load_trainer

REFUSED, LOST = 3, 4
# Standard input, read without the buffer that another thread could hold at the end.
_PIPE, _TOKEN_BYTES = 0, 1024

log = logger("trainer")


def main(argv: list[str] | None = None) -> int:
    """Serves one base model until its starter or its pod ends; returns the exit code."""
    options = _parser().parse_args(argv)
    configure_logging()
    if rank_here():
        return _follow(options)
    if (digest := options.token_sha256) is None and (digest := _started()) is None:
        return REFUSED
    if options.socket is not None:
        ends = (options.socket.parent,)
        threading.Thread(target=_follow_starter, args=ends, daemon=True).start()
    try:
        trainer = _trainer(options)
    except (UnfitBase, UnreadableModel, UnknownEngine) as error:
        log.error("base_model_refused", base_model=options.model, reason=str(error))
        return REFUSED
    run_loop(_serve(trainer, digest, options))
    return 0


def _started() -> bytes | None:
    """The digest of the token that the starter wrote; None where it has ended."""
    token = os.read(_PIPE, _TOKEN_BYTES).strip()
    return hashlib.sha256(token).digest() if token else None


def _trainer(options: argparse.Namespace) -> Trainer:
    limits = TuningLimits(rank=options.max_rank)
    if not options.full:
        return load_trainer({options.model: options.folder}, limits)
    return load_full_trainer(
        options.model, options.folder, limits, engine=options.engine, processes=options.processes
    )


def _follow(options: argparse.Namespace) -> int:
    """Does what the first process of a run is asked; ends with it, however that ends."""
    engine = full_engine(options.model, options.folder, TuningLimits(rank=options.max_rank))
    try:
        engine.follow()
    except RuntimeError as error:
        log.warning("leader_lost", reason=str(error))
        return LOST
    return 0


def _follow_starter(folder: Path) -> None:
    """Ends this process with the one that started it, also while a model is loaded.

    The folder of its socket goes with it: nobody else may be left to remove that.
    """
    while os.read(_PIPE, _TOKEN_BYTES):
        pass
    shutil.rmtree(folder, ignore_errors=True)
    os.kill(os.getpid(), signal.SIGTERM)
    # Whoever started it under torchrun cannot end it by force.
    time.sleep(END_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


async def _serve(trainer: Trainer, digest: bytes, options: argparse.Namespace) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    server = grpc.aio.server(options=PINGED_OPTIONS)
    servicer = TrainerServicer(trainer, token_sha256=digest, checkpoints=options.checkpoints)
    add_TrainerServiceServicer_to_server(servicer, server)
    server.add_insecure_port(options.listen or f"unix:{options.socket}")
    await server.start()
    log.info("trainer_serves", base_model=options.model)
    await stopped.wait()
    await trainer.stop()
    await server.stop(grace=1.0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="windlass-trainer", description=__doc__)
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("--socket", type=Path, help="in a folder of mode 0700")
    place.add_argument("--listen", default="", help="host and port of a pod's own network")
    parser.add_argument(
        "--token-sha256", type=bytes.fromhex, help="digest of the token; else it is read"
    )
    parser.add_argument("--model", required=True, help="name of the base model")
    parser.add_argument("--folder", required=True, type=Path, help="where its files lie")
    parser.add_argument("--max-rank", required=True, type=int)
    parser.add_argument(
        "--checkpoints", required=True, type=Path, help="states and adapters lie below it"
    )
    parser.add_argument(
        "--full", action="store_true", help="train all parameters, for one run, or sample from one"
    )
    parser.add_argument("--engine", default="", help="entry point of what trains them")
    parser.add_argument("--processes", default=1, type=int, help="that the engine may use")
    return parser


if __name__ == "__main__":
    sys.exit(main())
