"""People's requests for a cluster's API server: through the listener, the tunnel and the agent."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from tests.support.fakes.api_server import ApiServer, running_api_server
from tests.support.fakes.oidc_issuer import OidcIssuer
from tests.support.services.access_plane import (
    CREDENTIAL,
    AccessPlane,
    RawClient,
    Tenant,
    access_plane,
    refused,
)
from tests.support.waiting import until

from windlass.api.users.v1 import networks_pb2, networks_pb2_grpc
from windlass.core.rpc.auth import Principal
from windlass.policy import permissions_of

UPGRADE = ("Connection: Upgrade", "Upgrade: SPDY/3.1")
WEBSOCKET = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Protocol: v5.channel.k8s.io",
)
# A second is the promise; machines that do much else are given another.
SECONDS = 2.0


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiServer]:
    async with running_api_server(tmp_path / "api") as api:
        yield api


@pytest.fixture
async def plane(database_url: str, tmp_path: Path, api: ApiServer) -> AsyncIterator[AccessPlane]:
    async with access_plane(database_url, tmp_path, api) as plane:
        yield plane


@pytest.fixture
async def acme(plane: AccessPlane) -> Tenant:
    return await plane.tenant("Acme")


async def test_a_read_arrives_as_the_viewer_and_its_answer_comes_back(
    plane: AccessPlane, acme: Tenant, api: ApiServer
) -> None:
    access = await acme.access()
    assert access.server.endswith(f"/clusters/{plane.cluster_id}")
    assert (access.namespace, access.cluster_name) == ("windlass-acme", "east")
    client = await RawClient.connect(access, protocols=("h2", "http/1.1"))
    assert client.writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
    pods = "/api/v1/namespaces/windlass-acme/pods"
    answer = await client.ask(
        f"GET {pods}?limit=500",
        access.token,
        "X-Remote-User: admin",
        "X-Forwarded-For: 1.2.3.4",
        "Cookie: a=b",
        "User-Agent: kubectl/v1.36.3",
        "Accept: application/json",
    )
    assert answer.status == 200
    assert answer.json == {"kind": "PodList", "path": pods}
    assert answer.headers["audit-id"] == "a1"
    raw, head, body = api.heard[-1]
    names = [name for name, _ in head.headers]
    assert head.target == f"{pods}?limit=500"
    assert api.header("impersonate-user") == "system:serviceaccount:windlass-acme:windlass-viewer"
    assert api.header("authorization") == CREDENTIAL
    assert api.header("user-agent") == "kubectl/v1.36.3"
    assert not {"x-remote-user", "x-forwarded-for", "cookie"} & set(names)
    assert acme.key.encode() not in raw
    assert access.token.encode() not in raw
    assert body == b""
    client.close()


async def test_a_key_is_taken_from_its_networks_alone(plane: AccessPlane, acme: Tenant) -> None:
    owner = Principal(
        acme.principal.organization_id, "", "boss", "", ("organization_owner",),
        permissions_of(("organization_owner",)),
    )  # fmt: skip
    project = acme.principal.project_id
    near = await plane.key_of(owner, project, "project_member", networks=["127.0.0.0/8"])
    access = await near.access()
    client = await RawClient.connect(access)
    pods = "GET /api/v1/namespaces/windlass-acme/pods"
    for lines, status in (
        ((), 200),
        (("X-Forwarded-For: 192.0.2.7",), 403),
        # The proxy's own line comes after what the client wrote.
        (("X-Forwarded-For: 127.0.0.5", "X-Forwarded-For: 192.0.2.7"), 403),
        (("X-Forwarded-For: 192.0.2.7", "X-Forwarded-For: 127.0.0.5"), 200),
    ):
        answer = await client.ask(pods, access.token, *lines)
        assert answer.status == status, lines
        assert status == 200 or "not taken from your address" in answer.message
    client.close()


async def test_an_organization_is_used_from_its_networks_alone(
    plane: AccessPlane, acme: Tenant
) -> None:
    operator = Principal(
        acme.principal.organization_id, "", "boss", "", ("platform_admin",),
        permissions_of(("platform_admin",)),
    )  # fmt: skip
    access = await acme.access()
    client = await RawClient.connect(access)
    pods = "GET /api/v1/namespaces/windlass-acme/pods"
    near, far = "X-Forwarded-For: 203.0.113.7", "X-Forwarded-For: 192.0.2.7"
    assert (await client.ask(pods, access.token, far)).status == 200
    await plane.stub(networks_pb2_grpc.AllowedNetworksServiceStub).PutAllowedNetworks(
        networks_pb2.PutAllowedNetworksRequest(
            organization_id=operator.organization_id, networks=["203.0.113.0/24"], force=True
        ),
        **plane.calling(operator),
    )
    await until(
        lambda: client.ask(pods, access.token, far), 2.0, holds=lambda got: got.status == 403
    )
    refused = await client.ask(pods, access.token, far)
    assert "its organization is not used from your address" in refused.message
    assert (await client.ask(pods, access.token)).status == 403
    assert (await client.ask(pods, access.token, near)).status == 200
    assert (await client.ask(pods, access.token, near, far)).status == 403
    client.close()


async def test_every_request_of_a_connection_is_judged_and_audited(
    plane: AccessPlane, acme: Tenant, api: ApiServer
) -> None:
    other = await plane.tenant("Bolt")
    access, foreign = await acme.access(), await other.access()
    client = await RawClient.connect(access)
    own = "/api/v1/namespaces/windlass-acme/pods"
    theirs = "/api/v1/namespaces/windlass-bolt/pods"
    # All at once, so that each is read behind the one before.
    requests = [
        (f"GET {own}", access.token, 200),
        (f"GET {theirs}", access.token, 403),
        ("GET /version", access.token, 200),
        ("GET /api/v1/pods", access.token, 403),
        (f"GET {own}", "", 401),
        (f"GET {own}", access.token + "x", 401),
        (f"GET {theirs}", foreign.token, 200),
        (f"GET {own}", foreign.token, 403),
        (f"DELETE {own}/p", access.token, 403),
        (f"HEAD {own}", access.token, 200),
        (f"GET {own}/p", access.token, 200),
    ]
    for request, token, _ in requests:
        client.writer.write(client.head(request, token))
    await client.writer.drain()
    for request, _, status in requests:
        answer = await (client.read_head() if request.startswith("HEAD") else client.answer())
        assert answer.status == status, request
        if status == 403:
            assert answer.json["reason"] == "Forbidden"
            assert "is forbidden: User" in answer.message
    assert len(api.heard) == 5
    events = await until(acme.audited, holds=lambda found: len(found) == 7)
    by = acme.principal
    assert [(one.action, one.resource, one.outcome) for one in events] == [
        (action, f"clusters/{plane.cluster_id}{resource}", outcome)
        for action, resource, outcome in [
            ("kubernetes/list pods", "/namespaces/windlass-acme/pods", "OK"),
            ("kubernetes/list pods", "/namespaces/windlass-bolt/pods", "PERMISSION_DENIED"),
            ("kubernetes/get /version", "", "OK"),
            ("kubernetes/list pods", "/pods", "PERMISSION_DENIED"),
            ("kubernetes/delete pods", "/namespaces/windlass-acme/pods/p", "PERMISSION_DENIED"),
            ("kubernetes/list pods", "/namespaces/windlass-acme/pods", "OK"),
            ("kubernetes/get pods", "/namespaces/windlass-acme/pods/p", "OK"),
        ]
    ]
    who = {(one.project_id, one.user_id, one.key_id, one.address) for one in events}
    assert who == {(by.project_id, by.user_id, by.key_id, "127.0.0.1")}
    assert len(await other.audited()) == 2
    client.close()


SMUGGLED = [
    (("Content-Length: 5", "Transfer-Encoding: chunked"), b"0\r\n\r\n", 400),
    (("Content-Length: 0", "Content-Length: 44"), b"", 400),
    (("Transfer-Encoding: chunked",), b"0\r\n\r\n", 411),
    (("Transfer-Encoding: xchunked",), b"", 501),
    (("Transfer-Encoding : chunked",), b"", 400),
    (("Accept: a", " b: c"), b"", 400),
    (("X: " + "a" * 40_000,), b"", 431),
    (("Expect: 100-continue",), b"", 417),
    (WEBSOCKET, b"", 403),
    (("Connection: Upgrade", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP"), b"", 403),
    (("Content-Length: 300000",), b"", 413),
]


async def test_what_may_hide_another_request_ends_the_connection(
    acme: Tenant, api: ApiServer
) -> None:
    """The second request lies where another reader would find the first one's body."""
    access = await acme.access()
    for lines, body, status in SMUGGLED:
        client = await RawClient.connect(access)
        hidden = client.head("DELETE /api/v1/namespaces/windlass-acme/pods/p", access.token)
        request = "GET /api/v1/namespaces/windlass-acme/pods"
        answer = await client.ask(request, access.token, *lines, body=body + hidden)
        assert (answer.status, answer.headers.get("connection")) == (status, "close"), lines
        assert answer.message
        await client.ends()
    assert api.heard == []


