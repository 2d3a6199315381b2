"""`python -m windlass_agent.engines.sglang`: SGLang's server and its keeper, then listens."""

import argparse
import asyncio
import os
import sys
from pathlib import Path

from windlass.core.telemetry import configure_logging, logger
from windlass_agent.engines.kept import neighbour
from windlass_agent.engines.kept.engine import KeptFailure
from windlass_agent.engines.kept.serving import add_address, address_of, serve
from windlass_agent.engines.sglang.keeper import SglangKeeper
from windlass_agent.engines.sglang.routes import build_app
from windlass_agent.engines.sglang.server import SglangCommand, launch

_log = logger("engine")


def main() -> int:
    """Serves until SIGTERM; exit status 1 for a model that cannot be served."""
    arguments = _arguments()
    configure_logging()
    # Sockets and the key are for their owner alone.
    os.umask(0o077)
    try:
        return asyncio.run(_serve(arguments))
    except KeptFailure as error:
        if reason := str(error):
            _log.error("model_load_failed", reason=reason)
        return 1


async def _serve(arguments: argparse.Namespace) -> int:
    command = SglangCommand(
        words=launch(arguments.python, arguments.flags),
        folder=arguments.scratch,
        is_neighbour=arguments.neighbour,
    )
    if command.is_neighbour:
        await neighbour.clear(command.folder)
    keeper = SglangKeeper(
        command, model=arguments.served_model_name, max_adapters=arguments.max_adapters
    )
    return await serve(keeper, build_app(keeper), address_of(arguments))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="windlass-sglang", description=__doc__)
    parser.add_argument("--python", type=Path, required=True, help="of SGLang's environment")
    parser.add_argument("--served-model-name", required=True, help="the id that requests use")
    add_address(parser)
    parser.add_argument("--scratch", type=Path, required=True, help="folder that it may write to")
    parser.add_argument("--max-adapters", type=int, default=4)
    parser.add_argument(
        "--neighbour",
        action="store_true",
        help="SGLang is in another container, which sees the scratch folder as well",
    )
    parser.add_argument("flags", nargs="*", help="SGLang's own, after `--`")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
