"""Questions to a picker about a request, and the only answers that count; pure."""

import hashlib
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

import msgspec

from windlass_agent.executors.kubernetes.engines.replicas import ServingReplica

# Of a list of endpoints: a picker names the best one, and some to fall back on.
MAX_ENDPOINTS = 16
_ENDPOINT_LENGTH = 64
_SALT = "cache_salt"
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
_text = msgspec.json.Decoder(str)

Address = IPv4Address | IPv6Address


class UnreadBody(Exception):
    """A body that no picker is asked about."""


def read_body(body: bytes) -> tuple[str, bytes]:
    """The model that a request is for, and the body that a picker is shown; raises UnreadBody.

    The salt of an organization, which nobody outside is told, is a digest of itself there.
    """
    try:
        fields = _fields.decode(body)
        model = _text.decode(fields["model"])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError) as error:
        raise UnreadBody(str(error)) from error
    if (salt := fields.get(_SALT)) is None:
        return model, body
    fields[_SALT] = msgspec.Raw(msgspec.json.encode(hashlib.sha256(bytes(salt)).hexdigest()))
    return model, msgspec.json.encode(fields)


def able(replicas: Sequence[ServingReplica], model: str) -> dict[Address, ServingReplica]:
    """Replicas that may answer for the first, by the addresses of their pods.

    All of them for the model that they keep; for an adapter those that have the version of it that
    the first has. Empty where the first has no such adapter.
    """
    own = replicas[0]
    version = own.adapters.get(model)
    if model != own.model and version is None:
        return {}
    fit = [one for one in replicas if model == own.model or one.adapters.get(model) == version]
    return {ip_address(one.address): one for one in fit}


def named(endpoints: str, able: Mapping[Address, ServingReplica]) -> ServingReplica | None:
    """The first of a picker's endpoints (`host:port`, by commas) that may answer; None without one.

    The port is the pool's, where nobody connects to: a pod is known by its address.
    """
    for endpoint in endpoints.split(",", MAX_ENDPOINTS)[:MAX_ENDPOINTS]:
        host, _, port = endpoint.strip()[:_ENDPOINT_LENGTH].rpartition(":")
        try:
            replica = able.get(ip_address(host.strip("[]")))
        except ValueError:
            continue
        if replica is not None and port.isdecimal():
            return replica
    return None


def hint(able: Mapping[Address, ServingReplica], port: int) -> dict[str, Any]:
    """The replicas that may answer, as the protocol tells a picker its candidates."""
    return {"x-gateway-destination-endpoint-subset": [f"{one}:{port}" for one in able]}
