"""The page on checkpoints by block, run as printed."""

import os
import re
import sys
from pathlib import Path

from safetensors.torch import save_file
from tests.support.checkpoints.models import weights
from tests.support.processes import pages

from windlass_vllm.checkpoints.diagnosis import diagnose_folder
from windlass_vllm.refusal import REASONS

PAGE = "how-to/checkpoint-by-block.md"


def test_the_page_trains_and_checks(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    live = {name: one for name, one in weights().items() if one.numel()}
    save_file(live, tmp_path / "model" / "model.safetensors")
    (tmp_path / "page.py").write_text("\n".join(pages.blocks(PAGE, "python")))
    commands = pages.script(PAGE, {"windlass-vllm": f"{sys.executable} -m windlass_vllm"})
    printed = pages.run(f"{sys.executable} page.py\n{commands}", os.environ, tmp_path)
    steps = [line.split()[0] for line in printed.splitlines() if line.startswith("step-")]
    assert steps == ["step-0", "step-1", "step-2"]
    assert printed.count("digests: right") == 2
    assert diagnose_folder(tmp_path / "run").version == "step-2"
    assert (tmp_path / "optimizer.safetensors").exists()


def test_the_page_has_every_reason() -> None:
    text = (pages.DOCS / PAGE).read_text()
    assert re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE) == sorted(REASONS)
