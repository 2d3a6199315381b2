"""Calls of any RPC at the process that serves it, by name, with whatever credentials."""

import asyncio
import importlib
import pkgutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import grpc
import yaml
from google.protobuf.descriptor import MethodDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from tests.support.factories.tenants import Caller
from tests.support.processes.front_door import Front
from tests.support.processes.windlass import Windlass
from tests.support.waiting import PATIENCE

from windlass import api
from windlass.api.auth.v1 import auth_pb2
from windlass.core.app import runtime_dir
from windlass.core.db import Database
from windlass.core.rpc.auth import Principal
from windlass.core.rpc.tokens import TokenAuthority

Metadata = tuple[tuple[str, str], ...]
# Of a stream that does not end.
ITEMS = 50


@cache
def every_method() -> dict[str, MethodDescriptor]:
    """Every RPC of the contract by its full name, `/package.Service/Method`."""
    found: dict[str, MethodDescriptor] = {}
    for module in pkgutil.walk_packages(api.__path__, "windlass.api."):
        if not module.name.endswith("_pb2"):
            continue
        services = importlib.import_module(module.name).DESCRIPTOR.services_by_name
        for service in services.values():
            found |= {f"/{service.full_name}/{one.name}": one for one in service.methods}
    return found


def methods_for(*audiences: int) -> dict[str, auth_pb2.Rule]:
    """Returns the RPCs of some audiences, with their rules."""
    rules = {
        name: method.GetOptions().Extensions[auth_pb2.rule]
        for name, method in every_method().items()
    }
    return {name: rule for name, rule in rules.items() if rule.audience in audiences}


def short(method: str) -> str:
    """`FilesService/GetFile`."""
    return method.rpartition(".")[2]


class Wire:
    """The processes of an installation, and a gateway's power to sign principals for them."""

    def __init__(self, front: Front, socket: str = "windlass.sock"):
        self._channels = _channels(front.windlass, socket)
        self.gateway = _authority(front.database_url, "gateway")
        self.service = _authority(front.database_url, "service")
        self._principals: dict[str, Principal] = {}

    def principal(self, caller: Caller) -> Principal:
        """Returns the principal that the gateway finds for the caller."""
        if caller.key not in self._principals:
            with caller.http() as http:
                fields = http.get("/v1/me").json()["principal"]
            texts = {name: fields[name] or "" for name in ("organization_id", "project_id")}
            self._principals[caller.key] = Principal(
                user_id=fields["user_id"] or "",
                key_id=fields["key_id"] or "",
                roles=tuple(fields["roles"]),
                permissions=frozenset(fields["permissions"]),
                **texts,
            )
        return self._principals[caller.key]

    def credentials(self, caller: Caller) -> Metadata:
        """Returns the metadata that the gateway sends on the caller's behalf."""
        return (("windlass-principal", self.gateway.sign_principal(self.principal(caller))),)

    def call(self, method: str, request: Message | None, metadata: Metadata) -> list[Any]:
        """Returns the messages of the RPC's response; raises grpc.RpcError."""
        descriptor = every_method()[method]
        data = b"" if request is None else request.SerializeToString()
        decode = GetMessageClass(descriptor.output_type).FromString
        if not descriptor.server_streaming:
            unary = self._channel(method).unary_unary(method, bytes, decode)
            return [unary(data, metadata=metadata, timeout=PATIENCE)]
        stream = self._channel(method).unary_stream(method, bytes, decode)(
            data, metadata=metadata, timeout=PATIENCE
        )
        found = []
        for item in stream:
            found.append(item)
            if len(found) == ITEMS:
                stream.cancel()
                break
        return found

    def refusal(
        self, method: str, request: Message | None, metadata: Metadata
    ) -> tuple[grpc.StatusCode, str, str] | None:
        """Returns status, reason and message of a refused call; None if it succeeds."""
        try:
            self.call(method, request, metadata)
        except grpc.RpcError as error:
            status: Any = error  # grpc raises a Call, whatever its types say
            pairs = dict(status.trailing_metadata() or ())
            return status.code(), pairs.get("windlass-reason", ""), status.details() or ""
        return None

    def close(self) -> None:
        """Closes the channels."""
        for channel in self._channels.values():
            channel.close()

    def _channel(self, method: str) -> grpc.Channel:
        """Returns the channel to the process that serves the method, or to any if none does."""
        # `/windlass.api.jobs.v1.JobsService/GetJob`
        target = method.split(".")[2]
        return self._channels.get(target) or next(iter(self._channels.values()))


def _channels(windlass: Windlass, name: str) -> dict[str, grpc.Channel]:
    """A channel for each target that has a process of its own; one for all where they share one."""
    if "jobs" not in windlass.configs:
        socket = runtime_dir(windlass.data) / name
        return {"": grpc.insecure_channel(f"unix:{socket}")}
    settings = yaml.safe_load(windlass.configs["jobs"].read_text())
    trusted = grpc.ssl_channel_credentials(Path(settings["grpc"]["peer_ca"]).read_bytes())
    return {
        target: grpc.secure_channel(address.removeprefix("grpcs://"), trusted)
        for target, address in settings["peers"].items()
    }


def _authority(url: str, kind: str) -> TokenAuthority:
    async def make() -> TokenAuthority:
        database = Database(url)
        authority = TokenAuthority(database, kind=kind, name="test")
        await authority.rotate()
        await database.close()
        return authority

    return asyncio.run(make())


def fields_of(messages: Sequence[Message]) -> str:
    """Returns all fields of the responses as text to search in."""
    return "\n".join(map(str, messages))