async def test_nobody_is_impersonated(acme: Tenant, api: ApiServer) -> None:
    access = await acme.access()
    client = await RawClient.connect(access)
    for header in ("User: system:admin", "Group: system:masters", "Extra-Windlass-User: x"):
        answer = await client.ask("GET /version", access.token, f"Impersonate-{header}")
        assert answer.status == 403
        assert "impersonation is not allowed" in answer.message
    assert api.heard == []
    events = await until(acme.audited, holds=lambda found: len(found) == 3)
    assert {one.outcome for one in events} == {"PERMISSION_DENIED"}
    client.close()


async def test_other_forms_of_requests_are_refused(acme: Tenant, api: ApiServer) -> None:
    access = await acme.access()
    for line in (
        "GET http://kubernetes.default/api HTTP/1.1",
        "GET * HTTP/1.1",
        "CONNECT kubernetes.default:443 HTTP/1.1",
        "TRACE / HTTP/1.1",
        "GET /api HTTP/1.0",
        "PRI * HTTP/2.0",
    ):
        client = await RawClient.connect(access)
        client.writer.write(f"{line}\r\nHost: h\r\n\r\n".encode())
        answer = await client.answer()
        assert answer.status in (400, 405), line
        assert answer.message
        await client.ends()
    assert api.heard == []


