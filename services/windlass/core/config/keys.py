"""The sections of keys that wrap other keys: the installation's master key, and tenants' own."""

from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, SecretStr

from windlass.core.config.sections import Section, TenantId

_LABEL = r"^[^\x00-\x1f:]*$"


class VaultTransitSection(Section):
    """A key in the transit engine of HashiCorp Vault or OpenBao."""

    address: str = Field(
        "", pattern=r"^(|https?://[^/]+)$", description="URL of Vault; empty: Vault is not used."
    )
    mount: str = Field(
        "transit", pattern=r"^[\w./-]+$", description="Path where the transit engine is mounted."
    )
    key: str = Field(
        "windlass", pattern=r"^[\w.-]+$", description="Name of the key in the transit engine."
    )
    namespace: str = Field("", description="Namespace in Vault Enterprise.")
    token: SecretStr = Field(
        SecretStr(""), description="Token that may encrypt and decrypt with the key."
    )
    token_file: Path | None = Field(
        None, description="File of the token, read at each use; precedes `token`."
    )
    ca: Path | None = Field(
        None, description="PEM file of CAs trusted for the address; empty: the system's."
    )


class AwsKmsSection(Section):
    """A symmetric key of AWS KMS; credentials come from boto3's usual places."""

    key_arn: str = Field(
        "",
        pattern=r"^(|arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/[\w-]+)$",
        description="ARN of the key; empty: AWS KMS is not used.",
    )
    region: str = Field("", description="Region of the requests; empty: the ARN's.")
    endpoint: str = Field("", description="URL of KMS; empty: AWS's own of the region.")
    sts_endpoint: str = Field("", description="URL of STS, for `role_arn`; empty: AWS's own.")
    role_arn: str = Field("", description="Role to assume for the key; empty: none.")
    external_id: str = Field("", description="External id to assume the role with; empty: none.")


class TokenSection(Section):
    """A PKCS#11 token, such as a hardware security module, and how to log in to it."""

    module: Path | None = Field(
        None, description="Shared library of the token's maker; empty: no token is used."
    )
    token: str = Field("windlass", pattern=_LABEL, description="Label of the token.")
    pin: SecretStr = Field(SecretStr(""), description="PIN of the token's user.")
    pin_file: Path | None = Field(
        None, description="File of the PIN, read at each log-in; precedes `pin`."
    )

    def user_pin(self) -> str:
        """Return the PIN; raises OSError where its file cannot be read."""
        return self.pin_file.read_text().strip() if self.pin_file else self.pin.get_secret_value()


class Pkcs11Section(TokenSection):
    """An AES key in a PKCS#11 token, sensitive and not extractable."""

    key: str = Field("windlass", pattern=_LABEL, description="Label of the key that seals.")
    former_keys: list[Annotated[str, Field(pattern=_LABEL)]] = Field(
        [], description="Labels of keys that sealed before, and open what they sealed."
    )


class MasterKeySection(Section):
    """Master key of the installation's secrets; every process needs the same.

    With all of it empty, a key is made in `data_dir/keys/master.key`. Where several are named, one
    seals and each opens what it sealed.
    """

    key: SecretStr = Field(
        SecretStr(""),
        description="Base64 of 32 bytes; to rotate, several separated by commas, the newest first.",
    )
    file: Path | None = Field(
        None, description="File that holds the key, such as a mounted Kubernetes Secret."
    )
    keeper: Literal["", "vault", "pkcs11", "aws", "local"] = Field(
        "", description="Which of those named here seals; empty: the first of the list that is."
    )
    vault: VaultTransitSection = VaultTransitSection()
    pkcs11: Pkcs11Section = Pkcs11Section()
    aws: AwsKmsSection = AwsKmsSection()

    @property
    def is_remote(self) -> bool:
        """True if a keeper is named that never hands its key out."""
        return bool(self.vault.address or self.pkcs11.module or self.aws.key_arn)

    @property
    def is_shared(self) -> bool:
        """True if the key comes from outside the data folder."""
        return bool(self.key.get_secret_value() or self.file or self.is_remote)


class TenantTokenSection(TokenSection):
    """A PKCS#11 token whose keys some tenants may use."""

    organizations: list[TenantId] = Field(
        [], description="Ids of the organizations that may name keys of the token."
    )


class ExternalKeysSection(Section):
    """Keys of tenants' own that wrap their projects' data keys."""

    cache_seconds: int = Field(
        300,
        ge=1,
        le=3600,
        description="Time for which an unwrapped data key is kept, so that a key that was revoked "
        "still opens secrets and objects.",
    )
    allowed_networks: list[IPv4Network | IPv6Network] = Field(
        [], description="Networks (CIDR) that are not public and tenants' Vault may be in."
    )
    allow_http: bool = Field(False, description="Accept a Vault at an http:// URL too.")
    aws: bool = Field(
        True, description="Accept keys of AWS KMS; this process's AWS identity assumes their roles."
    )
    kms_endpoint: str = Field("", description="URL of KMS; empty: AWS's own of each region.")
    sts_endpoint: str = Field("", description="URL of STS; empty: AWS's own.")
    tokens: dict[Annotated[str, Field(pattern=r"^[a-z0-9-]{1,32}$")], TenantTokenSection] = Field(
        {},
        description="PKCS#11 tokens by the name that tenants know them by, each with `module`, "
        "`token`, `pin` or `pin_file`, and `organizations`.",
    )
