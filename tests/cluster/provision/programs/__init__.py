"""The programs of a cluster: pinned by Go modules, built once into a cache outside the repo.

Each group is a Go module of its own in this folder, since their libraries' versions differ.
A built group is a folder named by the hash of what it was made from, so that a changed pin makes
a new one and two checkouts may share the cache.
"""

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

MODULES = Path(__file__).parent


@dataclass(frozen=True)
class Group:
    """A Go module and the programs of its `tool` lines; `seconds` is a cold build on two cores."""

    name: str
    seconds: int
    settings: tuple[str, ...] = ()
    tags: str = ""
    cgo: bool = False
    # What the linker names otherwise than the program is called.
    rename: tuple[str, str] | None = None

    @property
    def module(self) -> Path:
        """The folder with its go.mod and go.sum."""
        return MODULES / self.name

    def folder(self) -> Path:
        """The folder of its programs, once built."""
        made_of = [path.read_bytes() for path in sorted(self.module.iterdir())]
        key = hashlib.sha256(b"\0".join([repr(self).encode(), *made_of])).hexdigest()
        return cache_folder() / f"{self.name}-{key[:12]}"


KUBERNETES_VERSION = "k8s.io/component-base/version"
GROUPS = (
    Group(
        "kubernetes",
        420,
        settings=(
            f"{KUBERNETES_VERSION}.gitVersion=v1.36.3",
            f"{KUBERNETES_VERSION}.gitMajor=1",
            f"{KUBERNETES_VERSION}.gitMinor=36",
        ),
    ),
    Group("etcd", 45, rename=("server", "etcd")),
    Group(
        "containerd",
        115,
        settings=("github.com/containerd/containerd/v2/version.Version=2.4.2",),
        tags="no_btrfs,no_devmapper,no_zfs",
    ),
    Group("runc", 20, tags="seccomp", cgo=True),
    Group("cni", 25),
    Group("coredns", 200),
    Group("kueue", 220),
    Group("jobset", 140),
    Group("lws", 130, rename=("cmd", "lws")),
    Group("trainer", 140),
    Group("kwok", 60),
    Group(
        "helm",
        140,
        settings=(
            "helm.sh/helm/v3/internal/version.version=v3.19.0",
            "helm.sh/helm/v3/pkg/chartutil.k8sVersionMajor=1",
            "helm.sh/helm/v3/pkg/chartutil.k8sVersionMinor=36",
        ),
    ),
    Group("dra", 60),
    Group("kube-router", 120),
    # No parts of a cluster: the picker of an InferencePool, which a test starts, and what people
    # have who did not update it.
    Group("epp", 160),
    Group("old-kubectl", 100, settings=(f"{KUBERNETES_VERSION}.gitVersion=v1.28.15",)),
)
BY_NAME = {group.name: group for group in GROUPS}


class Unbuilt(RuntimeError):
    """A program is not in the cache; the message says how to get it."""


def cache_folder() -> Path:
    """`~/.cache/windlass/cluster`, or under XDG_CACHE_HOME."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "windlass" / "cluster"


def program(group: str, name: str = "") -> Path:
    """The path of a built program; `Unbuilt` if there is none."""
    path = BY_NAME[group].folder() / (name or group)
    if not path.exists():
        raise Unbuilt(f"{path.name} is not built: run `make cluster` (about 30 minutes, once)")
    return path


def search_path() -> str:
    """PATH with every built program before the system's."""
    return ":".join([*(str(group.folder()) for group in GROUPS), os.environ.get("PATH", "")])


def missing() -> list[Group]:
    """The groups that are still to be built."""
    return [group for group in GROUPS if not group.folder().exists()]


def build(say: Callable[[str], None] = print) -> None:
    """Builds what is missing, one group after another; seconds with Go's own cache."""
    groups = missing()
    if not groups:
        return
    minutes = max(1, round(sum(group.seconds for group in groups) * 2 / cores() / 60))
    say(
        f"Building {len(groups)} of {len(GROUPS)} groups of programs into {cache_folder()}: about"
        f" {minutes} minutes and 1 GB here (4.5 GB of sources in Go's module cache), once."
    )
    go = find_go()
    for group in groups:
        say(f"  {group.name}: about {max(1, group.seconds * 2 // cores())} s")
        build_group(group, go)


def build_group(group: Group, go: str) -> None:
    """Builds one group beside its place and moves it there whole."""
    target = group.folder()
    partial = target.with_name(f"{target.name}.{os.getpid()}")
    partial.mkdir(parents=True)
    flags = " ".join(["-s -w", *(f"-X {setting}" for setting in group.settings)])
    command = [go, "build", "-trimpath", "-buildvcs=false", "-ldflags", flags]
    command += ["-tags", group.tags, "-o", f"{partial}/", "tool"]
    try:
        subprocess.run(
            command,
            cwd=group.module,
            env=os.environ | {"CGO_ENABLED": "1" if group.cgo else "0", "GOFLAGS": ""},
            check=True,
        )
        if group.rename:
            (partial / group.rename[0]).rename(partial / group.rename[1])
        shutil.rmtree(target, ignore_errors=True)
        partial.rename(target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def module_folder(group: str, path: str) -> Path:
    """The folder of a module's sources, with its manifests, of one of a group."""
    found = subprocess.run(
        [find_go(), "list", "-m", "-f", "{{.Dir}}", path],
        cwd=BY_NAME[group].module,
        capture_output=True,
        text=True,
        check=True,
    )
    return Path(found.stdout.strip())


@cache
def find_go() -> str:
    """The go command, 1.26 or newer (1.21 and later fetch what a module wants)."""
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        raise SystemExit("`make cluster` needs Go 1.26 or newer: https://go.dev/dl")
    text = subprocess.run([go, "version"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"go(\d+)\.(\d+)", text)
    if version is None or (int(version[1]), int(version[2])) < (1, 21):
        raise SystemExit(f"`make cluster` needs Go 1.26 or newer; this is {text.strip()}")
    return go


def cores() -> int:
    """The number of processors this process may use."""
    return len(os.sched_getaffinity(0))