async def test_tokens_are_for_one_cluster_and_one_time(plane: AccessPlane, acme: Tenant) -> None:
    access = await acme.access(seconds=60)
    client = await RawClient.connect(access)
    client._root = "/clusters/another"
    answer = await client.ask("GET /version", access.token)
    assert (answer.status, answer.json["reason"]) == (401, "Unauthorized")
    principal = plane.platform.gateway.sign_principal(acme.principal)
    service = plane.platform.app.tokens.sign_service()
    client._root = f"/clusters/{plane.cluster_id}"
    # A workload's own token is a key at the API alone.
    foreign = OidcIssuer(url="https://issuer.example").token(aud="x/wir_" + "n" * 24)
    for token in (principal, service, acme.key, foreign, "a.b.c", "x" * 3000):
        assert (await client.ask("GET /version", token)).status == 401
    claims = {
        "org": acme.principal.organization_id,
        "project": acme.principal.project_id,
        "key": acme.principal.key_id,
        "cluster": plane.cluster_id,
    }
    expired = plane.platform.app.tokens.sign_access(claims, expires_at=1)
    answer = await client.ask("GET /version", expired)
    assert answer.status == 401
    assert "expired" in answer.message
    client._root = ""
    assert (await client.ask("GET /version", access.token)).status == 404
    assert (await client.ask("GET /healthz", "")).status == 200
    client.close()


