"""kill -9 of the server in the midst of uploads and creates: all or nothing, and nothing twice."""

import hashlib
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from tests.faults.site import BASE, Site
from tests.support.environments import postgres
from tests.support.processes.windlass import make_single, running

pytestmark = pytest.mark.faults
ROUNDS, AT_ONCE = 2, 4
CONTENT = random.Random(3).randbytes(6 * 2**20)
LATEST_KILL_SECONDS = 0.4


@pytest.fixture
def idle(base_folder: Path) -> Iterator[Site]:
    """An installation whose jobs wait for an agent that never comes."""
    with postgres.reachable_folder() as folder:
        made = make_single(folder / "data", {"agent": {"enabled": False}})
        with running(made):
            site = Site(made)
            site.import_base(base_folder)
            yield site


@dataclass
class Clients:
    """Requests of clients in one round, and the responses."""

    site: Site
    training_file: str
    number: int
    killed: threading.Event = field(default_factory=threading.Event)
    answered: dict[str, str] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)

    def upload(self, worker: int) -> None:
        self._until_killed(worker, "upload", self._upload)

    def create(self, worker: int) -> None:
        self._until_killed(worker, "create", self.create_once)

    def _until_killed(
        self, worker: int, kind: str, act: Callable[[httpx.Client, str], None]
    ) -> None:
        count = 0
        with self.site.windlass.http() as http:
            while not self.killed.is_set():
                count += 1
                name = f"{kind}-{self.number}-{worker}-{count}"
                self.keys.append(name)
                try:
                    act(http, name)
                except httpx.TransportError:
                    return

    def _upload(self, http: httpx.Client, name: str) -> None:
        files = {"file": (f"{name}.bin", CONTENT)}
        answer = http.post("/v1/files", data={"purpose": "user_data"}, files=files)
        self._note(name, answer)

    def create_once(self, http: httpx.Client, name: str) -> None:
        body = {"model": BASE, "training_file": self.training_file, "metadata": {"name": name}}
        headers = {"Idempotency-Key": name}
        self._note(name, http.post("/v1/fine_tuning/jobs", json=body, headers=headers))

    def _note(self, name: str, answer: httpx.Response) -> None:
        # One that the dying server could still answer knows nothing of its work.
        if answer.status_code < 500:
            assert answer.status_code == 200, answer.text
            self.answered[name] = answer.json()["id"]


def test_what_was_answered_is_there_and_nothing_is_half_or_twice(idle: Site) -> None:
    training_file = idle.upload()
    moments = random.Random(11)
    for number in range(ROUNDS):
        clients = Clients(idle, training_file, number)
        with ThreadPoolExecutor(2 * AT_ONCE) as pool:
            workers = [pool.submit(clients.upload, worker) for worker in range(AT_ONCE)]
            workers += [pool.submit(clients.create, worker) for worker in range(AT_ONCE)]
            # At any moment: this is no waiting for anything.
            clients.killed.wait(moments.uniform(0.02, LATEST_KILL_SECONDS))
            idle.windlass.kill()
            clients.killed.set()
            for worker in workers:
                worker.result()
        idle.windlass.start()
        idle.windlass.wait_ready()
        _assert_files_whole(idle, clients)
        _assert_jobs_single(idle, clients)


def _assert_files_whole(site: Site, clients: Clients) -> None:
    prefix = f"upload-{clients.number}-"
    listed = site.get("/files", purpose="user_data", limit=100)["data"]
    files = {file["filename"]: file for file in listed if file["filename"].startswith(prefix)}
    for name, file_id in clients.answered.items():
        if name.startswith("upload"):
            assert files[f"{name}.bin"]["id"] == file_id
    with site.windlass.http() as http:
        for file in files.values():
            content = http.get(f"/v1/files/{file['id']}/content").content
            assert hashlib.sha256(content).digest() == hashlib.sha256(CONTENT).digest()


def _assert_jobs_single(site: Site, clients: Clients) -> None:
    with site.windlass.http() as http:
        for name in [key for key in clients.keys if key.startswith("create")]:
            before = clients.answered.get(name)
            clients.create_once(http, name)
            assert before in (None, clients.answered[name])
            query = {"metadata[name]": name}
            found = http.get("/v1/fine_tuning/jobs", params=query).json()["data"]
            assert [job["id"] for job in found] == [clients.answered[name]]
