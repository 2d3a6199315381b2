"""User ids of workloads: each has its own for as long as it lives, however many there are."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from windlass.confinement import accounts

COUNT = 64


@pytest.fixture(autouse=True)
def few_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container of 65,536 ids, of which as few as can be counted are set aside."""
    (tmp_path / "uid_map").write_text("0 100000 65536\n")
    monkeypatch.setattr(accounts, "_MAP", tmp_path / "uid_map")
    monkeypatch.setattr(accounts, "_COUNT_SMALL", COUNT)
    monkeypatch.setattr(accounts, "_HELD", tmp_path / "run" / "ids")


def test_no_two_have_one_id() -> None:
    names = [f"ftjob-{number}-1" for number in range(COUNT)]
    with ThreadPoolExecutor(8) as threads:
        given = list(threads.map(accounts.workload_id, names))
    assert len(set(given)) == COUNT
    assert all(61_184 <= one < 61_184 + COUNT for one in given)
    assert [accounts.workload_id(name) for name in names] == given, "in another call, or process"


def test_one_that_has_ended_leaves_its_id_to_another() -> None:
    given = {name: accounts.workload_id(name) for name in map(str, range(COUNT))}
    with pytest.raises(OSError, match="All 64 user ids of workloads are in use"):
        accounts.workload_id("one more")
    accounts.release("7")
    accounts.release("7")
    assert accounts.workload_id("one more") == given["7"]


def test_a_machine_with_all_ids_gives_large_ones(tmp_path: Path) -> None:
    (tmp_path / "uid_map").write_text("0 0 4294967295\n")
    assert 2_000_000_000 <= accounts.workload_id("ftjob-1-1") < 2_000_000_000 + 2**20
