"""`python -m windlass_agent.keeper.prefetch`: brings weights to a store that pods share, no more.

The pod has no engine, so no door and no certificate either. Its agent removes it once it has said
that the weights are there.
"""

import argparse
import asyncio
import signal
import sys
from pathlib import Path

from windlass.api.clusters.v1 import clusters_pb2
from windlass.api.keeper.v1 import keeper_pb2 as pb
from windlass.core.telemetry import configure_logging
from windlass_agent.download import SharedStore
from windlass_agent.keeper.bringing import bring_weights
from windlass_agent.keeper.link import KeeperLink
from windlass_agent.loop import run as run_loop


class WeightBringer:
    """Weights on their way to the store. `changed` is set when `state` may differ."""

    def __init__(self, store: SharedStore):
        self._store = store
        self.changed = asyncio.Event()
        self._spec = clusters_pb2.EngineWorkload()
        self._ordered = asyncio.Event()
        self._state = pb.EngineState(phase=clusters_pb2.PHASE_STARTING, reason="Starting")

    def state(self) -> pb.EngineState:
        """RUNNING once the weights are there."""
        return self._state

    def hear(self, order: pb.EngineOrder) -> None:
        """Takes the version, and URLs that are good now."""
        if order.HasField("engine"):
            self._spec = order.engine
            self._ordered.set()

    async def run(self) -> None:
        """Brings the weights, and holds them until cancelled."""
        await self._ordered.wait()
        async with self._store.open():
            await bring_weights(self._store, lambda: self._spec, self._become)
            self._become(clusters_pb2.PHASE_RUNNING, "", "")
            await asyncio.Event().wait()

    def _become(self, phase: "clusters_pb2.Phase.ValueType", reason: str, message: str) -> None:
        self._state = pb.EngineState(phase=phase, reason=reason, message=message)
        self.changed.set()


def main(argv: list[str] | None = None) -> int:
    """Runs until SIGTERM."""
    options = _parser().parse_args(argv)
    configure_logging()
    run_loop(_bring(options))
    return 0


async def _bring(options: argparse.Namespace) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    bringer = WeightBringer(SharedStore(options.store, most=options.store_bytes))
    link = KeeperLink(options.agent, token=options.token_file, authority=options.agent_ca)
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(link.run(bytes, bringer, bringer.hear)),
                group.create_task(bringer.run()),
            ]
            await stopped.wait()
            for task in tasks:
                task.cancel()
    finally:
        await link.close()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="windlass-prefetch", description=__doc__)
    parser.add_argument("--agent", required=True, help="gRPC address of the agent")
    parser.add_argument("--agent-ca", required=True, type=Path, help="PEM file of the agent's CA")
    parser.add_argument("--token-file", required=True, type=Path)
    parser.add_argument("--store", required=True, type=Path, help="volume that pods share")
    parser.add_argument("--store-bytes", required=True, type=int, help="of it at most; 0: all")
    return parser


if __name__ == "__main__":
    sys.exit(main())
