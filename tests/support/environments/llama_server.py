"""llama.cpp's server, built once from the source that the package llama-cpp-python carries.

It is kept with the programs of clusters, outside the checkout, since it takes minutes to build.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.support.environments import made_once, required

VERSION = "0.3.36"
_PACKAGE = f"llama-cpp-python=={VERSION}"
_SECONDS = 3000
# One file, without a web page, for any processor of this kind; tiny models need no fast code.
_OPTIONS = (
    "-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_CXX_FLAGS_RELEASE=-O1", "-DGGML_LLAMAFILE=OFF",
    "-DBUILD_SHARED_LIBS=OFF", "-DGGML_NATIVE=OFF",
    "-DGGML_OPENMP=OFF", "-DLLAMA_OPENSSL=OFF", "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF", "-DLLAMA_BUILD_TESTS=OFF", "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_SUBPROCESS=OFF",
)  # fmt: skip


def llama_server() -> Path:
    """The program; the test is skipped where it cannot be built."""
    try:
        return built()
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired, OSError) as error:
        said = getattr(error, "stderr", None) or error
        required.lacking(f"llama.cpp's server cannot be built: {said!r}")


def built() -> Path:
    """The program, made once."""
    made_of = "\n".join((_PACKAGE, *_OPTIONS))
    home = made_once.CACHE
    return made_once.once("llama-server", made_of, _make, home=home) / "llama-server"


def _make(target: Path) -> None:
    print(f"building llama-server of {_PACKAGE}, for about 5 minutes", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _run(
            sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
            "--no-deps", "--no-binary=:all:", f"--dest={folder}", _PACKAGE,
        )  # fmt: skip
        (archive,) = folder.glob("*.tar.gz")
        with tarfile.open(archive) as opened:
            opened.extractall(folder, filter="data")
        (source,) = folder.glob("*/vendor/llama.cpp")
        build = folder / "build"
        _run("cmake", "-S", str(source), "-B", str(build), *_OPTIONS)
        jobs = f"-j{os.cpu_count() or 1}"
        _run("cmake", "--build", str(build), "--target", "llama-server", jobs)
        target.mkdir(parents=True)
        shutil.copy2(build / "bin" / "llama-server", target)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=_SECONDS)