async def test_who_gets_access(plane: AccessPlane, acme: Tenant) -> None:
    for seconds in (1, 59, 3601):
        assert (await refused(acme.access(seconds=seconds))).code() == (
            grpc.StatusCode.INVALID_ARGUMENT
        )
    reader = Principal(
        acme.principal.organization_id, acme.principal.project_id, key_id="k",
        permissions=frozenset({"clusters.read"}),
    )  # fmt: skip
    denied = await refused(Tenant(plane, reader, "", "").access())
    assert denied.code() == grpc.StatusCode.PERMISSION_DENIED
    await plane.unassign(acme)
    nowhere = await until(lambda: refused_or_none(acme))
    assert nowhere is not None
    assert nowhere.code() == grpc.StatusCode.FAILED_PRECONDITION
    assert "is not assigned to the cluster east" in str(nowhere.details())


async def refused_or_none(tenant: Tenant) -> grpc.aio.AioRpcError | None:
    try:
        await tenant.access()
    except grpc.aio.AioRpcError as error:
        return error
    return None


async def test_a_log_is_followed_line_by_line_until_the_client_leaves(
    plane: AccessPlane, acme: Tenant, api: ApiServer
) -> None:
    access = await acme.access()
    client = await RawClient.connect(access)
    log = "GET /api/v1/namespaces/windlass-acme/pods/p/log?follow=true"
    await client.send(log, access.token)
    assert (await client.read_head()).headers["transfer-encoding"] == "chunked"
    for number in range(3):
        api.lines.put_nowait(b"line %d\n" % number)
        assert await client.chunk() == b"line %d\n" % number
    client.close()
    await until(lambda: api.open == 0)
    # A stream that ends by itself leaves the connection for the next request.
    client = await RawClient.connect(access)
    await client.send(log, access.token)
    await client.read_head()
    api.lines.put_nowait(b"")
    assert await client.chunk() == b""
    assert (await client.ask("GET /version", access.token)).status == 200
    client.close()


async def test_a_long_log_comes_whole(acme: Tenant) -> None:
    access = await acme.access()
    client = await RawClient.connect(access)
    await client.send("GET /api/v1/namespaces/windlass-acme/pods/big/log", access.token)
    await client.read_head()
    for number in range(64):
        assert await client.chunk() == bytes([number]) * 65536
    assert await client.chunk() == b""
    client.close()


async def test_entering_a_pod_is_spliced_after_101_alone(acme: Tenant, api: ApiServer) -> None:
    access = await acme.access()
    for door in ("exec", "attach", "portforward"):
        client = await RawClient.connect(access)
        request = f"POST /api/v1/namespaces/windlass-acme/pods/p/{door}?command=sh"
        # The first bytes of the new protocol come with the head, as SPDY's do.
        await client.send(request, access.token, *UPGRADE, body=b"\x80\x03early")
        assert (await client.read_head()).status == 101
        assert await client.reader.readexactly(7) == b"\x80\x03early"
        client.writer.write(b"GET /api/v1/secrets HTTP/1.1\r\n\r\n")
        assert b"secrets" in await client.reader.read(100)
        account = "system:serviceaccount:windlass-acme:windlass-editor"
        assert api.header("impersonate-user") == account
        client.close()
    await until(lambda: api.open == 0)
    assert len(api.heard) == 3
    events = await until(acme.audited, holds=lambda found: len(found) == 3)
    assert [(one.action, one.outcome) for one in events] == [
        (f"kubernetes/create pods/{door}", "OK") for door in ("exec", "attach", "portforward")
    ]


async def test_no_upgrade_that_the_api_server_did_not_grant(acme: Tenant, api: ApiServer) -> None:
    access = await acme.access()
    client = await RawClient.connect(access)
    request = "GET /api/v1/namespaces/windlass-acme/pods/p/exec?command=refuse"
    hidden = client.head("GET /api/v1/secrets", access.token)
    answer = await client.ask(request, access.token, *WEBSOCKET, body=hidden)
    assert (answer.status, answer.json["message"]) == (400, "no such container")
    assert answer.headers["connection"] == "close"
    await client.ends()
    assert len(api.heard) == 1
    # Nor one that nobody asked for.
    client = await RawClient.connect(access)
    answer = await client.ask("GET /api/v1/namespaces/windlass-acme/pods/odd", access.token)
    assert answer.status in (502, 503)
    client.close()


