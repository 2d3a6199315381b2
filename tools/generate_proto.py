"""Generate `windlass.api` from `proto/`: messages, stubs and their types.

Run with the pinned grpcio-tools (older than the runtime, see docs/adr/0002):
`python tools/generate_proto.py [OUTPUT_ROOT]`. The output root defaults to `services`.
"""

import re
import shutil
import sys
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc

ROOT = Path(__file__).resolve().parent.parent


def generate(output: Path) -> None:
    """Write `<output>/windlass/api` afresh from every file under `proto/`.

    Raises RuntimeError when protoc refuses a file.
    """
    package = output / "windlass" / "api"
    shutil.rmtree(package, ignore_errors=True)
    package.mkdir(parents=True)
    sources = sorted(str(path) for path in (ROOT / "proto").rglob("*.proto"))
    arguments = [
        "protoc",
        f"-I{ROOT / 'proto'}",
        f"-I{files('grpc_tools') / '_proto'}",
        f"--python_out={output}",
        f"--mypy_out={output}",
        f"--grpc_python_out={output}",
        f"--mypy_grpc_out={output}",
        *sources,
    ]
    if protoc.main(arguments) != 0:
        raise RuntimeError("protoc failed")
    for stubs in package.rglob("*_pb2_grpc.py"):
        name_async_stubs(stubs)
    for folder in [package, *(path for path in package.rglob("*") if path.is_dir())]:
        (folder / "__init__.py").touch()


def name_async_stubs(path: Path) -> None:
    """Give each stub the name that its types have for it on an asyncio channel.

    mypy-protobuf types `JobsServiceAsyncStub`; at run time it is the same class.
    """
    text = path.read_text()
    names = re.findall(r"^class (\w+)Stub\(object\):", text, flags=re.MULTILINE)
    aliases = "".join(f"{name}AsyncStub = {name}Stub\n" for name in names)
    if aliases:
        path.write_text(f"{text}\n\n{aliases}")


if __name__ == "__main__":
    generate(Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / "services")
