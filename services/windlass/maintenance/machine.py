"""Looks at this machine: certificates, disk, memory, sockets, walls, GPUs and ports."""

import datetime as dt
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
from cryptography import x509

from windlass.confinement import NoConfinement, confinement
from windlass.core.app import runtime_dir
from windlass.core.config import Settings
from windlass.maintenance.diagnosis import CheckResult, fail, ok, warn
from windlass_agent.machine import Device, look, nvidia

_DAYS = 21
_DISK_BYTES = 5 * 10**9
_MEMORY_BYTES = 2 * 10**9
_INSTALL = "Install bubblewrap and util-linux, and allow user namespaces."


def check_machine(settings: Settings) -> list[CheckResult]:
    """Checks each part of this machine that a server needs; returns a line or more for each."""
    found = [*_certificates(settings), _disk(settings.data_dir), _memory()]
    found += [_sockets(settings), *_ports(settings)]
    if settings.agent.enabled:
        found += [_walls(settings), _gpus(settings)]
    return found


def _certificates(settings: Settings) -> Iterator[CheckResult]:
    listeners = {
        "http.tls": settings.http.tls.certificate,
        "grpc.tls": settings.grpc.tls.certificate,
        "sessions.kubernetes": settings.sessions.kubernetes.certificate,
    }
    for name, path in listeners.items():
        if path is None:
            continue
        part = f"certificate {name}"
        try:
            end = x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
        except (OSError, ValueError) as error:
            yield fail(part, f"{path} cannot be read: {error}", "Name a PEM file.")
            continue
        left = end - dt.datetime.now(dt.UTC)
        text = f"{path} is valid until {end:%Y-%m-%d}."
        if left < dt.timedelta():
            yield fail(part, f"{path} ended on {end:%Y-%m-%d}.", "Renew it, and restart.")
        elif left < dt.timedelta(days=_DAYS):
            yield warn(part, text, f"Renew it: {left.days} days are left.")
        else:
            yield ok(part, text)


def _disk(folder: Path) -> CheckResult:
    while not folder.exists():
        folder = folder.absolute().parent
    usage = shutil.disk_usage(folder)
    text = f"{usage.free / 1e9:.1f} GB of {usage.total / 1e9:.1f} GB are free at {folder}."
    if usage.free >= _DISK_BYTES:
        return ok("disk", text)
    return warn("disk", text, "Free some, or move data_dir: models and checkpoints need it.")


def _memory() -> CheckResult:
    memory = psutil.virtual_memory()
    text = f"{memory.available / 1e9:.1f} GB of {memory.total / 1e9:.1f} GB are available."
    if memory.available >= _MEMORY_BYTES:
        return ok("memory", text)
    return warn("memory", text, "Stop engines or other programs: a trainer needs 2 GB or more.")


def _sockets(settings: Settings) -> CheckResult:
    if not settings.data_dir.is_dir():
        return ok("sockets", "The first start makes their folder.")
    try:
        folder = runtime_dir(settings.data_dir)
    except OSError as error:
        return fail("sockets", str(error), "Start as the user who owns the data folder.")
    up = [path.stem for path in sorted(folder.glob("*.sock")) if _answers(path)]
    running = f"running: {', '.join(up)}" if up else "no server is running"
    return ok("sockets", f"They are in {folder}; {running}.")


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(1)
        return probe.connect_ex(str(path)) == 0


def _ports(settings: Settings) -> Iterator[CheckResult]:
    if settings.http.port:
        yield _port("http.port", settings.http.host, settings.http.port)
    host, _, port = settings.grpc.listen.rpartition(":")
    if port.isdecimal() and int(port):
        yield _port("grpc.listen", host.strip("[]"), int(port))


def _port(name: str, host: str, port: int) -> CheckResult:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            text = f"{host}:{port}: {error.strerror}."
            return warn(name, text, f"Right if this server is running; else choose another {name}.")
    return ok(name, f"{host}:{port} is free.")


def _walls(settings: Settings) -> CheckResult:
    mode = settings.agent.confinement
    if mode == "off":
        return warn("confinement", "It is off.", "Set agent.confinement to preferred or required.")
    try:
        confinement("required")
    except NoConfinement as error:
        level = fail if mode == "required" else warn
        return level("confinement", f"{error}.", _INSTALL)
    return ok("confinement", "Engines, jobs and graders run behind walls.")


def _gpus(settings: Settings) -> CheckResult:
    devices = look(settings.agent.gpus).devices
    if unseen := [one.id for one in devices if not _is_seen(one)]:
        said = f"No driver shows {', '.join(unseen)} of agent.gpus."
        return warn("gpus", said, "Name others (`nvidia-smi -L` lists them), or install a driver.")
    if devices:
        names = ", ".join(f"{one.product} ({one.memory_bytes / 1e9:.0f} GB)" for one in devices)
        return ok("gpus", f"{len(devices)}: {names}.")
    if settings.agent.gpus is None and (there := len(nvidia.minors(nvidia.DRIVER))):
        said = f"The NVIDIA driver has {there}, and nvidia-smi shows none."
        return warn("gpus", said, "See what `nvidia-smi` says; CUDA_VISIBLE_DEVICES may hide them.")
    return ok("gpus", "None; work runs on the CPUs.")


def _is_seen(device: Device) -> bool:
    # Of a part of a GPU nothing is known but its id.
    return bool(device.product) or device.id.startswith("MIG-")
