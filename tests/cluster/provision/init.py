"""Process 1 of a cluster: mounts, then starts programs and keeps them running.

The kernel ends every process of the cluster with this one, however this one ends. It has network,
mount and process namespaces of its own, so its mounts and interfaces go too.
"""

import os
import subprocess
import sys
from pathlib import Path

from tests.cluster.provision import control_plane, node, programs
from tests.cluster.provision.keeper import Keeper
from tests.cluster.provision.site import REPOSITORY, Site, read

# The kubelet would set these for the whole machine; it finds them set, in files of our own.
TUNABLES = {
    "vm/overcommit_memory": 1,
    "vm/panic_on_oom": 0,
    "kernel/panic": 10,
    "kernel/panic_on_oops": 1,
    "kernel/keys/root_maxkeys": 1000000,
    "kernel/keys/root_maxbytes": 25000000,
}


def main(name: str) -> None:
    """Runs until killed, once whoever started it closes its standard input."""
    sys.stdin.read()
    site = read(name)
    mount(site)
    os.environ["PATH"] = programs.search_path()
    keeper = Keeper(control_plane.commands(site) | node.commands(site), site.folder / "log")
    keeper.listen(site.folder / "control")
    keeper.reap()


def mount(site: Site) -> None:
    """Gives the programs a /run, /var/lib and /var/log of the cluster's own."""
    run("mount", "--make-rprivate", "/")
    cover(Path("/var/lib"), site.folder / "lib")
    cover(Path("/var/log"), site.folder / "log")
    run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    (site.folder / "tunables").mkdir()
    for name, value in TUNABLES.items():
        file = site.folder / "tunables" / name.replace("/", "-")
        file.write_text(f"{value}\n")
        run("mount", "--bind", str(file), f"/proc/sys/{name}")
    # Mounts of volumes must reach containers that run already.
    run("mount", "--make-rshared", "/")


def cover(path: Path, folder: Path) -> None:
    """Puts a folder in the place of another, without hiding what the programs are made of."""
    folder.mkdir(parents=True, exist_ok=True)
    needed = {REPOSITORY, programs.cache_folder(), Path(sys.prefix), Path(sys.base_prefix)}
    for kept in (other for other in needed if other.is_relative_to(path)):
        place = folder / kept.relative_to(path)
        place.mkdir(parents=True, exist_ok=True)
        run("mount", "--rbind", str(kept), str(place))
    run("mount", "--rbind", str(folder), str(path))


def run(*command: str) -> None:
    """Runs a command that must succeed."""
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main(sys.argv[1])
