"""Analysis of torchrun's error report."""

from pathlib import Path

import pytest

from windlass_agent.runner.supervisor.exit_analysis import of_world

TRACEBACK = 'Traceback (most recent call last):\n  File "entry.py"\nKeyError: "labels"\n'
NOISE = "W1122 07:00:00.1 9 torch/distributed/elastic/multiprocessing/api.py:872] Closing 11\n"
LOST = "RuntimeError: [gloo/transport/tcp/pair.cc:538] Connection closed by peer [10.0.0.7]:123\n"


def report(*deaths: tuple[int, int]) -> str:
    """As torch 2.13 words it, its root cause last."""
    head = "E1122 07:00:00.2 9 torch/distributed/elastic/multiprocessing/api.py:1003] "
    head += (
        f"failed (exitcode: {deaths[-1][1]}) local_rank: {deaths[-1][0]} (pid: 11) of binary: p\n"
    )
    head += "Traceback (most recent call last):\n  File torch/distributed/run.py\n"
    return head + "".join(
        f"[{at}]:\n  time      : 2026-11-22_07:00:00\n  host      : h\n"
        f"  rank      : {rank} (local_rank: {rank})\n  exitcode  : {code} (pid: 11)\n"
        f"  error_file: <N/A>\n"
        for at, (rank, code) in enumerate(deaths)
    )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def test_the_words_of_the_process_are_told_and_not_torchruns(log: Path) -> None:
    log.write_text(NOISE + TRACEBACK + report((1, -15), (0, 1)))
    failure = of_world(1, log, nodes=1, memory_kills=0)
    assert failure.code == "trainer_failed"
    said = 'Process 0 of the trainer ended with code 1: KeyError: "labels".'
    assert failure.message == said, "nor is its traceback"


@pytest.mark.parametrize(("memory_kills", "code"), [(0, "ProcessKilled"), (1, "out_of_memory")])
def test_who_was_killed_comes_before_who_lost_it(log: Path, memory_kills: int, code: str) -> None:
    log.write_text(LOST + report((1, -9), (0, 1)))
    failure = of_world(1, log, nodes=2, memory_kills=memory_kills)
    assert (failure.code, "Process 1" in failure.message) == (code, True)


def test_a_node_that_lost_another_says_only_that(log: Path) -> None:
    log.write_text(LOST + report((0, 1)))
    assert of_world(1, log, nodes=2, memory_kills=0).message.startswith("Another node")
    log.write_text("torch.distributed.DistNetworkError: the client socket has timed out\n")
    assert of_world(1, log, nodes=2, memory_kills=0).code == "ProcessKilled"
    # Alone there is nobody else to blame.
    log.write_text(LOST + report((0, 1)))
    assert of_world(1, log, nodes=1, memory_kills=0).code == "trainer_failed"


def test_an_own_error_is_not_taken_for_another_nodes(log: Path) -> None:
    log.write_text(TRACEBACK + report((0, 1)))
    assert of_world(1, log, nodes=2, memory_kills=0).code == "trainer_failed"


def test_torchruns_own_error_is_told(log: Path) -> None:
    log.write_text("ValueError: a flag is wrong\n")
    failure = of_world(2, log, nodes=1, memory_kills=0)
    assert "ended with code 2" in failure.message
    assert "a flag is wrong" in failure.message
