"""The files of deploy/config start servers that answer, with nothing but places and names changed.

S3 is a folder here; the shape of two replicas in `tests/e2e` has a real bucket.
"""

import base64
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.support.clients.trust import trusted
from tests.support.environments import postgres
from tests.support.environments.certificates import self_signed
from tests.support.processes.windlass import Windlass, free_port, running
from tests.support.waiting import wait_until

from windlass.targets import MODULES

SHIPPED = Path(__file__).parents[3] / "deploy" / "config"
REST = [name for name in MODULES if name not in ("gateway", "users", "agent")]
PROCESSES = {"gateway": ["gateway"], "users": ["users"], "rest": REST}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Where the files' certificates and master key lie."""
    with postgres.reachable_folder() as folder:
        certificate, _ = self_signed(folder)
        (folder / "ca.crt").write_bytes(certificate.read_bytes())
        (folder / "master.key").write_bytes(base64.b64encode(os.urandom(32)))
        yield folder


def installed(folder: Path, name: str, url: str, **hosts: str) -> Windlass:
    """Returns an installation of a shipped file whose names of hosts and folders are changed."""
    (folder / "data").mkdir(mode=0o711)
    windlass = Windlass(folder / "data", free_port(), ca=folder / "tls.crt")
    places = {
        "/etc/windlass": str(folder),
        "/var/lib/windlass": str(folder / "data"),
        "0.0.0.0": "127.0.0.1",
        "8443": str(windlass.port),
        **hosts,
    }
    configure(windlass, changed(name, places), url)
    return windlass


def changed(name: str, places: Mapping[str, str]) -> str:
    text = (SHIPPED / name).read_text()
    for shipped, here in places.items():
        assert shipped in text, shipped
        text = text.replace(shipped, here)
    return text


def configure(windlass: Windlass, text: str, url: str) -> None:
    file = windlass.configs["all"] = windlass.data.parent / "shipped.yaml"
    file.write_text(text)
    windlass.environments["all"] = {
        "WINDLASS_DATABASE__URL": url.replace("+psycopg", ""),
        "WINDLASS_OBJECTS__KIND": "filesystem",
    }


@pytest.fixture
def split(folder: Path, database_url: str) -> Iterator[Windlass]:
    """The gateway, users and all others as three processes of `target.yaml`, not yet started."""
    ports = {name: free_port() for name in PROCESSES}
    of_service = {
        service: ports[name] for name, services in PROCESSES.items() for service in services
    }
    addresses = {
        f"{service}.windlass.internal:9443": f"127.0.0.1:{port}"
        for service, port in of_service.items()
    }
    windlass = installed(folder, "target.yaml", database_url, **addresses)
    file, environment = windlass.configs.pop("all"), windlass.environments.pop("all")
    for name, targets in PROCESSES.items():
        windlass.configs[name] = file
        windlass.environments[name] = {
            **environment,
            "WINDLASS_TARGETS": json.dumps(targets),
            "WINDLASS_GRPC__LISTEN": f"127.0.0.1:{ports[name]}",
        }
    yield windlass
    windlass.stop()


def client(windlass: Windlass) -> httpx.Client:
    return httpx.Client(base_url=windlass.url, verify=trusted(windlass.ca), timeout=60)


def keyed(windlass: Windlass, http: httpx.Client) -> int:
    headers = {"Authorization": f"Bearer {windlass.owner_key}"}
    return http.get("/v1/models", headers=headers).status_code


def test_readiness_of_a_split_installation_means_that_keys_can_be_checked(split: Windlass) -> None:
    with client(split) as http:

        def unready() -> dict[str, Any]:
            """Returns the parts of the gateway that are not ready."""
            try:
                parts = httpx.get(f"{split.operations('gateway')}/readyz", timeout=30).json()
            except (FileNotFoundError, httpx.TransportError):
                return {"process": "starting"}
            return {part: said for part, said in parts.items() if said != "ok"}

        split.start("rest")
        split.start("gateway")
        # Of all that the gateway needs, only users is away, who also knows in which geographies the
        # routes may be used.
        lacking = {"gateway.keys", "gateway.routes"}
        wait_until(lambda: set(unready()) == lacking, "a gateway without users")
        assert http.get("/readyz").status_code == 503
        split.start("users")
        split.wait_ready()
        assert keyed(split, http) == 200
        split.kill("users")
        wait_until(lambda: http.get("/readyz").status_code == 503, "a gateway that says so")
        assert set(unready()) == {"gateway.keys"}
        del split.processes["users"]
        split.start("users")
        split.wait_ready()
        assert keyed(split, http) == 200


def test_a_replica_answers(folder: Path, database_url: str) -> None:
    own = {"replica-1.windlass.internal": "127.0.0.1"}
    windlass = installed(folder, "replica.yaml", database_url, **own)
    windlass.environments["all"]["WINDLASS_GRPC__LISTEN"] = f"127.0.0.1:{free_port()}"
    answers(windlass)


def test_a_single_machine_answers(folder: Path, database_url: str) -> None:
    (folder / "data").mkdir(mode=0o711)
    windlass = Windlass(folder / "data", free_port())
    places = {"./data": str(windlass.data), "8080": str(windlass.port)}
    configure(windlass, changed("single-machine.yaml", places), database_url)
    answers(windlass)


def answers(windlass: Windlass) -> None:
    with running(windlass, divisible=False), client(windlass) as http:
        assert keyed(windlass, http) == 200
