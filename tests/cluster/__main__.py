"""`python -m tests.cluster build|up|down|status`: clusters by hand."""

import os
import sys
from concurrent.futures import ThreadPoolExecutor

from tests.cluster.provision import assets, lease, packages, programs
from tests.cluster.provision import site as sites

USAGE = """usage: python -m tests.cluster build            build the programs, once
       python -m tests.cluster up NAME...       start clusters that stay (--bare: no add-ons)
       python -m tests.cluster down [NAME...]   end clusters (all), --force: also those in use
       python -m tests.cluster status           what is built, and what runs"""


def main(words: list[str]) -> None:
    """Does what the words say."""
    match words:
        case ["build"]:
            build()
        case ["up", *names] if names:
            bare = "--bare" in names
            clusters = [name for name in names if name != "--bare"]
            with ThreadPoolExecutor() as pool:
                list(pool.map(lambda name: lease.keep(name, bare=bare), clusters))
            status()
        case ["down", *names]:
            force = "--force" in names
            for name in [name for name in names if name != "--force"] or running():
                lease.end(name, force=force)
        case ["status"]:
            status()
        case _:
            raise SystemExit(USAGE)


def build() -> None:
    """Builds programs, images and manifests, as far as they are missing."""
    packages.require()
    programs.build()
    assets.make()


def running() -> list[str]:
    """The names of the clusters that run."""
    folder = sites.running_folder()
    names = sorted(path.name for path in folder.iterdir()) if folder.exists() else []
    return [name for name in names if lease.is_ready(name)]


def status() -> None:
    """Prints what is built and what runs."""
    missing = programs.missing()
    if missing:
        print(f"not built: {', '.join(group.name for group in missing)} (make cluster)")
    else:
        print(f"kubectl: {programs.program('kubernetes', 'kubectl')}")
        print(f"helm:    {programs.program('helm')}")
    for name in running():
        site = sites.read(name)
        kept = "stays until `down`" if sites.marker(name, "keep").exists() else "while it is used"
        print(f"{name}: {site.kubeconfig()} (API {site.api}, host {site.host}, {kept})")


if __name__ == "__main__":
    if os.geteuid() != 0 and sys.argv[1:2] != ["build"]:
        raise SystemExit("only root may make network namespaces")
    try:
        main(sys.argv[1:])
    except lease.InUse as error:
        raise SystemExit(str(error)) from None
