"""Container images without a builder or a registry: one layer, in an archive for containerd."""

import hashlib
import io
import json
import subprocess
import tarfile
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.provision.node import PAUSE
from tests.cluster.provision.programs import program

# Official manifests run as non-root without naming a user, so the image must name one.
NOBODY = "65532:65532"
BUSYBOX = "windlass.local/busybox:1"
FOLDERS = ("bin", "dev", "etc", "home", "proc", "root", "run", "sys", "tmp", "usr", "var")


@dataclass(frozen=True)
class Image:
    """Contents of an image: executable files by path, and symbolic links."""

    name: str
    files: dict[str, bytes]
    entrypoint: list[str]
    user: str = ""
    links: dict[str, str] = field(default_factory=dict)

    def write(self, path: Path) -> None:
        """Writes the archive that `ctr images import` takes."""
        layer = self._layer()
        digest = hashlib.sha256(layer).hexdigest()
        config = json.dumps(
            {
                "architecture": "amd64",
                "os": "linux",
                "config": {
                    "User": self.user,
                    "Entrypoint": self.entrypoint,
                    "Env": ["PATH=/bin:/usr/bin"],
                },
                "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
                "history": [{}],
            }
        ).encode()
        named = f"{hashlib.sha256(config).hexdigest()}.json"
        manifest = {"Config": named, "RepoTags": [self.name], "Layers": [f"{digest}/layer.tar"]}
        with tarfile.open(path, "w") as tar:
            _add(tar, named, config)
            _add(tar, f"{digest}/layer.tar", layer)
            _add(tar, "manifest.json", json.dumps([manifest]).encode())

    def _layer(self) -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for folder in FOLDERS:
                info = tarfile.TarInfo(folder)
                info.type, info.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
                tar.addfile(info)
            for path, data in self.files.items():
                _add(tar, path, data)
            for path, target in self.links.items():
                info = tarfile.TarInfo(path)
                info.type, info.linkname = tarfile.SYMTYPE, target
                tar.addfile(info)
        return buffer.getvalue()


def _add(tar: tarfile.TarFile, path: str, data: bytes) -> None:
    info = tarfile.TarInfo(path)
    info.size, info.mode = len(data), 0o755
    tar.addfile(info, io.BytesIO(data))


def write_images(folder: Path) -> None:
    """Writes the archive of every image that a cluster has from the start."""
    box = Path("/bin/busybox").read_bytes()
    listed = subprocess.run(["/bin/busybox", "--list"], capture_output=True, text=True, check=True)
    links = {f"bin/{name}": "busybox" for name in listed.stdout.split() if name != "busybox"}
    users = b"root:x:0:0::/root:/bin/sh\nnobody:x:65532:65532::/tmp:/bin/sh\n"
    files = {"bin/busybox": box, "etc/passwd": users, "etc/group": b"nobody:x:65532:\n"}
    # The runtime kills a sandbox's process at once, so sleeping is all that it need do.
    pause = Image(PAUSE, files, ["/bin/busybox", "sleep", "2147483647"])
    made = {
        "pause": pause,
        "busybox": Image(BUSYBOX, files, ["/bin/sh"], NOBODY, links),
        "kueue": manager("kueue", program("kueue")),
        "jobset": manager("jobset", program("jobset")),
        "lws": manager("lws", program("lws")),
        "trainer": manager("trainer", program("trainer", "trainer-controller-manager")),
        "dra": driver(),
    }
    for name, image in made.items():
        image.write(folder / f"{name}.tar")


def manager(name: str, path: Path) -> Image:
    """The image of a controller whose manifest starts /manager."""
    return Image(f"windlass.local/{name}:1", {"manager": path.read_bytes()}, ["/manager"], NOBODY)


def driver() -> Image:
    """The image of the DRA driver."""
    name = "dra-example-kubeletplugin"
    files = {f"bin/{name}": program("dra", name).read_bytes()}
    return Image("windlass.local/dra:1", files, [f"/bin/{name}"])
