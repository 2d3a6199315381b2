"""The shapes in which an installation runs: whole, split over TLS, or replicated."""

import asyncio
import base64
import contextlib
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import boto3
import yaml
from botocore.config import Config
from tests.support.environments import swift
from tests.support.environments.postgres import start_postgres
from tests.support.processes.balancer import running_balancer
from tests.support.processes.windlass import Windlass, free_port, make_single, merged, running
from tests.support.waiting import PATIENCE

from windlass.sessions.listener.certificates import own_certificate
from windlass.targets import MODULES

ONE, SPLIT, REPLICAS = "one process", "one process per target", "two replicas"
# Of all e2e tests (`make test-all`); empty: the main path in each shape, the rest in one process.
CHOSEN = os.environ.get("E2E_SHAPE", "")
SHAPES = [CHOSEN] if CHOSEN else [ONE, SPLIT]
TARGET_CONFIG = Path(__file__).parents[3] / "deploy" / "config" / "target.yaml"
BUCKET = "windlass"


@contextlib.contextmanager
def installation(
    shape: str, data: Path, url: str, settings: Mapping[str, Any] | None = None
) -> Iterator[Windlass]:
    """Runs an installation on a database in the shape of that name."""
    start = {ONE: _whole, SPLIT: _split, REPLICAS: _replicas}[shape]
    with start(data, url, settings or {}) as made:
        yield made


@contextlib.contextmanager
def _whole(data: Path, url: str, settings: Mapping[str, Any]) -> Iterator[Windlass]:
    with running(make_single(data, merged({"database": {"url": url}}, settings))) as made:
        yield made


@contextlib.contextmanager
def _split(data: Path, url: str, settings: Mapping[str, Any]) -> Iterator[Windlass]:
    windlass = Windlass(data, free_port())
    divide(windlass, url, settings)
    with running(windlass):
        yield windlass


def divide(windlass: Windlass, url: str, settings: Mapping[str, Any]) -> None:
    """Configures each target as shipped, with addresses and files of this machine."""
    data = windlass.data
    data.mkdir(parents=True, exist_ok=True, mode=0o711)
    certificate, key, ca = own_certificate(data / "tls", {"127.0.0.1"})
    tls = {"certificate": str(certificate), "key": str(key)}
    master = _master_key(data)
    ports = {name: free_port() for name, module in MODULES.items() if module.service}
    shipped = yaml.safe_load(TARGET_CONFIG.read_text())
    assert set(shipped["peers"]) == set(ports), "deploy/config/target.yaml names every service"
    windlass.configs.clear()
    for name in MODULES:
        document = {
            **shipped,
            "targets": [name],
            "data_dir": str(data),
            "http": {"port": windlass.port},
            "grpc": {
                "listen": f"127.0.0.1:{ports[name]}" if name in ports else "",
                "tls": tls,
                "peer_ca": str(ca),
            },
            "peers": {peer: f"grpcs://127.0.0.1:{ports[peer]}" for peer in ports},
            "database": {"url": url, "pool_size": 4},
            "master_key": {"file": str(master)},
            "objects": {"kind": "filesystem"},
        }
        windlass.configs[name] = data / f"{name}.yaml"
        windlass.configs[name].write_text(yaml.safe_dump(merged(document, settings)))


@contextlib.contextmanager
def divided(windlass: Windlass) -> Iterator[None]:
    """Makes one process per target of an installation of one process, on a Postgres of its own.

    One that agents reach by a single address stays as it is: in front of several targets they
    need a proxy, which the tests of ingress have.
    """
    settings = yaml.safe_load(windlass.configs["all"].read_text())
    if "grpc" in settings or "database" in settings:
        yield
        return
    with start_postgres() as url:
        plain = url.replace("+psycopg", "")
        divide(windlass, plain, {key: value for key, value in settings.items() if key != "http"})
        yield


@contextlib.contextmanager
def _replicas(data: Path, url: str, settings: Mapping[str, Any]) -> Iterator[Windlass]:
    """Runs two whole servers behind a balancer, on one database, bucket and master key."""
    data.mkdir(parents=True, exist_ok=True, mode=0o711)
    with contextlib.ExitStack() as stack:
        shared = stack.enter_context(shared_stores(data, url))
        ports = [free_port(), free_port()]
        front = stack.enter_context(balanced(ports))
        whole = Windlass(data / "one", front, objects=shared.pop("list"))
        for name, port in zip(("one", "two"), ports, strict=True):
            own = {
                **shared,
                "http": {"port": port, "public_url": whole.url},
                "agent": {"name": name},
            }
            one = make_single(data / name, merged(own, settings))
            one.port = port
            stack.enter_context(running(one))
            whole.replicas.append(one)
        yield whole


@contextlib.contextmanager
def shared_stores(data: Path, url: str, *, host: str = "127.0.0.1") -> Iterator[dict[str, Any]]:
    """Yields the settings that the replicas share; the object store listens on `host`."""
    folder = data / "swift"
    folder.mkdir()
    with swift.start_swift(folder, host) as store:
        objects = {
            "kind": "s3",
            "bucket": BUCKET,
            "endpoint_url": store.url,
            "region": swift.REGION,
            "access_key_id": swift.ACCESS_KEY,
            "secret_access_key": swift.SECRET_KEY,
        }
        client = boto3.client(
            "s3",
            endpoint_url=store.url,
            region_name=swift.REGION,
            aws_access_key_id=swift.ACCESS_KEY,
            aws_secret_access_key=swift.SECRET_KEY,
            config=Config(s3={"addressing_style": "path"}),
        )
        client.create_bucket(Bucket=BUCKET)

        def listed() -> set[str]:
            pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
            return {item["Key"] for page in pages for item in page.get("Contents", ())}

        yield {
            "database": {"url": url},
            "objects": objects,
            "master_key": {"file": str(_master_key(data))},
            "list": listed,
        }


def _master_key(data: Path) -> Path:
    path = data / "mounted-master.key"
    path.write_text(base64.b64encode(os.urandom(32)).decode() + "\n")
    return path


@contextlib.contextmanager
def balanced(ports: list[int], *, host: str = "127.0.0.1") -> Iterator[int]:
    """Runs a balancer over ports of this machine in its own thread; yields its port."""
    started, found = threading.Event(), [0]
    loop, stop = asyncio.new_event_loop(), asyncio.Event()

    async def serve() -> None:
        async with running_balancer(*ports, host=host) as balancer:
            found[0] = balancer.port
            started.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), daemon=True)
    thread.start()
    assert started.wait(PATIENCE)
    try:
        yield found[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
