"""An export that fails is said in a sentence; the job's log has what was printed."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from windlass.api.runner.v1 import runner_pb2 as pb
from windlass_agent.runner.protocol.outcome import Failure
from windlass_agent.runner.reporting.reporter import Reporter
from windlass_agent.runner.supervisor.exporting import Exported, Exporting

TRACEBACK = """Traceback (most recent call last):
  File "/opt/w/export/entry.py", line 40, in main
RuntimeError: The weights in /srv/models/x do not fit
"""


class Warnings(Reporter):
    """A reporter that keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def info(self, message: str) -> None:
        return

    def phase(self, name: str, message: str) -> None:
        return

    def warn(self, message: str) -> None:
        self.said.append(message)


def exporting(folder: Path, reporter: Reporter, *, says: str, code: int) -> Exporting:
    """An exporter whose process prints a text and ends with a code."""
    program = folder / "python"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{says}END\nexit {code}\n")
    program.chmod(0o700)
    (folder / "empty").mkdir()
    (folder / "output").mkdir()
    (folder / "output" / "adapter_config.json").write_text("{}")
    return Exporting(folder, reporter, python=str(program), env={"PATH": "/usr/bin:/bin"})


async def test_the_tenant_reads_a_sentence(tmp_path: Path) -> None:
    reporter = Warnings()
    export = exporting(tmp_path, reporter, says=TRACEBACK, code=1)
    await export.begin(pb.Assignment(exports=[pb.EXPORT_MERGED], model_name="m"))
    with capture_logs() as logs:
        assert await export.make() == Exported(), "the model itself is sound"
    assert reporter.said == [
        "The model was not exported: The exporter ended with code 1: RuntimeError: The weights in "
        ".../x do not fit."
    ]
    (logged,) = logs
    assert logged["event"] == "export_failed"
    assert "Traceback" in logged["output"]


async def test_a_form_that_the_model_has_not_is_named(tmp_path: Path) -> None:
    said = "The model cannot be written as GGUF: no such architecture.\n"
    export = exporting(tmp_path, Warnings(), says=said, code=2)
    with pytest.raises(Failure) as refused:
        await export.begin(pb.Assignment(exports=[pb.EXPORT_GGUF], model_name="m"))
    assert (refused.value.code, refused.value.message) == ("export_not_supported", said.strip())
