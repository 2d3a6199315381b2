"""A sandbox for python graders, made as the installation makes it."""

import shutil

from tests.support.environments.required import lacking

from windlass.sandbox import NoSandbox, Sandbox, make_sandbox


def needed_sandbox() -> Sandbox:
    """Returns a sandbox; skips or fails the test where the machine allows none."""
    if shutil.which("bwrap") is None:
        lacking("bubblewrap is not installed: apt-get install bubblewrap")
    try:
        return make_sandbox()
    except NoSandbox as error:
        lacking(str(error))
