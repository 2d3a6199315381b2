"""Kubeflow's own initializers in pods, unmodified: what their images are made of, without images.

Their Dockerfiles copy the sources, which come with the module that Trainer is built of, and install
what its lock pins; so does this, into an environment of their own.
"""

import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

from tests.cluster.cluster import TestCluster
from tests.cluster.objects.runtimes import Object
from tests.cluster.objects.volumes import Python
from tests.cluster.provision.manifests import TRAINER
from tests.cluster.provision.programs import BY_NAME, module_folder
from tests.cluster.provision.site import REPOSITORY

# Below the repository, which pods have.
FOLDER = REPOSITORY / "build" / "initializers-env"
SOURCES = FOLDER / "app"
# The others are for `cache://`, which starts a cluster of its own.
NEEDED = ("huggingface-hub", "opendal")


def ensure() -> Path:
    """Their Python; makes it at most once for each Trainer, for which it needs Go."""
    python = FOLDER / "bin" / "python"
    stamp = FOLDER / "trainer"
    wanted = BY_NAME["trainer"].folder().name
    if stamp.exists() and stamp.read_text() == wanted:
        return python
    shutil.rmtree(FOLDER, ignore_errors=True)
    venv.create(FOLDER, with_pip=True)
    trainer = module_folder("trainer", TRAINER)
    needed = pins(trainer / "cmd" / "initializers" / "dataset" / "uv.lock")
    command = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *needed]
    subprocess.run(command, check=True, stdout=sys.stderr)
    # Go's cache is read-only, and a copy need not be.
    target = SOURCES / "pkg" / "initializers"
    shutil.copytree(trainer / "pkg" / "initializers", target, copy_function=shutil.copyfile)
    for folder in (SOURCES, *filter(Path.is_dir, SOURCES.rglob("*"))):
        folder.chmod(0o755)
    stamp.write_text(wanted)
    return python


def pins(lock: Path) -> list[str]:
    """The pins of the image, of the packages that we need."""
    found = {one["name"]: one["version"] for one in tomllib.loads(lock.read_text())["package"]}
    return [f"{name}=={found[name]}" for name in NEEDED]


def equip(runtime: Object, cluster: TestCluster, python: Python) -> None:
    """Has the pods of a runtime run its programs from this machine; all else stays."""
    for job in runtime["spec"]["template"]["spec"]["replicatedJobs"]:
        pod = job["template"]["spec"]["template"]["spec"]
        pod.setdefault("volumes", []).extend(python.volumes)
        (container,) = pod["containers"]
        container |= {"image": cluster.image, "imagePullPolicy": "Never"}
        container["volumeMounts"] += python.mounts
        kind, is_initializer, _ = job["name"].partition("-initializer")
        if is_initializer:
            # The entry point of their images, beside their sources.
            container["command"] = [str(ensure()), "-m", f"pkg.initializers.{kind}"]
            # Their image has authorities in its own /etc/ssl, without which opendal does not start.
            found = {"PYTHONPATH": SOURCES, "SSL_CERT_FILE": next(FOLDER.rglob("cacert.pem"))}
            container["env"] += [{"name": name, "value": str(path)} for name, path in found.items()]
        else:
            path = f"{Path(python.program).parent}:/usr/bin:/bin"
            container["env"].append({"name": "PATH", "value": path})
