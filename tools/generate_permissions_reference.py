"""Writes docs/reference/permissions.md from the policy and the rules of the contract."""

import importlib
from collections.abc import Iterator
from pathlib import Path

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import Descriptor, MethodDescriptor

from windlass.api.auth.v1 import auth_pb2
from windlass.core.rpc.rules import is_change, rule_of
from windlass.policy import PERMISSIONS, ROLES

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs" / "reference" / "permissions.md"
HEAD = """# Roles and permissions

Made by `tools/generate_permissions_reference.py` from `services/windlass/policy.py` and the rules
in `proto/`; a test keeps it true.

A key has a role, a role grants permissions, and each RPC asks for one. A caller reaches its own
organization alone, unless it has `platform.write`; without `all_projects.read` its own project
alone. It may give and take the roles that grant no more than its own.

"""
RPCS = """
## RPCs

Who may call each: a tenant with the permission, an enrolled agent, a runner of the agent's own, a
process that serves the gateway, one that serves the gateway or the tuning service (connecting),
another service (internal), or anyone (anonymous).

Two permissions are asked for elsewhere: `inference.invoke` by the gateway, before it forwards to an
engine, and `sessions.write` by the endpoint for `kubectl`, for requests that change something.

A dangerous step wants a fresh sign-in of a session, always or where the request has one of the
named values or sets one of the fields: its person has shown who they are within
`sign_in.fresh_seconds`, or the time that their organization sets. Keys and workloads have nobody
who could be asked.

"""


def reference() -> str:
    """The whole page."""
    rows = [
        f"| `{permission}` |" + "".join(_mark(permission in ROLES[role]) for role in ROLES)
        for permission in sorted(PERMISSIONS)
    ]
    head = "| permission | " + " | ".join(f"`{role}`" for role in ROLES) + " |"
    grants = "\n".join([head, "|---|" + "---|" * len(ROLES), *rows])
    columns = "| RPC | audience | permission | read audited | fresh sign-in |"
    rpcs = "\n".join([columns, "|---|---|---|---|---|", *sorted(_rpcs())])
    return f"{HEAD}## Roles\n\n{grants}\n{RPCS}{rpcs}\n"


def _mark(granted: bool) -> str:
    return " ✓ |" if granted else "  |"


def _rpcs() -> Iterator[str]:
    pool = descriptor_pool.Default()
    for path in sorted((ROOT / "proto").rglob("*.proto")):
        proto = path.relative_to(ROOT / "proto")
        importlib.import_module(str(proto.with_suffix("")).replace("/", ".") + "_pb2")
        for service in pool.FindFileByName(str(proto)).services_by_name.values():
            for method in service.methods:
                rule = rule_of(f"/{service.full_name}/{method.name}") or auth_pb2.Rule()
                audience = auth_pb2.Audience.Name(rule.audience).removeprefix("AUDIENCE_").lower()
                permission = rule.permission and f"`{rule.permission}`"
                audited = rule.audited_for and f"for `{rule.audited_for}`"
                name = f"`{service.name}.{method.name}`"
                fresh = _fresh(rule, method)
                yield f"| {name} | {audience} | {permission} | {audited} | {fresh} |"


def _fresh(rule: auth_pb2.Rule, method: MethodDescriptor) -> str:
    if rule.fresh_sign_in:
        return "always"
    found = sorted(_power(method.input_type)) if is_change(rule) else []
    return ", ".join(f"`{name}`" for name in found)


def _power(message: Descriptor) -> set[str]:
    """Values and fields that ask for a fresh sign-in, which a message may have in it."""
    found = set[str]()
    for field in message.fields:
        if field.GetOptions().Extensions[auth_pb2.set_asks_fresh_sign_in]:
            found.add(field.name)
        elif field.message_type is not None:
            found |= _power(field.message_type)
        elif field.enum_type is not None:
            found |= {
                value.name.removeprefix("ROLE_").lower()
                for value in field.enum_type.values
                if value.GetOptions().Extensions[auth_pb2.asks_fresh_sign_in]
            }
    return found


if __name__ == "__main__":
    TARGET.write_text(reference())
