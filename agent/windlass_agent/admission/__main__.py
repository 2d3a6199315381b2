"""`python -m windlass_agent.admission`: serves the webhook over TLS until SIGTERM."""

import argparse
import asyncio
import contextlib
import signal
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

from aiohttp import web

from windlass.core.telemetry import configure_logging, logger
from windlass_agent.admission.server import AdmissionWebhook
from windlass_agent.kube import Kube
from windlass_agent.loop import run

_log = logger("admission")
_RELOAD_SECONDS = 60.0


def main() -> None:
    """The command."""
    configure_logging()
    run(serve(_arguments()))


async def serve(arguments: argparse.Namespace) -> None:
    """Runs until SIGTERM or SIGINT; raises OSError for an unusable port or certificate."""
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(arguments.certificate, arguments.key)
    async with await Kube.connect(arguments.kubeconfig) as kube:
        runner = web.AppRunner(AdmissionWebhook(kube).app(), access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, arguments.host, arguments.port, ssl_context=tls).start()
            _log.info("admission_listening", port=arguments.port)
            async with _renewing(tls, arguments.certificate, arguments.key):
                await _signal()
        finally:
            await runner.cleanup()


@contextlib.asynccontextmanager
async def _renewing(tls: ssl.SSLContext, certificate: Path, key: Path) -> AsyncIterator[None]:
    """Takes a new certificate when its file changes, for connections from then on."""

    async def renew() -> None:
        known = certificate.stat().st_mtime
        while True:
            await asyncio.sleep(_RELOAD_SECONDS)
            # A volume of a Secret is replaced at once, both files together.
            with contextlib.suppress(OSError):
                if (now := certificate.stat().st_mtime) != known:
                    tls.load_cert_chain(certificate, key)
                    known = now

    task = asyncio.create_task(renew())
    try:
        yield
    finally:
        task.cancel()


async def _signal() -> None:
    came = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, came.set)
    await came.wait()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="windlass-admission", description=__doc__)
    parser.add_argument("--certificate", type=Path, required=True, help="PEM of the server")
    parser.add_argument("--key", type=Path, required=True, help="PEM of its private key")
    parser.add_argument("--host", help="default: every address of the pod")
    parser.add_argument("--port", type=int, default=9443)
    parser.add_argument("--kubeconfig", type=Path, help="default: the cluster of this pod")
    return parser.parse_args()


if __name__ == "__main__":
    main()
