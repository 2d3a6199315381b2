"""The system user for processes that must not run as root: Postgres and code of tenants."""

import fcntl
import os
import pwd
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from windlass.core import telemetry

log = telemetry.logger("account")
NAME = "windlass"
PASSWD = Path("/etc/passwd")
# What runs so needs nothing of our environment, and gets none of our secrets.
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}


class AccountError(Exception):
    """A user that does not exist; the message says what to change."""


@dataclass(frozen=True)
class Account:
    """A user of this system."""

    name: str
    uid: int
    gid: int

    @property
    def foreign(self) -> bool:
        """True if it is a different user from the process's own."""
        return self.uid != os.geteuid()

    def becoming(self, *command: str) -> list[str]:
        """A command that becomes this user by itself, after a start without `launch_options`.

        subprocess would fork to change the user; with gRPC in this process a fork crashes.
        """
        if not self.foreign:
            return [*command]
        user = (f"--reuid={self.uid}", f"--regid={self.gid}", "--clear-groups")
        return ["setpriv", *user, "--", *command]

    def run(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        """Runs a program to its end as this user, and captures what it says."""
        return subprocess.run(
            command, check=False, capture_output=True, text=True, cwd="/", **self.launch_options()
        )

    def launch_options(self) -> dict[str, Any]:
        """The options by which subprocess starts a program as this user."""
        options: dict[str, Any] = {"env": ENVIRONMENT, "stdin": subprocess.DEVNULL, "umask": 0o077}
        if self.foreign:
            options |= {"user": self.uid, "group": self.gid, "extra_groups": []}
        return options

    def hindrance(self, folder: Path) -> str:
        """The obstacle that keeps this user from the folder, by trying it; empty without one."""
        tried = self.run("/bin/sh", "-c", 'cd -- "$1"', "sh", folder)
        return tried.stderr.strip() or f"exit code {tried.returncode}" if tried.returncode else ""

    def own(self, path: Path) -> None:
        """Gives it a path that we have made."""
        if self.foreign:
            os.chown(path, self.uid, self.gid, follow_symlinks=False)


def own_name() -> str:
    """The name of the user that we run as; raises AccountError if it has none."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError as error:
        raise AccountError(
            f"User id {os.geteuid()} has no name here: add it to /etc/passwd"
        ) from error


def server_account() -> Account:
    """Ourselves, or as root the system user `windlass`, made when missing; raises AccountError."""
    if os.geteuid() != 0:
        return Account(own_name(), os.geteuid(), os.getegid())
    try:
        entry = pwd.getpwnam(NAME)
    except KeyError:
        entry = _create_once()
    if entry.pw_uid == 0:
        raise AccountError(f"The user {NAME} is root, and has to be an ordinary one")
    return Account(NAME, entry.pw_uid, entry.pw_gid)


def _create_once() -> pwd.struct_passwd:
    # Of two useradd at once, the later replaces the entry of the earlier, with another uid. The
    # file is replaced by a rename: a process that opened it before waits here, then looks again.
    with PASSWD.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        try:
            return pwd.getpwnam(NAME)
        except KeyError:
            return _create()


def _create() -> pwd.struct_passwd:
    command = ["useradd", "--system", "--user-group", "--no-create-home"]
    command += ["--home-dir", "/nonexistent", "--shell", "/usr/sbin/nologin", NAME]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=ENVIRONMENT)
        trouble = done.stderr.strip()
    except OSError as error:
        trouble = str(error)
    try:
        entry = pwd.getpwnam(NAME)
    except KeyError as error:
        raise AccountError(
            f"Started as root, and the system user {NAME} cannot be made ({trouble}): "
            "make it, or start as another user"
        ) from error
    log.info("system_user_created", user=NAME)
    return entry
