"""Audiences of each RPC: roles, services and agents; forged tokens are rejected."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode

import grpc
import pytest
from joserfc import jwt
from joserfc.jwk import OKPKey
from tests.support.clients.wire import Metadata, Wire, methods_for, short
from tests.support.factories.tenants import Tenants

from windlass.api.auth.v1 import auth_pb2
from windlass.api.clusters.v1 import clusters_pb2
from windlass.core.app import runtime_dir
from windlass.core.rpc import tokens
from windlass.policy import ROLES

Code = grpc.StatusCode
TENANT = methods_for(auth_pb2.AUDIENCE_TENANT)
# Trainers serve theirs in processes of their own, by a token that no service has: its refusals are
# in tests/contract/tuning.
INTERNAL = {
    name: rule
    for name, rule in methods_for(auth_pb2.AUDIENCE_INTERNAL).items()
    if not name.startswith("/windlass.api.trainer.")
}
SOME_SERVICES = methods_for(auth_pb2.AUDIENCE_GATEWAY, auth_pb2.AUDIENCE_CONNECTING)
AGENT = methods_for(auth_pb2.AUDIENCE_AGENT)
RUNNER = methods_for(auth_pb2.AUDIENCE_RUNNER)
# What each role may not do, said here once more so that a slip in the policy shows.
READER_MAY = {
    "self.read",
    "organizations.read",
    "projects.read",
    "members.read",
    "clusters.read",
    "all_projects.read",
    "elevations.read",
    "elevations.write",
}
ADMINISTRATION = {
    "projects.write", "members.write", "secrets.write", "audit.read", "platform.read",
    "platform.write", "clusters.write", "directory.read", "directory.write",
}  # fmt: skip


def test_the_policy_is_what_was_decided() -> None:
    assert ROLES["organization_reader"] == READER_MAY
    assert not ROLES["project_member"] & ADMINISTRATION
    assert not ROLES["project_owner"] & (ADMINISTRATION - {"members.write", "secrets.write"})
    assert not ROLES["organization_owner"] & {
        "platform.read", "platform.write", "clusters.write",
    }  # fmt: skip
    for permission in ("platform.read", "platform.write"):
        platform = [role for role, granted in ROLES.items() if permission in granted]
        assert platform == ["platform_admin"]
    operators = [role for role, granted in ROLES.items() if "clusters.write" in granted]
    assert operators == ["platform_admin", "cluster_operator"]
    assert ROLES["cluster_operator"] == READER_MAY | {"clusters.write"}
    assert ROLES["organization_auditor"] == READER_MAY | {"audit.read", "usage.read"}
    assert ROLES["organization_billing"] == READER_MAY - {"members.read", "clusters.read"} | {
        "usage.read",
    }  # fmt: skip
    assert {"secrets.read", "sessions.read", "inference.invoke"}.isdisjoint(ROLES["project_viewer"])


@pytest.mark.parametrize("method", TENANT, ids=short)
def test_a_role_may_call_what_it_grants_alone(wire: Wire, tenants: Tenants, method: str) -> None:
    permission = TENANT[method].permission
    assert {caller.role for caller in tenants.roles} == set(ROLES)
    for caller in tenants.roles:
        if permission in ROLES[caller.role]:
            continue
        said = wire.refusal(method, None, wire.credentials(caller))
        assert said is not None, (caller.role, method)
        assert said[:2] == (Code.PERMISSION_DENIED, "insufficient_permissions")
        assert permission in said[2]


@pytest.mark.parametrize("method", TENANT, ids=short)
def test_a_tenants_rpc_wants_a_principal(wire: Wire, method: str) -> None:
    for metadata in ((), (("windlass-service", wire.service.sign_service()),)):
        said = wire.refusal(method, None, metadata)
        assert said is not None
        assert said[:2] == (Code.UNAUTHENTICATED, "missing_token")


@pytest.mark.parametrize("method", INTERNAL, ids=short)
def test_a_services_rpc_is_for_services(wire: Wire, tenants: Tenants, method: str) -> None:
    principal = wire.credentials(tenants.admin)[0][1]
    for metadata in (
        (),
        (("windlass-principal", principal),),
        (("windlass-service", principal),),
        (("windlass-service", tenants.admin.key),),
        (("authorization", f"Bearer {tenants.admin.key}"),),
    ):
        said = wire.refusal(method, None, metadata)
        assert said is not None
        assert said[0] is Code.UNAUTHENTICATED, said


@pytest.mark.parametrize("method", SOME_SERVICES, ids=short)
def test_what_is_of_some_services_is_not_of_the_others(wire: Wire, method: str) -> None:
    for metadata, reason in (
        ((), "missing_token"),
        ((("windlass-service", wire.service.sign_service()),), "invalid_token"),
    ):
        said = wire.refusal(method, None, metadata)
        assert said is not None
        assert said[:2] == (Code.UNAUTHENTICATED, reason)


@pytest.mark.parametrize("method", AGENT, ids=short)
def test_an_agents_rpc_is_for_agents(wire: Wire, tenants: Tenants, method: str) -> None:
    service = wire.service.sign_service()
    for metadata in (
        (),
        wire.credentials(tenants.admin),
        (("windlass-service", service),),
        (("authorization", f"Bearer {service}"),),
        (("authorization", f"Bearer {tenants.admin.key}"),),
        (("authorization", "Bearer wla-nobodys"),),
        (("authorization", "Basic eDp5"),),
    ):
        said = wire.refusal(method, None, metadata)
        assert said is not None
        assert said[0] is Code.UNAUTHENTICATED, said


@pytest.mark.parametrize("method", RUNNER, ids=short)
def test_a_runners_rpc_is_not_served_here(wire: Wire, tenants: Tenants, method: str) -> None:
    said = wire.refusal(method, None, wire.credentials(tenants.admin))
    assert said is not None
    assert said[0] is Code.UNIMPLEMENTED


def test_enrolment_wants_a_key_that_was_given_out(wire: Wire) -> None:
    method = "/windlass.api.clusters.v1.ClustersAgentService/Enroll"
    for key in ("", "wlr-nobodys", "x" * 100_000):
        said = wire.refusal(method, clusters_pb2.EnrollRequest(registration_key=key), ())
        assert said is not None
        assert said[0] in (Code.UNAUTHENTICATED, Code.INVALID_ARGUMENT), said


@pytest.fixture
def forgeries(wire: Wire, tenants: Tenants, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Tokens that look like a principal's."""
    principal = wire.principal(tenants.admin)
    good = wire.gateway.sign_principal(principal)
    head, body, signature = good.split(".")
    claims = {"aud": "principal", "org": "x", "project": "", "user": "", "key": "",
              "roles": [], "permissions": ["files.read"], "exp": 2**33}  # fmt: skip
    stranger = OKPKey.generate_key("Ed25519", auto_kid=True)
    ours = json.loads(_decoded(head))["kid"]
    forged = jwt.encode({"alg": "Ed25519", "kid": ours}, claims, stranger, algorithms=["Ed25519"])
    unknown = jwt.encode(
        {"alg": "Ed25519", "kid": stranger.kid}, claims, stranger, algorithms=["Ed25519"]
    )
    none = f"{_encoded({'alg': 'none', 'kid': ours})}.{body}."
    monkeypatch.setattr(tokens, "TOKEN_SECONDS", -1)
    wire.gateway._signed.clear()
    expired = wire.gateway.sign_principal(principal)
    wire.gateway._signed.clear()
    return {
        "another's signature": forged,
        "an unknown key": unknown,
        "no algorithm": none,
        "no signature": f"{head}.{body}.",
        "half a signature": f"{head}.{body}.{signature[:20]}",
        "another body": f"{head}.{_encoded(claims)}.{signature}",
        "expired": expired,
        "signed by a service": wire.service.sign_principal(principal),
        "a service's own": wire.service.sign_service(),
        "an API key": tenants.admin.key,
        "nonsense": "a.b.c",
        "long nonsense": "x" * 4000,
    }


