"""OpenAI's tests out of openai-python's sdist, in an environment of their own."""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from tests.support.environments import made_once
from tests.support.environments.required import lacking

VERSION = "3.52.0"
REQUIREMENTS = (
    f"openai[aiohttp]=={VERSION}", "pytest==9.2.0", "pytest-asyncio==1.5.0", "pytest-xdist==3.8.0",
    "inline-snapshot==0.36.1", "rich==15.0.0", "trio==0.35.0",
    # By which pip reads the sdist.
    "hatchling==1.33.0",
)  # fmt: skip
ADMIN = "tests/api_resources/admin/organization"


@dataclass(frozen=True)
class Result:
    """Names of tests by how they ended, and what was printed."""

    passed: frozenset[str]
    failed: frozenset[str]
    skipped: frozenset[str]
    output: str


def environment() -> Path:
    """The `bin` of the environment; raises CalledProcessError when it cannot be installed."""
    return made_once.environment("openai-suite-env", *REQUIREMENTS)


def sources() -> Path:
    """The folder of openai-python's own tests; raises CalledProcessError without an index."""
    python = environment() / "python"

    def make(folder: Path) -> None:
        folder.mkdir(parents=True)
        # Only the sdist has them, whose metadata pip reads by what the environment has.
        pip = (python, "-m", "pip", "--disable-pip-version-check", "--quiet", "download")
        options = ("--no-deps", "--no-binary=:all:", "--no-build-isolation", "-d", folder)
        subprocess.run([*pip, *options, f"openai=={VERSION}"], check=True, stdout=sys.stderr)
        (archive,) = folder.glob("openai-*.tar.gz")
        shutil.unpack_archive(archive, folder, filter="data")

    return made_once.once("openai-suite", VERSION, make, home=made_once.CACHE) / f"openai-{VERSION}"


async def run(url: str, report: Path, options: Sequence[str]) -> Result:
    """Runs the tests of administration against an address of the API."""
    try:
        python, folder = environment() / "python", sources()
    except subprocess.CalledProcessError:
        lacking("openai-python's tests cannot be had: the package index does not answer")
    pytest = ("-m", "pytest", "-p", "no:cacheprovider", "-o", "addopts=", "--tb=short", "-q")
    # Proxies, plugins and options of the run around it are not its own.
    inherited = {
        name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ
    }
    process = await asyncio.create_subprocess_exec(
        python, *pytest, f"--junitxml={report}", *options, ADMIN,
        cwd=folder,
        env=inherited | {"PATH": f"{python.parent}:/usr/bin:/bin", "TEST_API_BASE_URL": url},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    try:
        output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return _read(report, output.decode(errors="replace"))


def _read(report: Path, output: str) -> Result:
    ended: dict[str, set[str]] = {"passed": set(), "failed": set(), "skipped": set()}
    for case in ElementTree.parse(report).iter("testcase"):
        how = {child.tag for child in case}
        kind = (
            "failed" if how & {"failure", "error"} else "skipped" if "skipped" in how else "passed"
        )
        ended[kind].add(f"{case.get('classname')}::{case.get('name')}")
    return Result(*(frozenset(ended[kind]) for kind in ("passed", "failed", "skipped")), output)
