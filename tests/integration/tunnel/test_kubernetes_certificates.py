"""Clients' certificates at the listener for `kubectl`, as a named proxy tells of them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.environments.client_certificates import made
from tests.support.fakes.api_server import running_api_server
from tests.support.services.access_plane import AccessPlane, RawClient, access_plane
from tests.support.waiting import until

from windlass.api.users.v1 import certificates_pb2 as pb
from windlass.api.users.v1 import certificates_pb2_grpc as rpc
from windlass.core.rpc.auth import Principal
from windlass.policy import permissions_of

PODS = "GET /api/v1/namespaces/windlass-acme/pods"
# A second is the promise; machines that do much else are given another.
SECONDS = 2.0


@pytest.fixture
async def plane(database_url: str, tmp_path: Path) -> AsyncIterator[AccessPlane]:
    async with (
        running_api_server(tmp_path / "api") as api,
        access_plane(database_url, tmp_path, api) as plane,
    ):
        yield plane


async def test_requests_need_a_certificate_of_a_named_proxy(plane: AccessPlane) -> None:
    acme = await plane.tenant("Acme")
    access = await acme.access()
    client = await RawClient.connect(access)
    assert (await client.ask(PODS, access.token)).status == 200
    authority = made("authority", ca=True)
    good = made("client", authority)
    owner = Principal(
        acme.principal.organization_id, "", "boss", "", ("organization_owner",),
        permissions_of(("organization_owner",)),
    )  # fmt: skip
    stub = plane.stub(rpc.CertificatesServiceStub)
    caller = plane.calling(owner)
    request = pb.CreateCertificateRequest(certificate=authority.pem)
    one = await stub.CreateCertificate(request, **caller)
    await stub.ActivateCertificates(
        pb.ActivateCertificatesRequest(
            certificate_ids=[one.id], presented=pb.ClientCertificate(leaf=good.der)
        ),
        **caller,
    )

    async def status(*lines: str) -> int:
        return (await client.ask(PODS, access.token, *lines)).status

    await until(status, SECONDS, holds=lambda found: found == 403)
    (line,) = (f"{name}: {value}" for name, value in good.headers().items())
    (forged,) = (f"{name}: {value}" for name, value in made("x").headers().items())
    assert await status(line) == 200
    assert await status(forged) == 403
    assert await status(line, forged) == 403
    assert await status(line, line) == 403
    client.close()
