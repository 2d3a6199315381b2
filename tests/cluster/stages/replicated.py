"""Two servers behind balancers, reached by agents, pods and people over TLS."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.cluster.provision.identities import Authority
from tests.cluster.stages.journey import trusting
from tests.support.environments.postgres import start_postgres
from tests.support.processes.shapes import balanced, shared_stores
from tests.support.processes.windlass import Windlass, free_port, make_single, merged, running

NAMES = ("one", "two")


@contextmanager
def replicated(folder: Path, host: str) -> Iterator[tuple[Windlass, str, int]]:
    """Servers with data folders of their own on one database and one bucket.

    Yields the whole, where agents call, and the port of the bucket's store, which pods call too.
    `host` is this machine as pods know it.
    """
    Authority(folder / "pki").issue("server", "windlass", [], ["127.0.0.1", "localhost", host])
    authority = folder / "pki" / "ca.crt"
    with ExitStack() as stack:
        stack.enter_context(trusting(authority))
        database = stack.enter_context(start_postgres())
        shared = stack.enter_context(shared_stores(folder, database, host=host))
        listed = shared.pop("list")
        ports = {name: [free_port() for _ in NAMES] for name in ("http", "grpc", "kubernetes")}
        fronts = {
            name: stack.enter_context(balanced(behind, host="0.0.0.0"))
            for name, behind in ports.items()
        }
        whole = Windlass(folder / NAMES[0], fronts["http"], objects=listed, ca=authority, host=host)
        for number, name in enumerate(NAMES):
            mine = {listener: pair[number] for listener, pair in ports.items()}
            own = _settings(folder, host, fronts, mine)
            one = make_single(folder / name, merged({**shared, "agent": {"name": name}}, own))
            one.port, one.ca = mine["http"], authority
            stack.enter_context(running(one, divisible=False))
            whole.replicas.append(one)
        store = urlsplit(shared["objects"]["endpoint_url"]).port
        assert store
        yield whole, f"grpcs://127.0.0.1:{fronts['grpc']}", store


def _settings(
    folder: Path, host: str, fronts: dict[str, int], ports: dict[str, int]
) -> dict[str, Any]:
    pair = {"certificate": f"{folder}/pki/server.crt", "key": f"{folder}/pki/server.key"}
    return {
        "http": {
            "host": "0.0.0.0",
            "port": ports["http"],
            "tls": pair,
            "public_url": f"https://{host}:{fronts['http']}",
        },
        "grpc": {"listen": f"0.0.0.0:{ports['grpc']}", "tls": pair},
        "sessions": {
            "kubernetes": {
                "listen": f"127.0.0.1:{ports['kubernetes']}",
                "public_url": f"https://127.0.0.1:{fronts['kubernetes']}",
                "ca": f"{folder}/pki/ca.crt",
                **pair,
            }
        },
        # Issuers of the test.
        "oidc": {"allowed_networks": ["127.0.0.1/32"]},
    }
