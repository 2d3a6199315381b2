"""The store of objects goes away, or is full, while it is needed."""

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from tests.faults.lone_agent import LoneAgent
from tests.faults.site import BASE, Site, frozen
from tests.support.environments import postgres, swift
from tests.support.environments.required import lacking
from tests.support.processes.windlass import NO_SPARE, make_single, running
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.faults, pytest.mark.torch]
BUCKET = "windlass"
ONE_ENGINE = {"engine_slots": 1}
TMPFS_BYTES = 24 * 2**20


@pytest.fixture(scope="module")
def stored(
    base_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Site, swift.Swift]]:
    """An installation whose objects are in an S3 server."""
    folder = tmp_path_factory.mktemp("swift")
    with postgres.reachable_folder() as data, swift.start_swift(folder) as store:
        access = {"access_key_id": swift.ACCESS_KEY, "secret_access_key": swift.SECRET_KEY}
        boto3.client(
            "s3",
            endpoint_url=store.url,
            region_name=swift.REGION,
            aws_access_key_id=swift.ACCESS_KEY,
            aws_secret_access_key=swift.SECRET_KEY,
        ).create_bucket(Bucket=BUCKET)
        place = {"kind": "s3", "bucket": BUCKET, "endpoint_url": store.url, "region": swift.REGION}
        agent = {"agent": {**NO_SPARE["agent"], **ONE_ENGINE}}
        made = make_single(data / "data", agent | {"objects": place | access})
        with running(made):
            site = Site(made)
            site.import_base(base_folder)
            yield site, store


def test_a_job_outlasts_an_outage_of_its_store(stored: tuple[Site, swift.Swift]) -> None:
    site, store = stored
    job_id = site.create(site.upload(), epochs=1)
    site.until_trained(job_id)
    with frozen(site.trainer(job_id)):
        store.kill("proxy")
    _refuse(store.ports["proxy"], times=5)
    assert site.job(job_id)["status"] == "running"
    store.start("proxy")
    store.wait_ready("proxy")
    job = site.assert_succeeded_once(job_id)
    assert job["windlass"]["attempt"] == 1


@pytest.mark.long
def test_an_engine_more_waits_for_its_store(stored: tuple[Site, swift.Swift]) -> None:
    site, store = stored
    _serve(site, 1)
    wait_until(lambda: _serving(site)["ready_replicas"] == 1, "an engine")
    # Another machine, to which the model has to be copied.
    annex = LoneAgent(site, "annex", environment={"WINDLASS_AGENT_ENGINE_SLOTS": "1"})
    annex.start()
    try:
        wait_until(lambda: len([c for c in site.get("/clusters")["data"] if c["live"]]) == 2)
        store.kill("proxy")
        _serve(site, 2)

        def says() -> str:
            _say(site)
            messages = [one["message"] for one in site.get("/engines")["data"]]
            return next((one for one in messages if "could not be downloaded" in one), "")

        assert "the object store" in wait_until(says, "why it waits", every=1.0)
        assert _serving(site)["ready_replicas"] == 1
        store.start("proxy")
        store.wait_ready("proxy")
        wait_until(lambda: _serving(site)["ready_replicas"] == 2, "one more", every=1.0)
        _say(site)
        site.http.delete(f"/v1/servings/{BASE}").raise_for_status()
    finally:
        annex.stop()


def _serve(site: Site, replicas: int) -> None:
    body = {"min_replicas": replicas}
    site.http.put(f"/v1/servings/{BASE}", json=body).raise_for_status()


def _serving(site: Site) -> dict[str, Any]:
    return site.get(f"/servings/{BASE}")


def _say(site: Site) -> None:
    """A request that has to succeed."""
    client = site.windlass.openai(max_retries=0, timeout=60)
    client.completions.create(model=BASE, prompt="Hi", max_tokens=1)


def _refuse(port: int, *, times: int) -> None:
    """Stands where the store was, and hangs up on so many who come."""
    with socket.create_server(("127.0.0.1", port)) as listener:
        listener.settimeout(120)
        for _ in range(times):
            listener.accept()[0].close()


@pytest.fixture
def small(base_folder: Path) -> Iterator[Site]:
    """An installation with little room for objects."""
    if os.geteuid() != 0:
        lacking("only root can mount a small file system")
    with postgres.reachable_folder() as folder:
        made = make_single(folder / "data")
        objects = made.data / "objects"
        objects.mkdir(mode=0o700)
        options = f"size={TMPFS_BYTES},mode=0700"
        mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(objects)]
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
        if done.returncode:
            lacking(f"cannot mount a small file system here: {done.stderr.strip()}")
        try:
            with running(made):
                site = Site(made)
                site.import_base(base_folder)
                yield site
        finally:
            subprocess.run(["umount", "-l", objects], check=True)


def test_a_full_store_refuses_clearly_and_a_job_waits_for_room(small: Site) -> None:
    data = small.windlass.data
    with small.windlass.http() as http:
        answer = http.post(
            "/v1/files",
            data={"purpose": "user_data"},
            files={"file": ("large.bin", bytes(TMPFS_BYTES))},
        )
    assert answer.status_code == 507, answer.text
    assert answer.json()["error"]["message"]
    assert small.get("/files")["data"] == []
    left = [path for path in (data / "objects" / "incoming").rglob("*") if path.is_file()]
    assert left == []
    job_id = small.create(small.upload(), epochs=1)
    small.until_trained(job_id)
    filler = data / "objects" / "filler"
    with frozen(small.trainer(job_id)):
        _fill(filler)

    def told() -> bool:
        return any("cannot be uploaded now" in e["message"] for e in small.events(job_id))

    wait_until(told, "word of the full store")
    assert small.job(job_id)["status"] == "running"
    filler.unlink()
    small.assert_succeeded_once(job_id)


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        for size in (2**20, 2**12):
            try:
                while file.write(bytes(size)) == size:
                    pass
            except OSError:
                continue
