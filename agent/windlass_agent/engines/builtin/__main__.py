"""`python -m windlass_agent.engines.builtin`: loads a model, then listens."""

import argparse
import os
import sys
from pathlib import Path

from aiohttp import web

from windlass.core.telemetry import configure_logging, logger

_log = logger("engine")
GRACE_SECONDS = 5.0


def main() -> int:
    """Serves until SIGTERM; exit status 1 for a model that cannot be served."""
    arguments = _arguments()
    configure_logging()
    # After the arguments, so that a wrong one is told in a moment.
    from windlass_agent.engines.builtin.api.routes import build_app
    from windlass_agent.engines.builtin.generation.loading import UnsupportedModel, load_model

    try:
        model = load_model(
            arguments.model,
            name=arguments.served_model_name or arguments.model.name,
            dtype=arguments.dtype,
            device=arguments.device,
            context=arguments.max_model_len,
            cpus=arguments.cpus,
        )
    except UnsupportedModel as error:
        _log.error("model_load_failed", reason=str(error))
        return 1
    app = build_app(
        model,
        max_adapters=arguments.max_adapters,
        max_concurrency=arguments.max_concurrency,
        max_waiting=arguments.max_waiting,
        lost=_end,
    )
    # A socket is for its owner alone.
    os.umask(0o077)
    web.run_app(
        app,
        path=str(arguments.uds) if arguments.uds else None,
        host=None if arguments.uds else arguments.host,
        port=None if arguments.uds else arguments.port,
        handler_cancellation=True,
        shutdown_timeout=GRACE_SECONDS,
        access_log=None,
        print=lambda *_: _log.info("engine_listening", model=model.name, device=str(model.device)),
    )
    return 0


def _end() -> None:
    """Ends the process as SIGTERM does: another one has the device anew."""
    raise web.GracefulExit


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="windlass-engine", description=__doc__)
    parser.add_argument("--model", type=Path, required=True, help="folder with the model")
    parser.add_argument("--served-model-name", help="the id that requests use")
    parser.add_argument("--uds", type=Path, help="Unix socket to listen on")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--max-adapters", type=_positive, default=4)
    parser.add_argument("--max-concurrency", type=_positive, default=8)
    parser.add_argument("--max-waiting", type=_positive, default=64)
    parser.add_argument("--max-model-len", type=_positive, help="tokens; at most the model's own")
    parser.add_argument("--cpus", type=_positive, help="default: all that it can run on")
    parser.add_argument(
        "--dtype", choices=("auto", "float32", "bfloat16", "float16"), default="auto"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1, mps")
    return parser.parse_args()


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


if __name__ == "__main__":
    sys.exit(main())
