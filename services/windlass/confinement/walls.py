"""Walls: the part of a machine that a process may see, as flags of bubblewrap."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

# Of /etc: where libraries, names of hosts, certificates and the time are looked up.
_ETC = (
    *("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "localtime", "ssl", "pki"),
    *("ca-certificates", "resolv.conf", "hosts", "host.conf", "nsswitch.conf", "gai.conf"),
)
_TOP = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_DEV = Path("/dev")
_ACCELERATORS = ("nvidia*", "kfd", "dri")
# What drives any GPU of NVIDIA's, whose own files lie in /dev itself, and any of AMD's.
_DRIVING = {True: re.compile(r"nvidia(?!\d+$).*"), False: re.compile("kfd")}
# What drivers look up; processors and memory nodes are there for everybody.
_DRIVERS = ("/sys/bus/pci", "/sys/class", "/sys/dev", "/sys/devices", "/sys/module")
_PROCESSORS = ("/sys/devices/system/cpu", "/sys/devices/system/node")
_TEMPORARY_BYTES = 2**30


@dataclass(frozen=True, kw_only=True)
class WorkloadLimits:
    """Limits of a workload: bytes of memory, processes with their threads, and CPUs."""

    memory: int
    processes: int = 4096
    # 0: as many as there are.
    cpus: int = 0
    # The CPUs that it is kept to where no control group can bound how many it uses.
    processors: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Walls:
    """Contents of the walls: folders and files by the same paths, the machine's network or none.

    `nests` leaves a process the means to build walls within its own. `tied` ends it with the
    process that started it. `devices` are the files of the GPUs that it has, None for all.
    """

    readable: tuple[Path, ...] = ()
    writable: tuple[Path, ...] = ()
    folder: Path = Path("/tmp")  # noqa: S108 - one in memory, of its own
    network: bool = False
    nests: bool = False
    tied: bool = False
    devices: tuple[Path, ...] | None = None


def opened(walls: Walls) -> list[str]:
    """Flags of a first bwrap, run by root: the same files, reachable for another user."""
    return [
        *("--dev-bind", "/dev", "/dev", "--dev-bind", "/proc", "/proc"),
        *("--perms", "1777", "--dir", "/tmp"),  # noqa: S108 - a path of the new root
        *_files(walls),
    ]


def closed(walls: Walls) -> list[str]:
    """Flags of the bwrap that runs the command."""
    flags = ["--unshare-user", "--unshare-pid", "--unshare-ipc"]
    flags += [] if walls.network else ["--unshare-net"]
    flags += ["--die-with-parent"] if walls.tied else []
    flags += ["--cap-drop", "ALL", "--proc", "/proc", "--dev", "/dev"]
    for device in accelerators(walls.devices):
        flags += ["--dev-bind", str(device), str(device)]
    flags += ["--size", str(_TEMPORARY_BYTES), "--tmpfs", "/tmp"]  # noqa: S108
    return [*flags, *_files(walls), "--remount-ro", "/", "--chdir", str(walls.folder)]


def accelerators(devices: tuple[Path, ...] | None = None, *, root: Path = _DEV) -> list[Path]:
    """The device files of all GPUs, or of some, with those by which any of their kind is driven."""
    found = sorted(path for pattern in _ACCELERATORS for path in root.glob(pattern))
    if devices is None:
        return found
    own = [path for path in devices if path.exists()]
    driving = {_DRIVING[path.parent == root] for path in own}
    return own + [path for path in found if any(one.fullmatch(path.name) for one in driving)]


def _files(walls: Walls) -> Iterator[str]:
    yield from ("--ro-bind", "/usr", "/usr")
    for name in _TOP:
        path = Path("/", name)
        if path.is_symlink():
            yield from ("--symlink", str(path.readlink()), str(path))
        elif path.is_dir():
            yield from ("--ro-bind", str(path), str(path))
    system = [Path("/etc", name) for name in _ETC]
    system += [*Path("/opt").glob("rocm*"), *map(Path, _kernel(walls))]
    for path in _upward((*system, *walls.readable, *walls.writable)):
        yield from ("--perms", "0755", "--dir", str(path))
    for path in system:
        yield from ("--ro-bind-try", str(path), str(path))
    for path in _distinct(walls.readable):
        yield from ("--ro-bind", str(path), str(path))
    for path in walls.writable:
        yield from ("--bind", str(path), str(path))


def _kernel(walls: Walls) -> tuple[str, ...]:
    return _DRIVERS if accelerators(walls.devices) else _PROCESSORS


def _upward(paths: Iterable[Path]) -> list[Path]:
    """Every folder above, highest first: bwrap makes them for root alone."""
    above = {parent for path in paths for parent in path.parents}
    return sorted(above - {Path("/"), Path("/tmp"), Path("/usr")})  # noqa: S108


def _distinct(paths: Iterable[Path]) -> list[Path]:
    """Returns the paths that lie in no other, nor in what everybody sees."""
    seen = {Path("/usr")}
    for path in sorted(set(paths)):
        if not seen.intersection((path, *path.parents)):
            seen.add(path)
    return sorted(seen - {Path("/usr")})
