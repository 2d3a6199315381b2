"""`python -m windlass_agent.engines.llamacpp`: a `llama-server` and its keeper, then listens."""

import argparse
import asyncio
import json
import os
import sys
from pathlib import Path

from windlass.core.telemetry import configure_logging, logger
from windlass.engine_arguments import DRAFT_TOKENS
from windlass_agent.engines.kept import neighbour
from windlass_agent.engines.kept.engine import KeptFailure
from windlass_agent.engines.kept.serving import add_address, address_of, serve
from windlass_agent.engines.llamacpp import conversion
from windlass_agent.engines.llamacpp.keeper import Keeper
from windlass_agent.engines.llamacpp.routes import build_app
from windlass_agent.engines.llamacpp.server import ServerFailure, ServerSettings

_log = logger("engine")
# Tokens of context where nothing is said: keys and values are reserved for all of each place.
MOST_UNASKED = 8192


def main() -> int:
    """Serves until SIGTERM; exit status 1 for a model that cannot be served."""
    arguments = _arguments()
    configure_logging()
    # Sockets are for their owner alone, and their paths are short.
    os.umask(0o077)
    os.chdir(arguments.scratch)
    try:
        return asyncio.run(_serve(arguments))
    except KeptFailure as error:
        _log.error("model_load_failed", reason=str(error))
        return 1


async def _keeper(arguments: argparse.Namespace) -> Keeper:
    """A keeper that has not started; raises ConversionFailure or ServerFailure."""
    folder, name = arguments.model, arguments.served_model_name
    context = _context(folder, arguments.max_model_len)
    model, *draft = await conversion.write_model(folder, arguments.draft, name=name)
    settings = ServerSettings(
        program=arguments.program,
        neighbours=Path() if arguments.neighbour else None,
        model=model,
        draft=draft[0] if draft else None,
        draft_tokens=arguments.draft_tokens,
        folder=Path(),
        context=context,
        concurrency=arguments.max_concurrency,
        batched_tokens=arguments.max_batched_tokens,
        cpus=arguments.cpus,
        on_gpus=arguments.on_gpus,
        continues=arguments.prefix_caching,
    )
    return Keeper(settings, model=name, base=folder, max_adapters=arguments.max_adapters)


def _context(folder: Path, asked: int | None) -> int:
    """Tokens of context; raises ServerFailure for more than the model has."""
    config = folder / "config.json"
    known = json.loads(config.read_text()) if config.exists() else {}
    own = int(known.get("max_position_embeddings") or 0)
    if asked and own and asked > own:
        raise ServerFailure(f"the model has a context of {own} tokens, fewer than {asked}")
    return asked or min(own or MOST_UNASKED, MOST_UNASKED)


async def _serve(arguments: argparse.Namespace) -> int:
    if arguments.neighbour:
        await neighbour.clear(Path())
    keeper = await _keeper(arguments)
    return await serve(keeper, build_app(keeper), address_of(arguments))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="windlass-llamacpp", description=__doc__)
    parser.add_argument("--program", type=Path, required=True, help="llama-server")
    parser.add_argument("--model", type=Path, required=True, help="folder with the model")
    parser.add_argument("--served-model-name", required=True, help="the id that requests use")
    add_address(parser)
    parser.add_argument("--scratch", type=Path, required=True, help="folder that it may write to")
    parser.add_argument("--draft", type=Path, help="folder with a model that guesses tokens")
    parser.add_argument("--draft-tokens", type=int, default=DRAFT_TOKENS)
    parser.add_argument("--max-adapters", type=int, default=4)
    parser.add_argument("--max-concurrency", type=int, default=4)
    parser.add_argument("--max-model-len", type=int, help="tokens; at most the model's")
    parser.add_argument("--max-batched-tokens", type=int)
    parser.add_argument("--prefix-caching", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--cpus", type=int, default=0)
    parser.add_argument("--on-gpus", action="store_true")
    parser.add_argument(
        "--neighbour",
        action="store_true",
        help="the program is in another container, which sees the scratch folder as well",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