def _encoded(value: object) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")


def _decoded(part: str) -> bytes:
    return urlsafe_b64decode(part + "=" * (-len(part) % 4))


def test_a_principal_is_signed_by_a_gateway_and_fresh(
    wire: Wire, tenants: Tenants, forgeries: dict[str, str]
) -> None:
    method = "/windlass.api.users.v1.UsersService/WhoAmI"
    for name, token in forgeries.items():
        metadata: Metadata = (("windlass-principal", token),)
        said = wire.refusal(method, None, metadata)
        assert said is not None, name
        assert said[:2] == (Code.UNAUTHENTICATED, "invalid_token"), name


def test_a_good_principal_is_heard(wire: Wire, tenants: Tenants) -> None:
    method = "/windlass.api.users.v1.UsersService/WhoAmI"
    (answer,) = wire.call(method, None, wire.credentials(tenants.member))
    assert answer.principal.key_id == tenants.member.key_id


def test_the_sockets_are_their_owners(wire: Wire, tenants: Tenants) -> None:
    folder = runtime_dir(tenants.admin.windlass.data)
    assert folder.stat().st_mode & 0o777 == 0o700
    sockets = [path for path in folder.rglob("*") if path.is_socket()]
    # One process per target speaks over TLS instead.
    assert sockets or "all" not in tenants.admin.windlass.configs
    assert {path.stat().st_mode & 0o777 for path in sockets} <= {0o600}
