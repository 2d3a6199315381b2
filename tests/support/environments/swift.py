"""A real S3 server: OpenStack Swift with one plain folder for a disk."""

import getpass
import http.client
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.environments import made_once
from tests.support.processes.windlass import free_port
from tests.support.waiting import wait_until

ACCESS_KEY = "test:tester"
SECRET_KEY = "testing"
REGION = "us-east-1"
REQUIREMENTS = ("swift==2.38.3", "pyeclib==1.8.0", "setuptools<80")
_KINDS = ("account", "container", "object")
_PIPELINE = (
    "catch_errors gatekeeper healthcheck proxy-logging listing_formats s3api tempauth bulk slo "
    "proxy-logging proxy-server"
)
_RINGS = """
import sys
from swift.common.ring.builder import RingBuilder
for argument in sys.argv[2:]:
    kind, port = argument.split("=")
    builder = RingBuilder(4, 1, 1)
    builder.add_dev(dict(id=0, region=1, zone=1, ip="127.0.0.1", port=int(port), weight=1.0,
        device="disk", replication_ip="127.0.0.1", replication_port=int(port), meta=""))
    builder.rebalance()
    builder.get_ring().save(f"{sys.argv[1]}/{kind}.ring.gz")
"""


@dataclass
class Swift:
    """The four servers of a Swift, on ports of the loopback interface but for the proxy."""

    folder: Path
    python: Path
    # Where the proxy listens.
    host: str = "127.0.0.1"
    ports: dict[str, int] = field(default_factory=dict)
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.ports['proxy']}"

    def address(self, kind: str) -> str:
        return self.host if kind == "proxy" else "127.0.0.1"

    def start(self, kind: str) -> None:
        log = (self.folder / f"{kind}.log").open("ab")
        self.processes[kind] = subprocess.Popen(
            [
                self.python,
                self.python.parent / f"swift-{kind}-server",
                self.folder / f"{kind}-server.conf",
            ],
            stdout=log,
            stderr=log,
            start_new_session=True,
        )

    def wait_ready(self, kind: str) -> None:
        """Waits until a server answers; raises AssertionError with its log if it ends before."""

        def ready() -> bool:
            ended = self.processes[kind].poll() is not None
            assert not ended, f"{kind}: {(self.folder / f'{kind}.log').read_text()[-2000:]}"
            connection = http.client.HTTPConnection(self.address(kind), self.ports[kind], timeout=2)
            with suppress(OSError):
                connection.request("GET", "/healthcheck")
                return connection.getresponse().status == 200
            return False

        wait_until(ready, kind, every=0.02)

    def kill(self, kind: str) -> None:
        """Kills one server and its workers with SIGKILL."""
        process = self.processes[kind]
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _configure(swift: Swift) -> None:
    (swift.folder / "srv" / "disk").mkdir(parents=True)
    (swift.folder / "swift.conf").write_text(
        "[swift-hash]\nswift_hash_path_suffix = test\n"
        "[storage-policy:0]\nname = gold\ndefault = yes\n"
        # Room for keys below a prefix, as S3 has it.
        "[swift-constraints]\nmax_object_name_length = 1024\n"
    )
    rings = [f"{kind}={swift.ports[kind]}" for kind in _KINDS]
    subprocess.run([swift.python, "-c", _RINGS, swift.folder, *rings], check=True)
    for kind, port in swift.ports.items():
        pipeline = _PIPELINE if kind == "proxy" else f"healthcheck {kind}-server"
        (swift.folder / f"{kind}-server.conf").write_text(
            f"[DEFAULT]\nbind_ip = {swift.address(kind)}\nbind_port = {port}\n"
            f"swift_dir = {swift.folder}\n"
            f"devices = {swift.folder}/srv\nmount_check = false\nworkers = 0\n"
            f"user = {getpass.getuser()}\nlog_address = /nonexistent\nlog_level = ERROR\n"
            f"[pipeline:main]\npipeline = {pipeline}\n"
            f"[app:{kind}-server]\nuse = egg:swift#{kind}\nallow_account_management = true\n"
            "account_autocreate = true\n" + _filters(pipeline)
        )


def _filters(pipeline: str) -> str:
    options = {
        "tempauth": "user_test_tester = testing .admin\n",
        "s3api": f"location = {REGION}\ns3_acl = false\nallow_multipart_uploads = true\n"
        "min_segment_size = 1048576\n"
        # Short pages, so that a few hundred objects make several.
        "max_bucket_listing = 100\n",
    }
    names = [name for name in dict.fromkeys(pipeline.split()) if not name.endswith("-server")]
    return "".join(
        f"[filter:{name}]\nuse = egg:swift#{name.replace('-', '_')}\n{options.get(name, '')}"
        for name in names
    )


def environment() -> Path:
    """The `bin` of Swift's environment: its old libraries cannot disturb ours."""
    return made_once.environment("swift-env", *REQUIREMENTS)


@contextmanager
def start_swift(folder: Path, host: str = "127.0.0.1") -> Iterator[Swift]:
    """Runs all four servers until the end of the block, with their files in `folder`."""
    swift = Swift(folder, environment() / "python", host)
    swift.ports = {kind: free_port() for kind in ("proxy", *_KINDS)}
    _configure(swift)
    try:
        for kind in swift.ports:
            swift.start(kind)
        for kind in swift.ports:
            swift.wait_ready(kind)
        yield swift
    finally:
        for kind in swift.processes:
            swift.kill(kind)
