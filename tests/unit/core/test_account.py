"""The system user is made once, however many processes start at once."""

import os
import pwd
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from windlass.core import account


def test_processes_that_start_at_once_make_one_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made: list[list[str]] = []
    passwd = tmp_path / "passwd"
    passwd.touch()

    def useradd(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        # It replaces the file, and an entry of the same name too.
        made.append(command)
        (tmp_path / "new").write_text(str(990 + len(made)))
        (tmp_path / "new").rename(passwd)
        return subprocess.CompletedProcess(command, 0, "", "")

    def entry(_name: str) -> Any:
        if not (uid := passwd.read_text()):
            raise KeyError(_name)
        return SimpleNamespace(pw_uid=int(uid), pw_gid=990)

    monkeypatch.setattr(account, "PASSWD", passwd)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(subprocess, "run", useradd)
    monkeypatch.setattr(pwd, "getpwnam", entry)
    with ThreadPoolExecutor(8) as pool:
        accounts = list(pool.map(lambda _: account.server_account(), range(8)))
    assert len(made) == 1
    assert {one.uid for one in accounts} == {991}
