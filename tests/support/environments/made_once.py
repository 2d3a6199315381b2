"""Cache of slow test assets: environments of other programs, small models.

Each is made by whoever needs it first, under a lock that the kernel frees when its holder dies,
and kept in `build/`, or where all checkouts find it, until what it is made of changes.
`python -m tests.support.environments.made_once` makes the environments beforehand.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

from tests.support.environments.locks import locked

from windlass.demo.tiny_model import make_tiny_model

BUILD = Path(__file__).resolve().parents[3] / "build"
# What depends on no checkout stays for the next one.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "windlass"
_MARK = ".complete"


def once(
    name: str, made_of: str, make: Callable[[Path], object], *, home: Path | None = None
) -> Path:
    """Returns the folder that `make` fills, once for any number of processes.

    It lies in `home`, or in `build/`. The next call removes what a failed or killed `make` left.
    """
    digest = hashlib.sha256(made_of.encode()).hexdigest()[:12]
    # In its final place from the beginning, since the scripts of an environment name it; the mark
    # alone says that it is whole.
    home = home or BUILD
    home.mkdir(parents=True, exist_ok=True)
    folder = home / f"{name}-{digest}"
    if not (folder / _MARK).exists():
        with locked(home / f"{name}.lock"):
            if not (folder / _MARK).exists():
                shutil.rmtree(folder, ignore_errors=True)
                make(folder)
                (folder / _MARK).touch()
    return folder


def environment(name: str, *requirements: str) -> Path:
    """The `bin` of a virtual environment with these packages and no others.

    Raises CalledProcessError when they cannot be had.
    """

    def make(folder: Path) -> None:
        print(f"installing {requirements[0]} into {folder}", file=sys.stderr, flush=True)
        venv.create(folder, with_pip=True)
        pip = (folder / "bin" / "python", "-m", "pip", "install", "--quiet")
        # Of a hundred packages few modules are ever imported, and those are compiled then.
        options = ("--disable-pip-version-check", "--no-compile")
        subprocess.run([*pip, *options, *requirements], check=True, stdout=sys.stderr)

    return once(name, "\n".join((sys.version, *requirements)), make, home=CACHE) / "bin"


def tiny_model() -> Path:
    """Returns the folder of the demo's base model."""
    with locked(BUILD / "tiny-model.lock"):
        return make_tiny_model(BUILD / "tiny-model")


def main() -> None:
    """Makes every environment that tests need."""
    from tests.support.clients import environments
    from tests.support.clients.openai_suite import suite
    from tests.support.environments import (
        llama_server,
        mlflow_server,
        oidc_provider,
        swift,
        torchtune_env,
        vllm_env,
    )
    from tests.support.environments.sglang import env as sglang_env
    from tests.support.keepers import moto_server

    print(swift.environment(), mlflow_server.environment(), moto_server.environment(), sep="\n")
    print(torchtune_env.environment(), vllm_env.environment(), llama_server.built(), sep="\n")
    print(sglang_env.environment(), oidc_provider.built(), sep="\n")
    print(environments.python(), environments.generator(), environments.node_modules(), sep="\n")
    print(suite.environment(), suite.sources(), tiny_model(), sep="\n")


if __name__ == "__main__":
    main()
