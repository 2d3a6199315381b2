"""Limits of a program."""

from dataclasses import dataclass


@dataclass(frozen=True)
class SandboxLimits:
    """Limits of a program, in bytes and seconds; `seconds` for an answer, as OpenAI's.

    A program that has worked for `life_seconds` is replaced by a fresh one.
    """

    memory: int = 2 * 2**30
    disk: int = 2**30
    seconds: float = 120.0
    life_seconds: float = 600.0

    def rlimits(self) -> dict[str, int]:
        """The kernel's limits of one process, by the names of `resource`; it has no second one."""
        return {
            "RLIMIT_AS": self.memory,
            "RLIMIT_FSIZE": self.disk,
            "RLIMIT_CPU": int(self.life_seconds + 2 * self.seconds) + 1,
            "RLIMIT_NOFILE": 64,
            "RLIMIT_NPROC": 0,
            "RLIMIT_CORE": 0,
            "RLIMIT_MSGQUEUE": 0,
        }
