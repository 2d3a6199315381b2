"""Reads the configuration: flags over variables over the file over defaults."""

import os
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_settings import SettingsError

from windlass.core.config.mistakes import (
    ConfigError,
    of_values,
    of_variable,
    of_yaml,
    unknown_variables,
)
from windlass.core.config.settings import ConfigFile, Settings


def load(path: Path | None = None, flags: dict[str, Any] | None = None) -> Settings:
    """Reads the configuration.

    Raises OSError for a file that cannot be read, ConfigError that says which key is wrong.
    """
    try:
        settings = ConfigFile(**_document(path))
    except ValidationError as error:
        # Pydantic's own error quotes the value, which may be a password.
        raise of_values(error, Settings) from None
    except SettingsError as error:
        raise of_variable(error) from None
    for dotted, value in (flags or {}).items():
        if value is not None:
            section, _, key = dotted.rpartition(".")
            try:
                setattr(getattr(settings, section) if section else settings, key, value)
            except ValidationError as error:
                raise of_values(error, Settings, at=section) from None
    return settings


def unread_variables() -> list[tuple[str, str]]:
    """Returns this process's variables that look like settings and are none, and why."""
    return list(unknown_variables(os.environ, Settings))


def _document(path: Path | None) -> dict[str, Any]:
    if path is None:
        return {}
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except yaml.YAMLError as error:
        raise of_yaml(path, error) from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: the top level must be a mapping")
    if strange := [key for key in document if not isinstance(key, str)]:
        raise ConfigError(f"{path}: {strange[0]!r} is not the name of a setting")
    return document
