"""What programs print when they fail, as the one line that a tenant reads."""

import json
import signal
import subprocess
import sys

import pytest
from tests.support.costs import thread_seconds

from windlass_agent.machine.program_output import last_error, one_line

FRAMES = """Traceback (most recent call last):
  File "/opt/w/.venv/lib/python3.11/site-packages/trl/scripts/sft.py", line 90, in main
    trainer.train()
    ^^^^^^^^^^^^^^^
"""


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("", ""),
        ("\n\n  \n---\n", ""),
        (f"loading\n{FRAMES}KeyError: 'labels'\n", "KeyError: 'labels'"),
        (f"{FRAMES}KeyError: 'labels'\nsys:1: ResourceWarning: x\n", "KeyError: 'labels'"),
        (f"{FRAMES}torch.OutOfMemoryError: CUDA out of memory.",
         "torch.OutOfMemoryError: CUDA out of memory."),
        # One that another one raised.
        (f"{FRAMES}KeyError: 1\n\nDuring handling of the above exception, another exception "
         f"occurred:\n\n{FRAMES}ValueError: two\n", "ValueError: two"),
        (f"{FRAMES}RuntimeError: Error(s) in loading state_dict for Llama:\n\tsize mismatch "
         "for norm.weight\n\tsize mismatch for head.weight\n",
         "RuntimeError: Error(s) in loading state_dict for Llama: size mismatch for norm.weight"),
        (f"{FRAMES}OSError: [Errno 2] No such file or directory: '/var/lib/w/inputs/model/x'",
         "OSError: [Errno 2] No such file or directory: '.../x'"),
        ("usage: entry.py\nentry.py: error: unrecognized arguments: --x\n",
         "entry.py: error: unrecognized arguments: --x"),
        ("Fatal Python error: Segmentation fault\n", "Fatal Python error: Segmentation fault"),
        # A process of torchrun's.
        ("".join(f"[rank1]: {line}\n" for line in f"{FRAMES}KeyError: 3".splitlines()),
         "KeyError: 3"),
        # vLLM's engine, whose server then fails for its sake.
        ("".join(f"(EngineCore_0 pid=7) ERROR 11-23 01:02:03 [core.py:586] {line}\n"
                 for line in f"{FRAMES}ValueError: no memory for the cache".splitlines())
         + f"(APIServer pid=5) {FRAMES}(APIServer pid=5) RuntimeError: Engine core "
         "initialization failed. See root cause above. Failed core proc(s): {}\n",
         "ValueError: no memory for the cache"),
        # Its worker, whose error is two processes away.
        ("".join(f"(Worker pid=9) ERROR 11-27 14:03:46 [multiproc_executor.py:953] {line}\n"
                 for line in f"{FRAMES}SafetensorError: file not fully covered".splitlines())
         + f"{FRAMES}Exception: WorkerProc initialization failed due to an exception in a "
         "background process. See stack trace for root cause.\n"
         f"{FRAMES}RuntimeError: Engine core initialization failed. See root cause above.\n",
         "SafetensorError: file not fully covered"),
        (f"{FRAMES}pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
         "  Value error, its model type `x` is unknown\n    For further information visit y\n",
         "pydantic_core.ValidationError: 1 validation error for ModelConfig Value error, its model "
         "type `x` is unknown"),
        ("  + Exception Group Traceback (most recent call last):\n  |   File \"a.py\", line 1\n"
         "  | ExceptionGroup: unhandled errors (1 sub-exception)\n  +-+---- 1 -----\n"
         "    | ValueError: three\n    +------------------------------------\n",
         "ValueError: three"),
        # Our own structured log.
        (json.dumps({"event": "model_load_failed", "reason": "no chat\ntemplate"}),
         "no chat template"),
        (json.dumps({"event": "failed", "exception": f"{FRAMES}KeyError: 4"}), "KeyError: 4"),
        ("{not json", "{not json"),
        ('{"a": 1} x', '{"a": 1} x'),
    ],
)  # fmt: skip
def test_the_error_is_told_without_its_traceback(output: str, expected: str) -> None:
    assert last_error(output) == (
        expected if expected.endswith(".") or not expected else f"{expected}."
    )


def test_of_several_processes_the_crash_is_told_and_no_lost_connection() -> None:
    crash = "import faulthandler; faulthandler.enable(); faulthandler._sigsegv()"
    done = subprocess.run([sys.executable, "-c", crash], capture_output=True, text=True)
    assert done.returncode == -signal.SIGSEGV
    assert "<module>" in done.stderr, "with its frames"
    lost = f"{FRAMES}RuntimeError: Connection closed by peer\n"
    for output in (done.stderr, f"{lost}{done.stderr}", f"{done.stderr}{lost}"):
        assert last_error(output) == "Fatal Python error: Segmentation fault."


def test_a_line_is_bounded() -> None:
    assert len(last_error("x" * 9999)) == 300
    assert one_line("a\n\n b\tc\r\n") == "a b c"


@pytest.mark.parametrize(
    "piece", ["[rank1]: ", "(a pid=1) ", "(a" , "| ", "{", "Traceback (most recent call last):\n"]
)  # fmt: skip
def test_hostile_output_takes_no_time(piece: str) -> None:
    assert thread_seconds(lambda: last_error(piece * (2**18 // len(piece)))) < 1
