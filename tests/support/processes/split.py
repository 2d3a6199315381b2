"""Installations of two processes that call each other over TLS."""

import base64
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from tests.support.processes.windlass import Windlass, free_port

from windlass.core.app import runtime_dir
from windlass.sessions.listener.certificates import own_certificate

MASTER_KEY = base64.b64encode(os.urandom(32)).decode()


def two_processes(
    data: Path, url: str, halves: Mapping[str, Sequence[str]], settings: Mapping[str, Any]
) -> Windlass:
    """Configures two processes of the targets that stand behind their names, on one database."""
    data.mkdir(mode=0o711)
    certificate, key, ca = own_certificate(data / "tls", {"127.0.0.1"})
    ports = {half: free_port() for half in halves}
    made = Windlass(data, free_port())
    for half, targets in halves.items():
        (other,) = set(halves) - {half}
        document = {
            "targets": list(targets),
            "data_dir": str(data),
            "http": {"port": made.port},
            "grpc": {
                "listen": f"127.0.0.1:{ports[half]}",
                "tls": {"certificate": str(certificate), "key": str(key)},
                "peer_ca": str(ca),
            },
            "peers": dict.fromkeys(halves[other], f"grpcs://127.0.0.1:{ports[other]}"),
            "database": {"url": url, "migrate": False, "pool_size": 4},
            "master_key": {"key": MASTER_KEY},
            **settings,
        }
        made.configs[half] = data / f"{half}.yaml"
        made.configs[half].write_text(yaml.safe_dump(document))
    return made


def socket_of(made: Windlass, targets: Sequence[str]) -> Path:
    """The socket of the process of these targets, which agents may use."""
    return runtime_dir(made.data) / f"{'-'.join(sorted(targets))[:40]}.sock"
