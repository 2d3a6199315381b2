"""Checks of a configuration before anything starts with it."""

import os
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import BaseModel

from windlass.core.config import (
    KubernetesListenerSection,
    Settings,
    TlsSection,
    is_loopback,
)


@dataclass(frozen=True)
class Finding:
    """One thing that `check` found: what, why, and whether it prevents a start."""

    level: Literal["error", "warning"]
    key: str
    message: str


def check(settings: Settings) -> list[Finding]:
    """The findings that would fail at start, and those an operator should know."""
    found: list[Finding] = []

    def error(key: str, message: str) -> None:
        found.append(Finding("error", key, message))

    def warn(key: str, message: str) -> None:
        found.append(Finding("warning", key, message))

    if not is_loopback(settings.http.host) and not settings.http.tls.enabled:
        error("http.tls", f"{settings.http.host} is not loopback, so the listener needs TLS.")
    grpc_host = settings.grpc.listen.rpartition(":")[0]
    if grpc_host and not is_loopback(grpc_host) and not settings.grpc.tls.enabled:
        error("grpc.tls", f"{grpc_host} is not loopback, so the listener needs TLS.")
    found += _check_kubernetes(settings.sessions.kubernetes)
    operations_host = settings.operations.listen.rpartition(":")[0]
    if operations_host and not is_loopback(operations_host):
        warn(
            "operations.listen",
            f"{operations_host} is not loopback: anybody who reaches it can read it, since "
            "it asks for no key.",
        )
    if settings.objects.kind == "s3" and not settings.objects.bucket:
        error("objects.bucket", "An S3 store needs a bucket.")
    found += [*_check_mail(settings), *_check_sharing(settings)]
    return found


def check_files(settings: Settings) -> list[Finding]:
    """The findings on files that the configuration names: missing, closed, or no certificates."""
    found = []
    for key, path in _files(settings, ""):
        if trouble := _unreadable(path):
            found.append(Finding("error", key, f"{path} {trouble}."))
    for key, needed in _tokens(settings):
        if trouble := _unreadable(needed) if needed else "must be set":
            found.append(Finding("error", key, f"{needed or 'It'} {trouble}."))
    broken = {finding.key for finding in found}
    listeners: dict[str, TlsSection | KubernetesListenerSection] = {
        "http.tls": settings.http.tls,
        "grpc.tls": settings.grpc.tls,
        "sessions.kubernetes": settings.sessions.kubernetes,
    }
    for where, pair in listeners.items():
        if not broken & {f"{where}.certificate", f"{where}.key"} and (
            trouble := _unfit(pair.certificate, pair.key)
        ):
            found.append(Finding("error", f"{where}.certificate", trouble))
    return found


def _files(section: BaseModel, at: str) -> Iterator[tuple[str, Path]]:
    """Every setting that names a file."""
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            yield from _files(value, f"{at}{name}.")
        elif isinstance(value, Path) and field.default is None:
            yield f"{at}{name}", value


def _tokens(settings: Settings) -> Iterator[tuple[str, Path | None]]:
    """The files that tokens of tenants' keys need."""
    for name, token in settings.external_keys.tokens.items():
        yield f"external_keys.tokens.{name}.module", token.module
        if token.pin_file is not None:
            yield f"external_keys.tokens.{name}.pin_file", token.pin_file


def _unreadable(path: Path) -> str:
    if not path.exists():
        return "does not exist, or lies in a folder that is closed to this user"
    if not path.is_file():
        return "is no file"
    return "" if os.access(path, os.R_OK) else "cannot be read by this user"


def _unfit(certificate: Path | None, key: Path | None) -> str:
    if certificate is None or key is None:
        return ""
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or str(error)
        return f"{certificate} and {key} are no PEM pair of a certificate and its key: {reason}."
    except OSError as error:
        return f"{certificate} cannot be read: {error.strerror}."
    return ""


def _check_mail(settings: Settings) -> Iterator[Finding]:
    if not settings.mail.host:
        return
    if not settings.mail.sender:
        yield Finding("error", "mail.sender", "Must be set where mail.host is.")
    if not settings.http.public_url:
        message = "Must be set where mail.host is: the links of invites begin with it."
        yield Finding("error", "http.public_url", message)
    if settings.mail.tls == "none" and not is_loopback(settings.mail.host):
        message = f"{settings.mail.host} is not loopback, so links and passwords need TLS."
        yield Finding("error", "mail.tls", message)


def _check_sharing(settings: Settings) -> list[Finding]:
    """Findings on what several processes must share: database, objects, master key."""
    found = []
    has_database = bool(settings.database.url.get_secret_value())
    if settings.targets != ["all"]:
        if not has_database:
            message = "Targets in several processes need a shared Postgres; set database.url."
            found.append(Finding("error", "database.url", message))
        if settings.objects.kind == "filesystem":
            message = (
                "A local folder is shared only by processes on one machine; on "
                "several machines use s3."
            )
            found.append(Finding("warning", "objects.kind", message))
    elif not has_database:
        message = "Not set: a private Postgres under data_dir is used."
        found.append(Finding("warning", "database.url", message))
    if has_database and not settings.master_key.is_shared:
        message = (
            "Not set: a key is made under data_dir, and a process with another data "
            "folder cannot start."
        )
        found.append(Finding("warning", "master_key", message))
    return found


def _check_kubernetes(listener: KubernetesListenerSection) -> list[Finding]:
    where = "sessions.kubernetes"
    host, _, port = listener.listen.rpartition(":")
    wrong = []
    if listener.listen and not (host and port.isdecimal() and int(port) < 65536):
        wrong.append((f"{where}.listen", "Must be host:port, with a port from 0 to 65535."))
    elif listener.listen and listener.tls == "terminated":
        if not is_loopback(host):
            why = f"{host} is not loopback, and tls: terminated is plain HTTP. Use tls: own."
            wrong.append((f"{where}.tls", why))
        if not listener.public_url:
            wrong.append(
                (
                    f"{where}.public_url",
                    "Required with tls: terminated: the https:// URL by which clients reach "
                    "the ingress.",
                )
            )
    elif host in ("0.0.0.0", "[::]") and not listener.public_url:  # noqa: S104
        wrong.append(
            (
                f"{where}.public_url",
                f"{host} is not an address that clients can call; set the https:// URL that "
                "they use.",
            )
        )
    if (listener.certificate is None) != (listener.key is None):
        wrong.append((f"{where}.key", "A certificate and its key must be set together."))
    return [Finding("error", key, message) for key, message in wrong]
