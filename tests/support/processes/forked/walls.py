"""Joins the walls of a process, so that a fork is as confined as the stand-in whose place it has.

What a process inherits alone is not joined: the filter of its system calls.
"""

import ctypes
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

# The users' last: bubblewrap makes two of them, and the others belong to the outer one.
_NAMESPACES = ("net", "ipc", "uts", "mnt", "pid", "user")
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38
_PR_CAPBSET_DROP = 24
_CAPABILITIES, _CAPABILITIES_V3 = 64, 0x20080522
_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
_LIBC = ctypes.CDLL(None, use_errno=True)


def can_join() -> bool:
    """Tries whether this machine lets a fork into walls; True where there are none."""
    bwrap = shutil.which("bwrap")
    if bwrap is None:
        return True
    walls = ("--dev-bind", "/", "/", "--unshare-user", "--unshare-pid", "--unshare-net")
    script = "import runpy, sys; runpy.run_path(sys.argv[1])['join'](int(sys.argv[2]), {})"
    with subprocess.Popen([bwrap, *walls, "cat"], stdin=subprocess.PIPE) as confined:
        try:
            # Its innermost process is the last that it makes.
            found = None
            while found is None and confined.poll() is None:
                found = _innermost(confined.pid)
            words = [sys.executable, "-c", script, __file__, str(found)]
            return subprocess.run(words, capture_output=True, check=False).returncode == 0
        finally:
            confined.kill()


def _innermost(process: int) -> int | None:
    """The descendant that runs `cat`."""
    for child in Path(f"/proc/{process}/task/{process}/children").read_text().split():
        if Path(f"/proc/{child}/comm").read_text().strip() == "cat":
            return int(child)
        if found := _innermost(int(child)):
            return found
    return None


def join(peer: int, limits: Mapping[str, Sequence[int]]) -> None:
    """Takes the groups, CPUs, namespaces and user of a process, and its limits by their numbers.

    With another namespace of processes it returns in a child, for which this process stands.
    """
    _join_groups(peer)
    for number, (soft, hard) in limits.items():
        resource.setrlimit(int(number), (soft, hard))
    os.sched_setaffinity(0, os.sched_getaffinity(peer))
    with suppress(PermissionError):
        score = Path(f"/proc/{peer}/oom_score_adj").read_text()
        Path("/proc/self/oom_score_adj").write_text(score)
    owner = Path(f"/proc/{peer}").stat()
    user, group = _ids(peer)
    others = [name for name in _NAMESPACES if not _is_shared(peer, name)]
    files = [os.open(f"/proc/{peer}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC) for name in others]
    for file in files:
        _checked(_LIBC.setns(file, 0))
        os.close(file)
    if "pid" in others:
        _go_on_in_a_child()
    if others or owner.st_uid != os.geteuid():
        with suppress(PermissionError):
            os.setgroups([])
        os.setresgid(group, group, group)
        os.setresuid(user, user, user)
        _drop_capabilities()
    # A change of the user takes it back.
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _join_groups(peer: int) -> None:
    for line in Path(f"/proc/{peer}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        root = Path("/sys/fs/cgroup", controllers.removeprefix("name="))
        # Where one is not mounted, nothing is counted.
        with suppress(OSError):
            (root / path.lstrip("/") / "cgroup.procs").write_text(str(os.getpid()))


def _ids(peer: int) -> tuple[int, int]:
    """The user and the group, as this process and, by identity, the walls count them."""
    found = {
        name: int(rest.split()[0])
        for name, _, rest in (
            line.partition(":") for line in Path(f"/proc/{peer}/status").read_text().splitlines()
        )
        if name in ("Uid", "Gid")
    }
    return found["Uid"], found["Gid"]


def _is_shared(peer: int, name: str) -> bool:
    return Path(f"/proc/{peer}/ns/{name}").readlink() == Path(f"/proc/self/ns/{name}").readlink()


def _go_on_in_a_child() -> None:
    """Forks, since a namespace of processes is that of children; ends as the child does."""
    child = os.fork()
    if child:
        _stand_for(child)


def _stand_for(child: int) -> NoReturn:
    # Signals are for the group, in which the child is too.
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    _, status = os.waitpid(child, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        if -code not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(-code, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.kill(os.getpid(), -code)
    os._exit(code)


def _drop_capabilities() -> None:
    for number in range(_CAPABILITIES):
        _LIBC.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_V3, 0)
    none = (ctypes.c_uint32 * 6)()
    _checked(_LIBC.capset(header, none))
    _LIBC.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    # Its own files in /proc would be root's.
    _LIBC.prctl(_PR_SET_DUMPABLE, 1)


def _checked(code: int) -> None:
    if code:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
