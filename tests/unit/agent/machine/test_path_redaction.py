"""Text for tenants names no path of the machine."""

import importlib.util
from pathlib import Path

import pytest
from tests.support.costs import thread_seconds

import windlass_agent
from windlass_agent.machine.path_redaction import redact_paths, without_first_word

FOLDER = Path("/var/lib/my windlass/agent/workloads/job-1-1")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"no {FOLDER}/inputs/model/config.json", "no model/config.json"),
        (f"saved to '{FOLDER}/output/checkpoint-4'", "saved to 'output/checkpoint-4'"),
        (f"in {FOLDER}", "in ."),
        (
            'File "/opt/w/.venv/lib/python3.11/site-packages/trl/trainer/sft_trainer.py", line 3',
            'File "trl/trainer/sft_trainer.py", line 3',
        ),
        ('File "/usr/lib/python3.11/json/decoder.py"', 'File "json/decoder.py"'),
        ("/usr/local/lib/python3.11/asyncio/runners.py:5", "asyncio/runners.py:5"),
        ("/opt/w/.venv/bin/python: no module", ".../python: no module"),
        ("[Errno 2] '/root/.cache/huggingface/x'", "[Errno 2] '.../x'"),
        ("unix:/tmp/agent-0/agent/s and unix:///tmp/a/s", "unix:.../s and unix://.../s"),
        ("file:///srv/data/a.txt", "file://.../a.txt"),
        ("PATH=/a/bin:/b/bin", "PATH=.../bin:.../bin"),
    ],
)
def test_paths_are_relative_or_hidden(text: str, expected: str) -> None:
    assert redact_paths(text, FOLDER) == expected
    assert redact_paths(expected, FOLDER) == expected


@pytest.mark.parametrize(
    "text",
    [
        "https://huggingface.co/docs/trl/index", "1.5 s/it, 20/30 steps", "trl/trainer/sft.py",
        "a <b>word</b> </s> [/INST] / ", "org/model:v1", "./data/x and ../data/x", "and/or/not",
    ],
)  # fmt: skip
def test_what_is_no_path_of_the_machine_stays(text: str) -> None:
    assert redact_paths(text, FOLDER) == text


def test_our_own_files_are_named_by_their_packages() -> None:
    spec = importlib.util.find_spec("windlass_agent.machine.path_redaction")
    assert spec is not None
    assert redact_paths(f'File "{spec.origin}", line 1') == (
        'File "windlass_agent/machine/path_redaction.py", line 1'
    )
    assert str(Path(windlass_agent.__file__).parent) not in redact_paths(str(spec.origin))


@pytest.mark.parametrize("piece", ["/a", "=/a", "/lib/python3", "://a", "~/", "a", "/"])
def test_a_hostile_line_takes_no_time(piece: str) -> None:
    line = piece * (2**18 // len(piece))
    assert thread_seconds(lambda: redact_paths(line, FOLDER)) < 1


def test_half_a_path_is_left_out_of_the_end_of_a_text() -> None:
    assert without_first_word("b/windlass/agent.py failed\nnext") == " failed\nnext"
