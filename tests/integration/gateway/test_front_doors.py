"""The listeners of a process: health, reflection, readiness, metrics, and TLS on both ports."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from tests.support.environments import postgres
from tests.support.environments.certificates import self_signed
from tests.support.factories.feather import make_feather
from tests.support.processes.shell import Shell
from tests.support.processes.windlass import Windlass, free_port, make_single, running

from windlass.api.jobs.v1 import jobs_pb2, jobs_pb2_grpc
from windlass.client import Windlass as Client

SERVICES = ("users", "rbac", "files", "models", "jobs", "clusters", "inference", "usage")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a self-signed `tls.crt` for loopback and its `tls.key`."""
    folder = tmp_path_factory.mktemp("tls")
    self_signed(folder)
    return folder


@pytest.fixture(scope="module")
def windlass(certificate: Path) -> Iterator[Windlass]:
    """An installation whose gateway and gRPC listener use TLS."""
    tls = {"certificate": str(certificate / "tls.crt"), "key": str(certificate / "tls.key")}
    with postgres.reachable_folder() as folder:
        made = make_single(
            folder / "data",
            {
                "agent": {"enabled": False},
                "http": {"tls": tls},
                "grpc": {
                    "listen": f"127.0.0.1:{free_port()}",
                    "tls": tls,
                    "reflection": True,
                },
            },
        )
        made.ca = certificate / "tls.crt"
        with running(made):
            yield made
        postgres.remove_database(folder / "data")


def grpc_address(windlass: Windlass) -> str:
    import yaml

    return str(yaml.safe_load(windlass.configs["all"].read_text())["grpc"]["listen"])


def channel(windlass: Windlass, certificate: Path) -> grpc.Channel:
    credentials = grpc.ssl_channel_credentials((certificate / "tls.crt").read_bytes())
    return grpc.secure_channel(grpc_address(windlass), credentials)


def test_https_answers_and_http_does_not(windlass: Windlass, certificate: Path) -> None:
    trusted = ssl.create_default_context(cafile=str(certificate / "tls.crt"))
    answer = httpx.get(f"https://127.0.0.1:{windlass.port}/healthz", verify=trusted)
    assert answer.status_code == 200
    with pytest.raises(httpx.TransportError):
        httpx.get(f"http://127.0.0.1:{windlass.port}/healthz")


def test_a_context_holds_the_authority_of_its_server(windlass: Windlass, tmp_path: Path) -> None:
    shell = Shell(windlass, tmp_path)
    shell.environment.pop("SSL_CERT_FILE", None)
    at, ca = ("--base-url", windlass.url), ("--ca", str(windlass.ca))
    login = ("auth", "login", *at)
    key = windlass.owner_key + "\n"
    distrusted = shell.run(*login, bare=True, given=key)
    assert distrusted.returncode == 3
    assert f"{windlass.url}: [SSL: CERTIFICATE_VERIFY_FAILED]" in distrusted.stderr
    assert "Name its authority with --ca." in distrusted.stderr
    for wrong in (tmp_path / "none.pem", windlass.configs["all"]):
        unfit = shell.run(*login, "--ca", str(wrong), bare=True, given=key)
        assert unfit.returncode == 2
        assert f"{wrong} holds no certificate authority" in unfit.stderr
    done = shell.run(*login, *ca, bare=True, given=key)
    assert done.returncode == 0, done.stderr
    assert shell.run("auth", "status", bare=True).returncode == 0
    by_variable = {**shell.owner, "WINDLASS_CA": str(windlass.ca)}
    assert shell.run("auth", "status", bare=True, environment=by_variable).returncode == 0
    # The files of a model go to signed addresses, which are the server's too.
    folder = make_feather(tmp_path / "feather")
    imported = shell.run("models", "import", str(folder), bare=True)
    assert imported.returncode == 0, imported.stderr
    with Client(windlass.url, windlass.owner_key, ca=str(windlass.ca)) as client:
        assert [model.id for model in client.openai.models.list()] == ["feather"]


def test_readiness_and_metrics(windlass: Windlass) -> None:
    with httpx.Client(base_url=windlass.operations()) as client:
        ready = client.get("/readyz")
        assert ready.status_code == 200
        assert ready.json()["database"] == "ok"
        text = client.get("/metrics").text
    assert "windlass_rpc_handled_total" in text


def test_health_of_the_process_and_each_service(windlass: Windlass, certificate: Path) -> None:
    with channel(windlass, certificate) as opened:
        stub = health_pb2_grpc.HealthStub(opened)
        names = [""]
        names += [f"windlass.api.{s}.v1.{s.title()}InternalService" for s in SERVICES]
        for name in names:
            answer = stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=10)
            assert answer.status == health_pb2.HealthCheckResponse.SERVING, name


def test_reflection_lists_the_contract(windlass: Windlass, certificate: Path) -> None:
    with channel(windlass, certificate) as opened:
        stub = reflection_pb2_grpc.ServerReflectionStub(opened)
        asked = iter([reflection_pb2.ServerReflectionRequest(list_services="")])
        (answer,) = stub.ServerReflectionInfo(asked, timeout=10)
    names = {service.name for service in answer.list_services_response.service}
    assert {"windlass.api.jobs.v1.JobsService", "windlass.api.users.v1.UsersService"} <= names


def test_a_call_without_a_principal_is_refused_over_tls_too(
    windlass: Windlass, certificate: Path
) -> None:
    with channel(windlass, certificate) as opened, pytest.raises(grpc.RpcError) as refused:
        jobs_pb2_grpc.JobsServiceStub(opened).ListJobs(jobs_pb2.ListJobsRequest(), timeout=10)
    assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED
