"""The section of mail."""

from pathlib import Path
from typing import Literal

from pydantic import Field, SecretStr

from windlass.core.config.sections import Section


class MailSection(Section):
    """The server that mail is handed to: invites, and notices of keys that are about to end."""

    host: str = Field(
        "",
        pattern=r"^[A-Za-z0-9.:_-]*$",
        description="Name or address of the SMTP server; empty: nothing is mailed.",
    )
    port: int = Field(587, ge=1, le=65_535, description="Port of the SMTP server.")
    tls: Literal["starttls", "implicit", "none"] = Field(
        "starttls",
        description="How the connection is secured; `none` is for a relay on this machine.",
    )
    ca: Path | None = Field(
        None, description="PEM file of CAs trusted for the server; empty: the system's."
    )
    user: str = Field("", description="Name to log in with; empty: no log-in.")
    password: SecretStr = Field(SecretStr(""), description="Password of `user`.")
    password_file: Path | None = Field(
        None, description="File of the password, read at each log-in; precedes `password`."
    )
    sender: str = Field(
        "",
        pattern=r"^(|[^\s@<>,;:\"]+@[^\s@<>,;:\"]+)$",
        description="Address that mail comes from.",
    )

    def user_password(self) -> str:
        """Return the password; raises OSError where its file cannot be read."""
        if self.password_file:
            return self.password_file.read_text().strip()
        return self.password.get_secret_value()
