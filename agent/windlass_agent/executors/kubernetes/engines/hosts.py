"""Pods that host residents as processes: what they say of these, and what they are ordered.

A pod may say anything of itself. What it says concerns workloads of its own lease alone, which
`residents` sees to.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from windlass.api.keeper.v1 import keeper_pb2 as pb
from windlass.core import telemetry
from windlass.core.ids import is_identifier
from windlass_agent.keeper.host.order import MAX_RESIDENTS

_DIGEST, _LINES = 64, 8192
_EXCEEDED = ("memory", "disk")

log = telemetry.logger("hosts")


@dataclass(frozen=True, slots=True)
class LeavingResident:
    """A resident that is to end: since which order of the present call it is not in those."""

    slot: int
    number: int


@dataclass(eq=False)
class HostCall:
    """A call of a pod's launcher."""

    pod_uid: str
    # Set when an order may differ from what was told, and at the end.
    news: asyncio.Event = field(default_factory=asyncio.Event)
    # Another call of the same pod has come.
    superseded: bool = False
    # Of the orders that were told.
    number: int = 0
    sent: frozenset[str] = frozenset()


@dataclass(eq=False)
class HostedPod:
    """Residents that one pod has, and that it should have; times are monotonic seconds."""

    call: HostCall
    # Since when this life of the agent hears it.
    since: float
    states: dict[str, pb.ResidentState] = field(default_factory=dict)
    wanted: dict[str, pb.Resident] = field(default_factory=dict)
    leaving: dict[str, LeavingResident] = field(default_factory=dict)
    # How often it lost a resident that ran, as it does with its container.
    losses: dict[str, int] = field(default_factory=dict)
    # Residents whose end the log has told.
    ended: set[str] = field(default_factory=set)
    # Residents of which nobody has told this life of the agent: they may be about to end.
    unknown: frozenset[str] = frozenset()

    @property
    def kept(self) -> list[str]:
        """Residents that stay as they are: an earlier life of the agent has ordered them."""
        return [one for one in self.states if one not in self.wanted and one not in self.leaving]

    def has(self, workload_id: str) -> bool:
        """Returns True if it has a resident, should have it, or may have it still."""
        return any(workload_id in one for one in (self.states, self.wanted, self.leaving))

    def slot(self, workload_id: str) -> int:
        """The slot of a resident that it has."""
        if (wanted := self.wanted.get(workload_id)) is not None:
            return wanted.slot
        if (state := self.states.get(workload_id)) is not None:
            return state.slot
        return self.leaving[workload_id].slot

    def free_slot(self) -> int | None:
        """The first slot that nobody has; None where all are taken."""
        rows: tuple[Iterable[pb.Resident | pb.ResidentState | LeavingResident], ...] = (
            self.wanted.values(), self.states.values(), self.leaving.values(),
        )  # fmt: skip
        taken = {one.slot for row in rows for one in row}
        return next((one for one in range(MAX_RESIDENTS) if one not in taken), None)


