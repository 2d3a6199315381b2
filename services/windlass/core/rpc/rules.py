"""The authorization rule of every RPC, read from the descriptors."""

from functools import lru_cache

from google.protobuf import descriptor_pool
from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import Message

from windlass.api.auth.v1 import auth_pb2 as pb

_NO_CHANGES = frozenset({"read", "invoke"})


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
    """Returns True if an RPC under this rule changes something, by its permission's verb.

    What is invoked is work, of which there is too much for an audit log.
    """
    verb = rule.permission.rpartition(".")[2]
    return rule.audience == pb.AUDIENCE_TENANT and verb not in _NO_CHANGES


def asks_fresh_sign_in(rule: pb.Rule, request: Message) -> bool:
    """Returns True for a dangerous step: by its rule, or by what a change gives."""
    return rule.fresh_sign_in or (is_change(rule) and _gives_power(request))


def _gives_power(message: Message) -> bool:
    """Returns True if a value or a field that is declared so is anywhere in a message."""
    for field, value in message.ListFields():
        if field.GetOptions().Extensions[pb.set_asks_fresh_sign_in]:
            return True
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            value_field = field.message_type.fields_by_name["value"]
            field, values = value_field, list(value.values())
        else:
            values = list(value) if field.is_repeated else [value]
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            if any(map(_gives_power, values)):
                return True
        elif field.enum_type is not None and any(
            _is_power(field.enum_type, number) for number in values
        ):
            return True
    return False


def _is_power(kind: EnumDescriptor, number: int) -> bool:
    # What a later release names is not known here, and is refused elsewhere.
    value = kind.values_by_number.get(number)
    return value is not None and bool(value.GetOptions().Extensions[pb.asks_fresh_sign_in])


def is_read(method: str) -> bool:
    """Returns True if `package.Service/Method` is an RPC by which tenants read."""
    rule = rule_of(method)
    return rule is not None and rule.audience == pb.AUDIENCE_TENANT and not is_change(rule)
