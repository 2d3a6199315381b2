"""Debian packages that a cluster needs besides Go modules."""

import os
import shutil
import subprocess
from pathlib import Path

# What must be there, and the package that brings it.
NEEDED = {
    "ip": "iproute2",
    "nft": "nftables",
    "iptables": "iptables",
    "ipset": "ipset",
    "unshare": "util-linux",
    "mount": "mount",
    "gcc": "gcc",
    "pkg-config": "pkg-config",
    "/bin/busybox": "busybox-static",
    "/usr/include/seccomp.h": "libseccomp-dev",
}


def missing() -> list[str]:
    """The packages that are still to be installed."""
    return sorted({package for need, package in NEEDED.items() if not is_there(need)})


def is_there(need: str) -> bool:
    """True where a file, or a command of that name, exists."""
    if need.startswith("/"):
        return Path(need).exists()
    return shutil.which(need, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin") is not None


def require() -> None:
    """Installs what is missing, as root on Debian; otherwise says what to install."""
    packages = missing()
    if not packages:
        return
    command = ["apt-get", "install", "--yes", "--no-install-recommends", *packages]
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise SystemExit(f"A test cluster needs more of the system: {' '.join(command)}")
    print(f"Installing from the system's packages: {' '.join(packages)}")
    subprocess.run(["apt-get", "update", "--quiet=2"], check=False)
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