class Hosts:
    """The pods that call, by their uid. `changed` is called when one says something else.

    `left` is called with the name of a resident's words once a pod has it no more.
    """

    def __init__(self, changed: Callable[[], None], left: Callable[[str], None]):
        self._changed = changed
        self._left = left
        self._pods: dict[str, HostedPod] = {}

    def find(self, pod_uid: str) -> HostedPod | None:
        """A pod that has called; None of any other."""
        return self._pods.get(pod_uid)

    def keep(self, uids: Collection[str]) -> None:
        """Forgets the pods but these, with all that they had."""
        for uid in self._pods.keys() - set(uids):
            gone = self._pods.pop(uid)
            gone.call.superseded = True
            gone.call.news.set()

    def begin(self, pod_uid: str, report: pb.HostReport) -> HostCall:
        """Notes a call, which supersedes an older one of the pod."""
        call = HostCall(pod_uid)
        pod = self._pods.get(pod_uid)
        if pod is None:
            pod = self._pods[pod_uid] = HostedPod(call, asyncio.get_running_loop().time())
        else:
            pod.call.superseded = True
            pod.call.news.set()
            pod.call = call
        states = bounded(report)
        for lost in pod.wanted.keys() & pod.states.keys() - states.keys():
            pod.losses[lost] = pod.losses.get(lost, 0) + 1
        # What it has not said that it has, no earlier order can bring.
        pod.leaving = {
            name: LeavingResident(one.slot, 1)
            for name, one in pod.leaving.items()
            if name in states
        }
        self._take(pod, states)
        # The next look says of whom it was told.
        pod.unknown = frozenset(pod.kept)
        self._changed()
        return call

    def say(self, call: HostCall, report: pb.HostReport) -> None:
        """Notes what a pod says it has."""
        pod = self._pods.get(call.pod_uid)
        if pod is None or pod.call is not call:
            return
        self._take(pod, bounded(report))
        pod.leaving = {
            name: one
            for name, one in pod.leaving.items()
            if name in pod.states or report.order < one.number
        }
        # Another may have its slot now.
        call.news.set()
        self._changed()

    def _take(self, pod: HostedPod, states: dict[str, pb.ResidentState]) -> None:
        _tell_ends(pod, states)
        for name in pod.states.keys() - states.keys():
            self._left(resident_uid(pod.call.pod_uid, name))
        pod.states = states

    def want(self, pod_uid: str, resident: pb.Resident) -> None:
        """Has a pod start a resident; one that it has already goes on."""
        pod = self._pods[pod_uid]
        pod.wanted[resident.workload_id] = resident
        pod.leaving.pop(resident.workload_id, None)
        pod.ended.discard(resident.workload_id)
        pod.call.news.set()

    def end(self, pod_uid: str, workload_id: str) -> None:
        """Has a pod end a resident, if it has it."""
        pod = self._pods.get(pod_uid)
        if pod is None or not pod.has(workload_id) or workload_id in pod.leaving:
            return
        slot = pod.slot(workload_id)
        pod.wanted.pop(workload_id, None)
        pod.losses.pop(workload_id, None)
        pod.ended.discard(workload_id)
        if workload_id in pod.states or workload_id in pod.call.sent:
            pod.leaving[workload_id] = LeavingResident(slot, pod.call.number + 1)
        pod.call.news.set()
        self._changed()

    def order(self, call: HostCall) -> pb.HostOrder | None:
        """The order of a call, None while nothing of it is new."""
        pod = self._pods.get(call.pod_uid)
        if pod is None or pod.call is not call:
            return None
        # Nobody begins beside a process that may have to leave the devices first.
        ready = [one for name, one in pod.wanted.items() if name in pod.states or not pod.unknown]
        return pb.HostOrder(residents=ready, kept=pod.kept)

    def sent(self, call: HostCall, order: pb.HostOrder) -> pb.HostOrder:
        """Notes that an order is told, and returns it with its number."""
        call.number += 1
        call.sent = frozenset(one.workload_id for one in order.residents)
        return pb.HostOrder(residents=order.residents, kept=order.kept, number=call.number)


def resident_uid(pod_uid: str, workload_id: str) -> str:
    """The name under which the words of a resident's keeper are kept."""
    return f"{pod_uid}/{workload_id}"


def _tell_ends(pod: HostedPod, states: Mapping[str, pb.ResidentState]) -> None:
    """Has the operator's log tell once what the last words of each were that has ended since.

    A pod may make names up: what nobody has told of or ordered fills no log.
    """
    for name, one in states.items():
        is_known = name in pod.wanted or (name in pod.states and name not in pod.unknown)
        if is_known and one.HasField("end") and name not in pod.ended:
            pod.ended.add(name)
            said = {"exceeded": one.end.exceeded, "last_lines": one.end.last_lines}
            log.warning("resident_ended", workload=name, code=one.end.code, **said)


def bounded(report: pb.HostReport) -> dict[str, pb.ResidentState]:
    """Words of a pod about its residents, cut to what it may have to say: it may be a tenant's."""
    found: dict[str, pb.ResidentState] = {}
    slots = set[int]()
    for said in report.residents[:MAX_RESIDENTS]:
        is_sound = is_identifier(said.workload_id) and 0 <= said.slot < MAX_RESIDENTS
        if not is_sound or said.workload_id in found or said.slot in slots:
            continue
        slots.add(said.slot)
        kept = found[said.workload_id] = pb.ResidentState(
            workload_id=said.workload_id, digest=said.digest[:_DIGEST], slot=said.slot
        )
        if said.HasField("end"):
            exceeded = said.end.exceeded if said.end.exceeded in _EXCEEDED else ""
            lines = said.end.last_lines[-_LINES:]
            kept.end.CopyFrom(
                pb.ResidentEnd(code=said.end.code, last_lines=lines, exceeded=exceeded)
            )
    return found
