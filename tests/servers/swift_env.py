"""Makes the virtual environment of the S3 server of the tests: `python tests/servers/swift_env.py`.

OpenStack Swift has one of its own, so that its old libraries cannot disturb ours.
"""

import shutil
import subprocess
import sys
import venv
from pathlib import Path

REQUIREMENTS = ("swift==2.38.3", "pyeclib==1.8.0", "setuptools<80")
FOLDER = Path(__file__).resolve().parents[2] / "build" / "swift-env"


def ensure() -> Path:
    """The environment's Python; installs what is missing, at most once."""
    python = FOLDER / "bin" / "python"
    stamp = FOLDER / "requirements.txt"
    wanted = "\n".join(REQUIREMENTS)
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    shutil.rmtree(FOLDER, ignore_errors=True)
    venv.create(FOLDER, with_pip=True)
    subprocess.run(
        [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", *REQUIREMENTS],
        check=True,
        stdout=sys.stderr,
    )
    stamp.write_text(wanted)
    return python


if __name__ == "__main__":
    print(ensure())
