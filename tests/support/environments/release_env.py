"""The release before in an environment of its own, made of its wheel in a second.

What the wheel needs is taken from the tests' own environment; its code is found first.
"""

import site
import subprocess
import venv
import zipfile
from pathlib import Path

WHEELS = Path(__file__).parents[2] / "fixtures" / "wheels"


def environment(folder: Path) -> Path:
    """The interpreter, with the wheel of the release before."""
    (wheel,) = WHEELS.glob("windlass-*.whl")
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = (folder / "lib").glob("python*/site-packages")
    zipfile.ZipFile(wheel).extractall(packages)
    lines = [f"import site; site.addsitedir({path!r})" for path in site.getsitepackages()]
    (packages / "parent.pth").write_text("\n".join(lines) + "\n")
    python = folder / "bin" / "python"
    found = subprocess.run(
        [
            python,
            "-c",
            "import windlass, windlass_agent as a; print(windlass.__file__, a.__file__)",
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    assert found.count(str(packages)) == 2, found
    return python
