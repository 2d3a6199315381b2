"""`make docs` makes anew every page that says it is made from the code."""

import shutil
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[3]
MADE = b"Made by `tools/generate_"


def test_make_docs_replaces_every_stale_page(tmp_path: Path) -> None:
    for name in ("Makefile", ".importlinter", "proto", "tools", "services", "agent"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    shutil.copytree(REPOSITORY / "docs", tmp_path / "docs")
    pages = {
        page: content
        for page in (tmp_path / "docs").rglob("*.md")
        if MADE in (content := page.read_bytes())
    }
    assert len(pages) >= 8
    for page in pages:
        page.write_text("Stale.\n")
    make = ("make", "-C", str(tmp_path), "docs", "SETUP=:", f"BIN={Path(sys.executable).parent}")
    done = subprocess.run(make, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for page, content in pages.items():
        assert page.read_bytes() == content, f"{page.name} is not what its generator makes"
