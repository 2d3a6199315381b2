"""Real PKCS#11 tokens of SoftHSM, in a folder of their own."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.environments.required import lacking

PIN = "4321"
_MODULES = ("/usr/lib/softhsm/libsofthsm2.so", "/usr/lib64/pkcs11/libsofthsm2.so")
# Of another process, since one process has one state of a module.
_ACT = """
import sys, pkcs11
from pkcs11 import Attribute, KeyType, ObjectClass
module, token, pin, action, label, readable = sys.argv[1:]
with pkcs11.lib(module).get_token(token_label=token).open(rw=True, user_pin=pin) as session:
    if action == "make":
        kept = {Attribute.SENSITIVE: not readable, Attribute.EXTRACTABLE: bool(readable)}
        session.generate_key(KeyType.AES, 256, label=label, store=True, template=kept)
    else:
        session.get_key(object_class=ObjectClass.SECRET_KEY, label=label).destroy()
"""


@dataclass(frozen=True)
class SoftHsm:
    """Tokens that a process finds which has this module and this environment."""

    module: Path
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        return {"SOFTHSM2_CONF": str(self.folder / "softhsm2.conf")}

    def token(self, label: str) -> str:
        """Makes a token, and returns its label."""
        made = ("--init-token", "--free", "--label", label, "--pin", PIN, "--so-pin", "87654321")
        self._run(*made)
        return label

    def key(self, token: str, label: str, *, readable: bool = False) -> str:
        """Makes an AES key in a token, and returns its label."""
        self._do("make", token, label, "yes" if readable else "")
        return label

    def destroy(self, token: str, label: str) -> None:
        """Removes a key from a token for good."""
        self._do("destroy", token, label, "")

    @contextmanager
    def away(self) -> Iterator[None]:
        """Takes the tokens out."""
        there, gone = self.folder / "tokens", self.folder / "gone"
        there.rename(gone)
        try:
            yield
        finally:
            shutil.rmtree(there, ignore_errors=True)
            gone.rename(there)

    def _do(self, action: str, token: str, label: str, readable: str) -> None:
        arguments = (str(self.module), token, PIN, action, label, readable)
        environment = {**os.environ, **self.environment}
        subprocess.run((sys.executable, "-c", _ACT, *arguments), env=environment, check=True)

    def _run(self, *arguments: str) -> None:
        command = ("softhsm2-util", *arguments)
        environment = {**os.environ, **self.environment}
        subprocess.run(command, env=environment, check=True, capture_output=True)


def made(folder: Path) -> SoftHsm:
    """Returns a place of tokens, or skips the test where SoftHSM is not installed."""
    module = next((Path(one) for one in _MODULES if Path(one).exists()), None)
    if module is None or shutil.which("softhsm2-util") is None:
        lacking("SoftHSM is not installed (apt install softhsm2)")
    (folder / "tokens").mkdir()
    found = SoftHsm(module, folder)
    text = f"directories.tokendir = {folder / 'tokens'}\nobjectstore.backend = file\n"
    Path(found.environment["SOFTHSM2_CONF"]).write_text(text + "log.level = ERROR\n")
    return found
