"""The authorization rule of every RPC, read from the descriptors."""

from functools import lru_cache

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import MethodDescriptor

from windlass.api.auth.v1 import auth_pb2 as pb


def split(method: str) -> tuple[str, str]:
    """`/package.Service/Method` as its two names."""
    service, _, name = method.lstrip("/").partition("/")
    return service, name


@lru_cache(maxsize=1024)
def rule_of(method: str) -> pb.Rule | None:
    """The rule of a full method name; None when it has none, which means refuse."""
    service, name = split(method)
    try:
        found = descriptor_pool.Default().FindServiceByName(service)
    except KeyError:
        return None
    descriptor: MethodDescriptor | None = found.methods_by_name.get(name)
    if descriptor is None or not descriptor.GetOptions().HasExtension(pb.rule):
        return None
    rule: pb.Rule = descriptor.GetOptions().Extensions[pb.rule]
    return rule


def is_change(rule: pb.Rule) -> bool:
    """Returns True if an RPC under this rule changes something, by its permission's verb."""
    return rule.audience == pb.AUDIENCE_TENANT and not rule.permission.endswith(".read")


def is_read(method: str) -> bool:
    """Returns True if `package.Service/Method` is an RPC by which tenants read."""
    rule = rule_of(method)
    return rule is not None and rule.audience == pb.AUDIENCE_TENANT and not is_change(rule)
