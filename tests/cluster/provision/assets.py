"""Images and manifests that a cluster starts with, built once from its programs."""

import hashlib
import os
import shutil
from pathlib import Path

from tests.cluster.provision import images, manifests, programs


def folder() -> Path:
    """The folder of the assets; another program or another way to make them is another folder."""
    made_of = [str(group.folder()).encode() for group in programs.GROUPS]
    made_of += [Path(str(module.__file__)).read_bytes() for module in (images, manifests)]
    key = hashlib.sha256(b"\0".join(made_of)).hexdigest()
    return programs.cache_folder() / f"assets-{key[:12]}"


def make() -> Path:
    """Makes them if need be, and returns their folder."""
    target = folder()
    if target.exists():
        return target
    partial = target.with_name(f"{target.name}.{os.getpid()}")
    try:
        (partial / "images").mkdir(parents=True)
        (partial / "manifests").mkdir()
        images.write_images(partial / "images")
        manifests.write_manifests(partial / "manifests")
        partial.rename(target)
    except FileExistsError:
        pass
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target
