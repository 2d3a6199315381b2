"""Events between a runner and an agent that is away."""

import subprocess
import sys
import textwrap
from pathlib import Path

from windlass.api.runner.v1 import runner_pb2 as pb
from windlass_agent.runner.reporting.spool import EventSpool


def seqs(spool: EventSpool, limit: int = 10) -> list[int]:
    return [event.seq for event in spool.batch(limit)]


def test_events_stay_until_they_are_acknowledged(tmp_path: Path) -> None:
    spool = EventSpool(tmp_path / "spool")
    for number in range(5):
        spool.append(pb.RunEvent(message=f"event {number}"))
    assert seqs(spool, limit=3) == [1, 2, 3]
    spool.acknowledge(2)
    assert seqs(spool) == [3, 4, 5]
    spool.acknowledge(5)
    assert spool.is_empty
    assert (tmp_path / "spool").stat().st_size == 0
    spool.append(pb.RunEvent(message="later"))
    (event,) = spool.batch(10)
    assert (event.seq, event.message) == (6, "later")


def test_an_event_comes_back_as_it_was(tmp_path: Path) -> None:
    spool = EventSpool(tmp_path / "spool")
    metrics = pb.StepMetrics(step=2**40, values={"train_loss": 0.1}, trained_tokens=7)
    event = pb.RunEvent(at_ms=1, level=pb.LEVEL_WARN, message="ü\n", metrics=metrics)
    spool.append(event)
    assert spool.batch(1) == [event]


def test_a_full_disk_leaves_whole_lines(tmp_path: Path) -> None:
    # The limit on a file's size stands for the disk; it holds for a whole process.
    script = textwrap.dedent(
        """
        import resource, signal, sys
        from pathlib import Path
        from windlass.api.runner.v1 import runner_pb2 as pb
        from windlass_agent.runner.reporting.spool import EventSpool
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (400, 400))
        spool = EventSpool(Path(sys.argv[1]))
        try:
            for number in range(100):
                spool.append(pb.RunEvent(message="x" * 50))
        except OSError:
            print(spool.last_seq, [event.seq for event in spool.batch(100)][-1])
        """
    )
    run = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "spool")],
        capture_output=True,
        text=True,
        check=True,
    )
    last, read = run.stdout.split()
    assert last == read
