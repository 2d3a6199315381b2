"""Pods that host residents: which they are, whom they may speak for, and what they may say."""

import asyncio
from dataclasses import replace
from typing import Any

import grpc
import pytest
from cryptography import x509
from tests.unit.agent.kubernetes import test_residents
from tests.unit.agent.kubernetes.render.test_trainer_pods import trainer
from tests.unit.agent.kubernetes.test_residents import (
    HOST,
    MADE,
    SERVES,
    Stage,
    report,
    state,
    worker,
)
from tests.unit.agent.kubernetes.test_tracked_engine import POD

from windlass.api.keeper.v1 import keeper_pb2
from windlass.kubernetes.names import engine_name
from windlass.tunnel.authority import Authority
from windlass_agent.executors.kubernetes.engines.hosts import Hosts, bounded
from windlass_agent.executors.kubernetes.engines.keepers import KeeperServicer
from windlass_agent.executors.kubernetes.observe.snapshot import Key
from windlass_agent.keeper.identity import DoorIdentity

stage = test_residents.stage


class Context:
    """A call with the token of a pod, which notes why it was refused."""

    code: Any = None

    def invocation_metadata(self) -> list[tuple[str, str]]:
        return [("authorization", "Bearer t")]

    async def abort(self, code: Any, said: str, metadata: Any = ()) -> None:
        self.code = code
        raise grpc.aio.AbortError(said)


class Tokens:
    """Stands for the cluster's review of tokens."""

    def __init__(self, pod: Any):
        self.pod = pod

    async def find(self, token: str) -> Any:
        return self.pod


def servicer(stage: Stage, pod: Any, authority: Authority) -> KeeperServicer:
    return KeeperServicer(
        Tokens(pod), stage.keepers, authority, stage.driver.ordered,
        hosted=stage.driver, hosts=stage.hosts,
    )  # fmt: skip


async def said(*reports: Any) -> Any:
    for one in reports:
        yield one
    await asyncio.Event().wait()


@pytest.mark.parametrize("resident", ["", "lease-1", "eng-2", "../x", "theirs"])
async def test_a_keeper_of_a_host_is_one_of_its_residents_or_nobody(
    stage: Stage, resident: str
) -> None:
    await stage.hosting()
    await stage.driver.apply(worker("eng-1"))
    await stage.driver.apply(trainer("main"))
    await stage.look()
    context: Any = Context()
    calls = servicer(stage, HOST, Authority.make())
    first = keeper_pb2.KeeperReport(resident_id=resident, state=SERVES)
    with pytest.raises(grpc.aio.AbortError):
        await anext(calls.Keep(said(first), context))
    assert context.code is grpc.StatusCode.PERMISSION_DENIED


async def test_the_door_of_a_resident_has_a_certificate_of_its_workload(
    stage: Stage, tmp_path: Any
) -> None:
    await stage.hosting()
    await stage.driver.apply(worker())
    await stage.look()
    authority = Authority.make()
    (tmp_path / "ca").write_bytes(authority.certificate)
    identity = DoorIdentity(tmp_path / "keeper", tmp_path / "ca")
    first = keeper_pb2.KeeperReport(resident_id="eng-1", certificate_request=identity.request())
    context: Any = Context()
    orders = servicer(stage, HOST, authority).Keep(said(first), context)
    certificate = (await anext(orders)).certificate
    assert engine_name("eng-1").encode() in _text(certificate)
    assert (await anext(orders)).engine.trainer.lease_id == "lease-1"
    await orders.aclose()  # type: ignore[attr-defined]  # a generator
    # A pod of an engine of its own is no resident of another's.
    alone = replace(POD, uid="u-other", key=Key("eng-7", 0))
    with pytest.raises(grpc.aio.AbortError):
        await anext(servicer(stage, alone, authority).Keep(said(first), context))


def _text(certificate: bytes) -> bytes:
    found = x509.load_pem_x509_certificate(certificate)
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return " ".join(names.get_values_for_type(x509.DNSName)).encode()


async def test_only_the_pod_of_a_counted_lease_hosts(stage: Stage) -> None:
    await stage.driver.apply(MADE)
    await stage.look()
    context: Any = Context()
    for pod in (POD, replace(HOST, uid="u-other"), replace(HOST, key=Key("lease-2", 0))):
        with pytest.raises(grpc.aio.AbortError):
            await anext(servicer(stage, pod, Authority.make()).Host(said(report()), context))
        assert context.code is grpc.StatusCode.PERMISSION_DENIED
    orders = servicer(stage, HOST, Authority.make()).Host(said(report()), context)
    assert (await anext(orders)).number == 1
    await orders.aclose()  # type: ignore[attr-defined]  # a generator


async def test_the_second_call_of_a_host_ends_the_first() -> None:
    hosts = Hosts(lambda: None, lambda _: None)
    first = hosts.begin("u", report())
    second = hosts.begin("u", report())
    assert first.superseded
    assert hosts.order(first) is None
    hosts.say(first, report(state("eng-1")))
    assert not hosts.find("u").states  # type: ignore[union-attr]  # it has called
    assert hosts.order(second) is not None


async def test_a_host_that_lost_its_processes_starts_those_that_are_wanted() -> None:
    hosts = Hosts(lambda: None, lambda _: None)
    call = hosts.begin("u", report())
    hosts.want("u", keeper_pb2.Resident(workload_id="a", slot=0, digest="d"))
    hosts.want("u", keeper_pb2.Resident(workload_id="b", slot=1, digest="d"))
    hosts.sent(call, hosts.order(call) or keeper_pb2.HostOrder())
    hosts.say(call, report(state("a"), state("b", 1), order=1))
    hosts.end("u", "b")
    call = hosts.begin("u", report())
    pod = hosts.find("u")
    assert pod is not None
    assert (pod.losses, pod.leaving) == ({"a": 1}, {})
    order = hosts.order(call)
    assert order is not None
    assert [one.workload_id for one in order.residents] == ["a"]


def test_what_a_pod_says_of_its_residents_is_bounded() -> None:
    end = keeper_pb2.ResidentEnd(code=1, last_lines="x" * 10**6, exceeded="all")
    kept = bounded(
        report(
            state("a", end=end, digest="d" * 1000), state("a", 1), state("b", 0), state("c", 64),
            state("d", -1), state("../e", 2), *(state(f"f{one}", one) for one in range(1, 64)),
        )
    )  # fmt: skip
    assert "a" in kept
    assert not {"b", "c", "d", "../e"} & kept.keys()
    assert len(kept) <= 64
    assert sum(one.ByteSize() for one in kept.values()) < 32 * 1024
    assert not kept["a"].end.exceeded
