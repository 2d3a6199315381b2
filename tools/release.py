"""Prepares the release of the version in pyproject.toml: `make release`.

Dates the changelog's Unreleased section, builds the wheels and sdists of each distribution into
dist/, and prints the commands that publish them. It commits, tags and uploads nothing.
"""

import datetime
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
UNRELEASED = "## Unreleased\n"
# How charts, manifests and images name the version.
NAMED = re.compile(r"^(?:version|appVersion): (\S+)$|ghcr\.io/windlass/[a-z-]+:(\d[\w.]*)", re.M)
NAMED_IN = ("deploy", "agent/windlass_agent/executors/kubernetes")
# Folders of distributions of their own, which are released with ours by the same version.
BESIDE = ("plugin",)


class NotReady(Exception):
    """The tree cannot be released as it is."""


def main(root: Path = ROOT) -> None:
    """Runs every step; exits with the reason, and the changelog as it was, where one fails."""
    changelog = root / "CHANGELOG.md"
    before = changelog.read_text()
    try:
        version = new_version(root, before)
        today = datetime.datetime.now(datetime.UTC).date()
        changelog.write_text(dated(before, version, today))
        built = build(root)
    except (NotReady, subprocess.CalledProcessError) as error:
        changelog.write_text(before)
        sys.exit(str(error))
    print("Built:", *built, sep="\n  ")
    print("Read the diff of CHANGELOG.md, then run:")
    print(f"  git commit --all --message 'release: publish {version}'")
    print(f"  git tag --annotate v{version} --message 'Windlass {version}'")
    print(f"  git push origin HEAD v{version}")


def new_version(root: Path, changelog: str) -> str:
    """Returns the version to release; raises NotReady unless the tree is clean and names it."""
    if changed := _git(root, "status", "--porcelain"):
        raise NotReady(f"The tree is not clean:\n{changed}")
    version = version_of(root)
    if _git(root, "tag", "--list", f"v{version}") or f"\n## {version} " in changelog:
        raise NotReady(f"{version} is released already: set the next version in pyproject.toml.")
    if others := naming_another(root, version):
        raise NotReady("These name another version:\n" + "\n".join(others))
    return version


def naming_another(root: Path, version: str) -> list[str]:
    """Returns the files that have another version, of distributions, our charts and images."""
    beside = {f"{name}/pyproject.toml": version_of(root / name) for name in BESIDE}
    found = [f"  {name}: {other}" for name, other in beside.items() if other != version]
    for name in _git(root, "ls-files", *NAMED_IN).splitlines():
        named = {one or other for one, other in NAMED.findall((root / name).read_text())}
        found += [f"  {name}: {other}" for other in sorted(named - {version})]
    return found


def version_of(folder: Path) -> str:
    """Returns the version of a distribution."""
    version: str = tomllib.loads((folder / "pyproject.toml").read_text())["project"]["version"]
    return version


def dated(changelog: str, version: str, day: datetime.date) -> str:
    """Returns the changelog with its Unreleased section under the version; raises NotReady."""
    before, found, after = changelog.partition(UNRELEASED)
    section = after.partition("\n## ")[0]
    if not found or not section.strip():
        raise NotReady("CHANGELOG.md has nothing under '## Unreleased'.")
    return f"{before}{UNRELEASED}\n## {version} ({day.isoformat()})\n{after}"


def build(root: Path) -> list[str]:
    """Returns the files that the build backend made in dist/."""
    shutil.rmtree(root / "dist", ignore_errors=True)
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(root / "dist")]
    for folder in (root, *(root / name for name in BESIDE)):
        subprocess.run(command, cwd=folder, check=True)
    return sorted(str(path.relative_to(root)) for path in (root / "dist").iterdir())


def _git(root: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True)
    return done.stdout


if __name__ == "__main__":
    main()
