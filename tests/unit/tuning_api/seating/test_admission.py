"""Admission: what fits, why something waits, and that no device is ever over its bytes."""

from hypothesis import given
from hypothesis import strategies as st

from windlass.tuning_api.seating.admission import (
    Demand,
    Lease,
    Resident,
    admit,
    device_bytes_needed,
    never_fits,
    size,
)

GIB = 2**30
NODE = Lease("l", "gpu-0", 80 * GIB, 44 * GIB, 8)
TRAINER = Demand(16 * GIB, 16 * GIB)

demands = st.builds(
    Demand, st.integers(1, 60), st.integers(0, 60), residue_bytes=st.just(0)
) | st.builds(lambda n, h: Demand(n, h, n // 4), st.integers(4, 60), st.integers(0, 60))


def test_two_trainers_fit_a_node_and_the_third_waits_with_the_numbers() -> None:
    residents: list[Resident] = []
    for _ in range(2):
        lease, why = admit([NODE], residents, TRAINER, takes_turns=True)
        assert (lease, why) == (NODE, "")
        residents.append(Resident(NODE.id, TRAINER))
    lease, why = admit([NODE], residents, TRAINER, takes_turns=True)
    assert lease is None
    assert why == (
        "The host of gpu-0 has 44 GiB of memory for residents, of which 32 GiB are taken: "
        "16 GiB for this one do not fit."
    )


def test_who_takes_turns_needs_the_device_alone() -> None:
    half = Demand(50 * GIB, GIB)
    there = [Resident(NODE.id, half)]
    assert admit([NODE], there, half, takes_turns=True)[0] == NODE
    lease, why = admit([NODE], there, half, takes_turns=False)
    assert lease is None
    assert why == (
        "gpu-0 has 80 GiB, and 100 GiB would be needed: 50 GiB for this one beside 1 resident."
    )
    # What stays of those that are parked counts too.
    sticky = Demand(50 * GIB, GIB, residue_bytes=31 * GIB)
    there = [Resident(NODE.id, sticky)]
    assert admit([NODE], there, sticky, takes_turns=True)[0] is None


def test_the_fullest_device_that_has_room_is_taken() -> None:
    other = Lease("m", "gpu-1", 80 * GIB, 200 * GIB, 8)
    node = Lease("l", "gpu-0", 80 * GIB, 200 * GIB, 1)
    assert admit([node, other], [], TRAINER, takes_turns=False)[0] == node
    there = [Resident("m", TRAINER)]
    assert admit([node, other], there, TRAINER, takes_turns=False)[0] == other
    there.append(Resident("l", TRAINER))
    full = Demand(70 * GIB, GIB)
    lease, why = admit([node, other], there, full, takes_turns=False)
    assert lease is None
    assert why.startswith("gpu-0 has 1 resident of at most 1. gpu-1 has 80 GiB, and 86 GiB")


def test_what_never_fits_is_known_beforehand() -> None:
    assert never_fits([NODE], TRAINER) == ""
    assert "gpu-0 has 80 GiB, and 81 GiB" in never_fits([NODE], Demand(81 * GIB, 0))
    assert "44 GiB" in never_fits([NODE], Demand(1, 45 * GIB))
    assert never_fits([], TRAINER) == "No device is known to the tuning service."


def test_sizes_read_well() -> None:
    assert [size(one) for one in (12, 3 * 2**20, 3 * GIB // 2)] == ["12 bytes", "3 MiB", "1.5 GiB"]


@given(st.lists(demands, max_size=12), st.booleans(), st.integers(1, 4))
def test_no_device_is_ever_over_its_bytes(wishes: list[Demand], turns: bool, most: int) -> None:
    there = [Lease("l", "a", 64, 100, most), Lease("m", "b", 32, 100, most)]
    residents: list[Resident] = []
    for wish in wishes:
        lease, why = admit(there, residents, wish, takes_turns=turns)
        assert (lease is None) == bool(why)
        if lease is not None:
            residents.append(Resident(lease.id, wish))
    assert sum(one.demand.host_bytes for one in residents) <= 100
    for lease in there:
        own = [one.demand for one in residents if one.lease_id == lease.id]
        assert len(own) <= most
        assert device_bytes_needed(own, takes_turns=turns) <= lease.device_bytes
        # Whoever of them is active, and all others parked.
        for active in own if turns else ():
            parked = sum(one.residue_bytes for one in own) - active.residue_bytes
            assert parked + active.device_bytes <= lease.device_bytes
