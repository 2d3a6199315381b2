"""The walls: bubblewrap's flags around an interpreter."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from windlass.confinement import seccomp
from windlass.core.account import ENVIRONMENT, Account
from windlass.sandbox import inside
from windlass.sandbox.interpreter import Interpreter
from windlass.sandbox.limits import SandboxLimits

_NOBODY = "65534"
_HOME = "/python"
_LIBRARIES = f"{_HOME}/objects"
_PACKAGES = ("site-packages", "dist-packages")
_ZONES = "/usr/share/zoneinfo"
# The kernel ends a program first where memory runs out.
_EASILY_KILLED = ("choom", "-n", "1000", "--")
_INSIDE = Path(inside.__file__).read_text()


@dataclass(frozen=True)
class Sandbox:
    """A way to run Python that sees an interpreter, and nothing else of this machine."""

    program: str
    account: Account
    interpreter: Interpreter

    def start(self, limits: SandboxLimits) -> subprocess.Popen[bytes]:
        """Starts what answers on its standard streams; raises OSError."""
        filtered = seccomp.program()
        descriptor = seccomp.descriptor(filtered) if filtered else None
        flags = [] if descriptor is None else ["--seccomp", str(descriptor)]
        program = [self.program, *self._walls(limits), *flags, *self._command()]
        try:
            return subprocess.Popen(
                self.account.becoming(*_EASILY_KILLED, *_limited(limits), *program),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd="/",
                env=ENVIRONMENT,
                pass_fds=() if descriptor is None else (descriptor,),
            )
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def _walls(self, limits: SandboxLimits) -> list[str]:
        return [
            *("--unshare-all", "--unshare-user", "--disable-userns", "--cap-drop", "ALL"),
            *("--uid", _NOBODY, "--gid", _NOBODY, "--hostname", "sandbox"),
            *("--die-with-parent", "--new-session", "--clearenv"),
            *("--setenv", "LD_LIBRARY_PATH", _LIBRARIES),
            *self._files(),
            *("--ro-bind-try", _ZONES, _ZONES),
            *("--dev-bind", "/dev/null", "/dev/null", "--dev-bind", "/dev/urandom", "/dev/urandom"),
            *("--size", str(limits.disk), "--perms", "0700", "--tmpfs", "/tmp"),  # noqa: S108
            *("--remount-ro", "/", "--chdir", "/tmp"),  # noqa: S108
        ]

    def _files(self) -> list[str]:
        """The interpreter under a name that tells nothing of this machine."""
        library = f"{_HOME}/{self.interpreter.folder}/{self.interpreter.version}"
        flags = ["--ro-bind", self.interpreter.program, self._inner_program]
        flags += ["--ro-bind", self.interpreter.library, library]
        for name in _PACKAGES:
            if Path(self.interpreter.library, name).is_dir():
                flags += ["--tmpfs", f"{library}/{name}", "--remount-ro", f"{library}/{name}"]
        for path in self.interpreter.objects:
            # The loader itself is looked for where every program says that it is.
            is_loader = Path(path).name.startswith(("ld-", "ld."))
            flags += ["--ro-bind", path, path if is_loader else f"{_LIBRARIES}/{Path(path).name}"]
        return flags

    @property
    def _inner_program(self) -> str:
        return f"{_HOME}/bin/{self.interpreter.version}"

    def _command(self) -> list[str]:
        return [self._inner_program, "-I", "-S", "-B", "-c", _INSIDE]


def _limited(limits: SandboxLimits) -> list[str]:
    """Sets limits before there are walls, so that every process within has them."""
    # bwrap itself needs a second process; the program gives up its own when it starts.
    kinds = {name: most for name, most in limits.rlimits().items() if name != "RLIMIT_NPROC"}
    words = [f"--{name.removeprefix('RLIMIT_').lower()}={most}" for name, most in kinds.items()]
    return ["prlimit", *words, "--"]
