"""A file of devices and workloads, for the simulator."""

from typing import Annotated, Any

import msgspec

from windlass.tuning_api.seating.admission import Demand, Lease

Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$")]
Bytes = Annotated[int, msgspec.Meta(ge=0, le=2**60)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e7)]
Weight = Annotated[float, msgspec.Meta(gt=0, le=1e6)]


class BadScenario(ValueError):
    """A file that is no scenario; the message names the field."""


class _ScenarioPart(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    pass


class SimulatedDevice(_ScenarioPart, frozen=True):
    """A device, and the memory of its host."""

    name: Name
    device_bytes: Bytes
    host_bytes: Bytes
    max_residents: Annotated[int, msgspec.Meta(ge=1, le=256)] = 32


class SimulatedWorkload(_ScenarioPart, frozen=True):
    """A run that asks for one operation after the other."""

    name: Name
    device_bytes: Bytes
    host_bytes: Bytes
    operations: Annotated[int, msgspec.Meta(ge=1, le=20_000)]
    operation_seconds: Annotated[float, msgspec.Meta(gt=0, le=1e6)]
    # What its client does between two of them.
    rest_seconds: Seconds = 0.0
    arrives: Seconds = 0.0
    # To read its model; to leave the device, and to come back.
    load_seconds: Seconds = 0.0
    park_seconds: Seconds = 0.0
    restore_seconds: Seconds = 0.0
    residue_bytes: Bytes = 0
    project: Name = "default"

    @property
    def demand(self) -> Demand:
        """Bytes that it takes."""
        return Demand(self.device_bytes, self.host_bytes, self.residue_bytes)


class Turns(_ScenarioPart, frozen=True):
    """Rules by which turns are taken."""

    turn_seconds: Seconds = 10.0
    rest_seconds: Seconds = 0.2
    weights: dict[Name, Weight] = {}


class Scenario(_ScenarioPart, frozen=True):
    """Everything that a simulation begins with."""

    devices: Annotated[list[SimulatedDevice], msgspec.Meta(min_length=1, max_length=64)]
    workloads: Annotated[list[SimulatedWorkload], msgspec.Meta(min_length=1, max_length=64)]
    turns: Turns = Turns()

    @property
    def leases(self) -> list[Lease]:
        """The devices as the ledger has them."""
        return [
            Lease(one.name, one.name, one.device_bytes, one.host_bytes, one.max_residents)
            for one in self.devices
        ]


def read_scenario(document: Any) -> Scenario:
    """The scenario of a document; raises BadScenario."""
    try:
        found = msgspec.convert(document, Scenario)
    except msgspec.ValidationError as error:
        raise BadScenario(str(error)) from error
    for kind, names in (
        ("devices", [one.name for one in found.devices]),
        ("workloads", [one.name for one in found.workloads]),
    ):
        if len(set(names)) < len(names):
            raise BadScenario(f"Names must differ - at `$.{kind}`")
    return found
