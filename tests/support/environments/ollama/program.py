"""Ollama as somebody runs it: built once of its Go module, serving a model and adapters of ours.

The module leaves out headers of three C libraries, which the source of llama-cpp-python carries.
It is kept with the programs of clusters, outside the checkout, since it takes long to build.
"""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import httpx
from tests.support.environments import made_once, required
from tests.support.processes.windlass import free_port
from tests.support.waiting import wait_until

VERSION = "v0.17.4"
_MODULE = f"github.com/ollama/ollama@{VERSION}"
_HEADERS = "llama-cpp-python==0.3.36"
_SECONDS = 7200
_START_SECONDS = 60
# Tiny models need no fast code; one compiler at once leaves the machine to others.
_OPTIONS = {"CGO_CFLAGS": "-O1", "CGO_CXXFLAGS": "-O1", "GOFLAGS": "-p=1 -mod=mod"}
# What the demo's template renders, in Go's words.
_TEMPLATE = (
    "{{ range .Messages }}<|im_start|>{{ .Role }}\n{{ .Content }}<|im_end|>\n{{ end }}"
    "<|im_start|>assistant\n"
)


# Ollama's own default is to punish repetitions.
_RECIPE = f'TEMPLATE """{_TEMPLATE}"""\nPARAMETER num_ctx 512\nPARAMETER repeat_penalty 1\n'


@contextlib.contextmanager
def running_ollama(
    weights: Path, name: str, folder: Path, adapters: Mapping[str, Path] | None = None
) -> Iterator[str]:
    """Yields the address of an Ollama that has a model, and one more for each adapter to it.

    All are files of GGUF. Skips where Ollama cannot be built.
    """
    program, address = _program(), f"127.0.0.1:{free_port()}"
    recipes = {name: f"FROM {weights}\n{_RECIPE}"}
    recipes |= {one: f"FROM {name}\nADAPTER {path}\n" for one, path in (adapters or {}).items()}
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "OLLAMA_HOST": address,
        "OLLAMA_MODELS": str(folder / "models"),
        "OLLAMA_NO_CLOUD": "1",
    }
    log = folder / "ollama.log"
    with log.open("wb") as output:
        server = subprocess.Popen(
            [str(program), "serve"], env=environment, stdout=output, stderr=output
        )
    try:
        url = f"http://{address}"
        wait_until(lambda: _answers(url), seconds=_START_SECONDS)
        for made, text in recipes.items():
            recipe = folder / f"Modelfile.{made}"
            recipe.write_text(text)
            subprocess.run(
                [str(program), "create", made, "-f", str(recipe)],
                env=environment, check=True, capture_output=True, timeout=_START_SECONDS,
            )  # fmt: skip
        yield url
    finally:
        server.terminate()
        server.wait(30)


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/api/version").is_success
    except httpx.HTTPError:
        return False


def _program() -> Path:
    try:
        return built()
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired, OSError) as error:
        said = getattr(error, "stderr", None) or error
        required.lacking(f"Ollama cannot be built: {str(said)[-2000:]}")


def built() -> Path:
    """The program, made once."""
    made_of = "\n".join((_MODULE, _HEADERS, json.dumps(_OPTIONS)))
    return made_once.once("ollama", made_of, _make, home=made_once.CACHE) / "ollama"


def _make(target: Path) -> None:
    print(f"building {_MODULE}, for half an hour or more", file=sys.stderr, flush=True)
    found = json.loads(_run("go", "mod", "download", "-json", _MODULE))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        headers = _headers(folder)
        source = folder / "ollama"
        shutil.copytree(found["Dir"], source)
        _run("chmod", "-R", "u+w", str(source))
        target.mkdir(parents=True)
        variables = os.environ | _OPTIONS | {"CGO_CPPFLAGS": f"-I{headers}"}
        words = ("nice", "-n", "19", "go", "build", "-o", str(target / "ollama"), ".")
        _run(*words, cwd=source, env=variables)


def _headers(folder: Path) -> Path:
    _run(
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check",
        "--no-deps", "--no-binary=:all:", f"--dest={folder}", _HEADERS,
    )  # fmt: skip
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as opened:
        wanted = [one for one in opened.getmembers() if "/vendor/llama.cpp/vendor/" in one.name]
        opened.extractall(folder, members=wanted, filter="data")
    (vendor,) = folder.glob("*/vendor/llama.cpp/vendor")
    return vendor


def _run(*command: str, **options: object) -> str:
    done = subprocess.run(  # type: ignore[call-overload]  # options are of one signature or another
        command, check=True, capture_output=True, text=True, timeout=_SECONDS, **options
    )
    return str(done.stdout)
