"""What people get wrong costs them a sentence and an exit code, never a traceback."""

import json
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import sqlalchemy as sa
from tests.support.environments import postgres
from tests.support.environments.certificates import self_signed
from tests.support.processes.command import environment, windlass
from tests.support.processes.shell import PROGRAM
from tests.support.processes.windlass import free_port
from tests.support.waiting import PATIENCE, until

from windlass.embedded_postgres import EmbeddedPostgres

KEY = ("--api-key", "wl-x", "--base-url", "http://127.0.0.1:1")
ROW = {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
NOT_VALID = "windlass: the configuration is not valid:\n  "


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--api-key", "wl-abc…"), "The API key contains '…'"),
        ((*KEY, "--project", "…"), "The project contains '…'"),
        ((*KEY, "--organization", "é"), "The organization contains 'é'"),
        (("--api-key", "wl-x", "--base-url", "http://…"), "'http://…' is not a URL"),
        (("--api-key", "wl-x", "--base-url", "http://a:b"), "'http://a:b' is not a URL"),
    ],
)
def test_what_no_request_can_hold(
    tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    done = windlass(tmp_path, "jobs", "list", *arguments)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert sentence in done.stderr


@pytest.fixture(scope="module")
def portal() -> Iterator[str]:
    """The URL of a server that answers every request with its own page, object or redirection."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b'{"detail": "hello"}' if "json" in self.path else b"<html>Sign in</html>"
            self.send_response(302 if "away" in self.path else 200)
            if "away" in self.path:
                self.send_header("Location", "https://login.example/")
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("models", "get", "m"), "/v1/models/m answered 200 with text/html, not with a JSON obj"),
        (("models", "list"), "/v1/models answered 200 with text/html, not with a JSON object."),
        (("files", "upload", "rows.jsonl"), "/v1/files answered 200 with text/html, not with a J"),
        (("chat", "m", "hello"), "/completions answered 200 with text/html, not with a stream of"),
    ],
)
def test_another_program_at_the_address(
    tmp_path: Path, portal: str, arguments: tuple[str, ...], sentence: str
) -> None:
    (tmp_path / "rows.jsonl").write_text(f"{json.dumps(ROW)}\n")
    done = windlass(tmp_path, *arguments, "-q", "--api-key", "wl-x", "--base-url", portal)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
    assert f"windlass: {portal}/v1" in done.stderr
    assert sentence in done.stderr
    assert "--base-url or --context names another one." in done.stderr


def test_another_servers_json_and_redirection(tmp_path: Path, portal: str) -> None:
    key = ("--api-key", "wl-x", "--base-url")
    done = windlass(tmp_path, "models", "list", *key, f"{portal}/json")
    assert (done.returncode, "not with a list." in done.stderr) == (3, True)
    done = windlass(tmp_path, "models", "list", *key, f"{portal}/away")
    assert (done.returncode, done.stderr) == (
        1,
        f"windlass: {portal}/away/v1/models answered 302 Found to https://login.example/. (302)\n",
    )


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"http: [1\n", "line 2, column 1: not valid YAML"),
        (b"\xff\xfe", "not UTF-8 text"),
        (b"- a\n", "the top level must be a mapping"),
        (b"1: 2\n", "1 is not the name of a setting"),
        (b"htpp: {}\n", "htpp: is not a setting; did you mean http?"),
        (b"http: {prot: 1}\n", "http.prot: is not a setting; did you mean port?"),
        (b"http: {port: 70000}\n", "http.port: must be less than or equal to 65535"),
        (b"http: {trusted_proxies: [x]}\n", "http.trusted_proxies.0: "),
        (
            b"database: {url: 'mysql://u:hunter2@h/d'}\n",
            "database.url: must begin with postgresql://, and mysql:// is another database",
        ),
        (b"database: {url: 'postgresql://h:hunter2/d'}\n", "database.url: is not a URL such as"),
    ],
)
@pytest.mark.parametrize("command", [("config", "check"), ("serve",)])
def test_a_file_that_is_no_configuration(
    tmp_path: Path, content: bytes, sentence: str, command: tuple[str, ...]
) -> None:
    file = tmp_path / "my windlass.yaml"
    file.write_bytes(content)
    done = windlass(tmp_path, *command, "--config", str(file))
    assert done.returncode == 2
    assert done.stderr.startswith(NOT_VALID)
    assert sentence in done.stderr
    assert "hunter2" not in done.stderr
    assert "pydantic" not in done.stderr


def test_variables_that_are_no_settings(tmp_path: Path) -> None:
    done = windlass(tmp_path, "config", "check", WINDLASS_HTPP__PORT="1", WINDLASS_AGENT_SLOTS="2")
    assert done.returncode == 0
    expected = "warning: WINDLASS_HTPP__PORT: It is not a setting; did you mean WINDLASS_HTTP__PORT"
    assert expected in done.stdout
    assert "WINDLASS_AGENT_SLOTS" not in done.stdout, "a standalone agent's"
    done = windlass(tmp_path, "config", "check", WINDLASS_PEERS="users")
    assert done.returncode == 2
    assert "WINDLASS_PEERS…: a list or a mapping is JSON" in done.stderr


def test_a_target_that_there_is_not(tmp_path: Path) -> None:
    done = windlass(tmp_path, "config", "check", "--target", "gatway")
    assert done.returncode == 1
    assert "unknown target 'gatway'; did you mean gateway?" in done.stdout
    assert "database.url" not in done.stdout
    done = windlass(tmp_path, "serve", "--target", "gatway")
    assert done.returncode == 2
    assert "did you mean gateway?" in done.stderr


def test_files_that_are_not_there_or_do_not_fit(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder in folders:
        folder.mkdir()
    one, other = (self_signed(folder) for folder in folders)
    for certificate, key, name, sentence in (
        (tmp_path / "none.crt", one[1], "http.tls.certificate", "does not exist"),
        (one[0], tmp_path, "http.tls.key", "is no file"),
        (one[0], other[1], "http.tls.certificate", "are no PEM pair"),
    ):
        variables = {
            "WINDLASS_HTTP__TLS__CERTIFICATE": str(certificate),
            "WINDLASS_HTTP__TLS__KEY": str(key),
        }
        done = windlass(tmp_path, "config", "check", **variables)
        assert done.returncode == 1
        assert f"error: {name}: " in done.stdout
        assert sentence in done.stdout
        done = windlass(tmp_path, "serve", **variables)
        assert (done.returncode, sentence in done.stderr) == (2, True)


def test_the_example_is_the_defaults(tmp_path: Path) -> None:
    example = windlass(tmp_path, "config", "example").stdout
    assert "# Port to listen on; 0: any free port. (integer, from 0 to 65,535)" in example
    (tmp_path / "all.yaml").write_text(example)
    default = windlass(tmp_path, "config", "show")
    shown = windlass(tmp_path, "config", "show", "--config", "all.yaml")
    assert (shown.returncode, shown.stdout) == (0, default.stdout)


@pytest.fixture
def database(postgres_url: str) -> Iterator[str]:
    with postgres.fresh_database(postgres_url) as url:
        yield url


def serve(home: Path, url: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    return windlass(
        home, "serve", "--data", "data", "--port", "0", WINDLASS_DATABASE__URL=url, **variables
    )


def test_a_database_that_does_not_answer(tmp_path: Path) -> None:
    url = "postgresql://u:hunter2@127.0.0.1:1/d"
    done = serve(tmp_path, url, WINDLASS_DATABASE__WAIT_SECONDS="0.5")
    assert done.returncode == 2
    assert '"event": "database_awaited"' in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("windlass: The database cannot be reached: connection failed:")
    assert "hunter2" not in done.stderr


def test_a_database_that_refuses_us(tmp_path: Path, database: str) -> None:
    done = serve(tmp_path, database.replace("/test_", "/no_such_"))
    assert done.returncode == 2
    assert "does not exist" in done.stderr.splitlines()[-1]


def test_a_database_without_a_schema(tmp_path: Path, database: str) -> None:
    done = serve(tmp_path, database, WINDLASS_DATABASE__MIGRATE="false")
    sentence = "The database has no schema: run `windlass db migrate`."
    assert (done.returncode, done.stderr) == (2, f"windlass: {sentence}\n")


@pytest.mark.parametrize("migrate", ["true", "false"])
def test_a_database_newer_than_the_code(tmp_path: Path, database_url: str, migrate: str) -> None:
    engine = sa.create_engine(database_url)
    with engine.begin() as connection:
        connection.execute(sa.text("UPDATE alembic_version SET version_num = 'futureone'"))
    engine.dispose()
    done = serve(tmp_path, database_url, WINDLASS_DATABASE__MIGRATE=migrate)
    assert done.returncode == 2
    assert "at revision futureone, which this release does not know" in done.stderr


def test_a_master_key_that_is_missing(tmp_path: Path, database_url: str) -> None:
    engine = sa.create_engine(database_url)
    row = "(1, 'AAAA', 'local:0123456789abcdef', 0)"
    with engine.begin() as connection:
        connection.execute(sa.text(f"INSERT INTO core_root_keys VALUES {row}"))
    engine.dispose()
    done = serve(tmp_path, database_url)
    missing = tmp_path / "data" / "keys" / "master.key"
    assert done.returncode == 2
    assert f"windlass: {missing} does not exist" in done.stderr
    assert "local:0123456789abcdef" in done.stderr
    assert not missing.exists()


async def test_a_start_waits_for_its_database(tmp_path: Path) -> None:
    with postgres.reachable_folder() as folder:
        server = EmbeddedPostgres(folder / "postgres", settings=postgres.SETTINGS)
        url = await server.start()
        await server.stop()
        log = tmp_path / "log"
        variables = {"WINDLASS_DATABASE__URL": url, "WINDLASS_AGENT__ENABLED": "false"}
        options = ("--data", "data", "--port", str(free_port()))
        with log.open("wb") as out:
            process = subprocess.Popen(
                [*PROGRAM, "serve", *options],
                env=environment(tmp_path, **variables),
                cwd=tmp_path,
                stdout=out,
                stderr=out,
            )
        try:
            await until(lambda: '"event": "database_awaited"' in log.read_text())
            await server.start()
            ready = '"event": "process_ready"'
            await until(lambda: ready in log.read_text(), seconds=3 * PATIENCE)
        finally:
            process.terminate()
            assert process.wait(60) == 0
            await server.stop()
        assert "Traceback" not in log.read_text()