async def test_another_credential_may_not_hide_among_the_protocols(
    acme: Tenant, api: ApiServer
) -> None:
    access = await acme.access()
    client = await RawClient.connect(access)
    bearer = "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.c2VjcmV0"
    request = "GET /api/v1/namespaces/windlass-acme/pods/p/exec"
    lines = (*WEBSOCKET[:-1], f"Sec-WebSocket-Protocol: {bearer}")
    assert (await client.ask(request, access.token, *lines)).status == 400
    assert api.heard == []
    client.close()


@pytest.mark.parametrize("how", ["key", "assignment"])
async def test_what_is_open_ends_within_a_second_of_revocation(
    plane: AccessPlane, acme: Tenant, api: ApiServer, how: str
) -> None:
    other = await plane.tenant("Bolt")
    access, foreign = await acme.access(), await other.access()
    log = "GET /api/v1/namespaces/{}/pods/p/log?follow=true"
    follower, shell, stranger = [await RawClient.connect(one) for one in (access, access, foreign)]
    await follower.send(log.format("windlass-acme"), access.token)
    await stranger.send(log.format("windlass-bolt"), foreign.token)
    await shell.send(
        "POST /api/v1/namespaces/windlass-acme/pods/p/exec?command=sh", access.token, *UPGRADE
    )
    for client in (follower, stranger, shell):
        await client.read_head()
    # One that has no answer yet hears why there will be none.
    waiting = await RawClient.connect(access)
    await waiting.send("GET /api/v1/namespaces/windlass-acme/pods/hangs", access.token)
    await until(lambda: api.open == 4)
    await (plane.revoke(acme) if how == "key" else plane.unassign(acme))
    took = await asyncio.gather(follower.ends(), shell.ends())
    assert max(took) < SECONDS
    assert (await waiting.answer()).status == (401 if how == "key" else 403)
    fresh = await RawClient.connect(access)
    answer = await fresh.ask("GET /version", access.token)
    assert answer.status == (401 if how == "key" else 403)
    # Whoever has nothing to do with it goes on.
    await until(lambda: api.open == 1)
    api.lines.put_nowait(b"still here\n")
    assert await stranger.chunk() == b"still here\n"
    for client in (waiting, fresh, stranger):
        client.close()


async def test_a_stalled_reader_is_ended_too(
    plane: AccessPlane, acme: Tenant, api: ApiServer
) -> None:
    access = await acme.access()
    client = await RawClient.connect(access)
    transport: Any = client.writer.transport
    transport.pause_reading()
    await client.send("GET /api/v1/namespaces/windlass-acme/pods/p/log?follow=true", access.token)
    for _ in range(200):
        api.lines.put_nowait(b"x" * 65536)
    await until(lambda: 0 < api.lines.qsize() < 199)
    await plane.revoke(acme)
    await until(lambda: api.open == 0)
    client.close()


async def test_a_cluster_without_a_tunnel_is_unavailable(
    plane: AccessPlane, acme: Tenant, api: ApiServer
) -> None:
    access = await acme.access()
    client = await RawClient.connect(access)
    log = "GET /api/v1/namespaces/windlass-acme/pods/p/log?follow=true"
    await client.send(log, access.token)
    await client.read_head()
    await plane.cave_in()
    # What was open is cut, and is not taken for whole.
    assert await client.ends() < 20
    client = await RawClient.connect(access)
    answer = await client.ask("GET /version", access.token)
    assert (answer.status, answer.json["reason"]) == (503, "ServiceUnavailable")
    events = await until(acme.audited, holds=lambda found: len(found) == 2)
    assert events[-1].outcome == "UNAVAILABLE"
    await plane.dig()
    await until(
        lambda: client.ask("GET /version", access.token), holds=lambda got: got.status == 200
    )
    client.close()
