"""The whole configuration, section by section."""

from ipaddress import ip_address
from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from windlass.core.config.agent import AgentSection
from windlass.core.config.folders import DataFolder
from windlass.core.config.keys import ExternalKeysSection, MasterKeySection
from windlass.core.config.mail import MailSection
from windlass.core.config.quotas import QuotasSection
from windlass.core.config.residency import ResidencySection
from windlass.core.config.sections import (
    AgentsSection,
    AuditSection,
    AuthSection,
    DatabaseSection,
    FilesSection,
    GradersSection,
    GrpcSection,
    HttpSection,
    HubSection,
    InferenceSection,
    JobsSection,
    LeavingSection,
    LimitsSection,
    ObjectsSection,
    OidcSection,
    OperationsSection,
    SessionsSection,
    SignInSection,
    TrackingSection,
    UsageSection,
    WebhooksSection,
)
from windlass.core.config.tuning import TuningSection


class Settings(BaseSettings):
    """Everything that can be set."""

    model_config = SettingsConfigDict(
        env_prefix="WINDLASS_", env_nested_delimiter="__", extra="ignore"
    )

    targets: list[str] = Field(["all"], description="Services of this process.")
    data_dir: DataFolder = Field(
        Path("data"), description="Folder of keys, objects and the database."
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        "INFO", description="Lowest level that is logged."
    )
    http: HttpSection = HttpSection()
    grpc: GrpcSection = GrpcSection()
    operations: OperationsSection = OperationsSection()
    peers: dict[str, str] = Field(
        {}, description="Addresses of services in other processes, by service."
    )
    database: DatabaseSection = DatabaseSection()
    objects: ObjectsSection = ObjectsSection()
    residency: ResidencySection = ResidencySection()
    auth: AuthSection = AuthSection()
    master_key: MasterKeySection = MasterKeySection()
    external_keys: ExternalKeysSection = ExternalKeysSection()
    limits: LimitsSection = LimitsSection()
    quotas: QuotasSection = QuotasSection()
    usage: UsageSection = UsageSection()
    leaving: LeavingSection = LeavingSection()
    files: FilesSection = FilesSection()
    jobs: JobsSection = JobsSection()
    webhooks: WebhooksSection = WebhooksSection()
    oidc: OidcSection = OidcSection()
    sign_in: SignInSection = SignInSection()
    mail: MailSection = MailSection()
    audit: AuditSection = AuditSection()
    graders: GradersSection = GradersSection()
    hub: HubSection = HubSection()
    tracking: TrackingSection = TrackingSection()
    inference: InferenceSection = InferenceSection()
    tuning: TuningSection = TuningSection()
    agents: AgentsSection = AgentsSection()
    sessions: SessionsSection = SessionsSection()
    agent: AgentSection = AgentSection()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Environment over file: the file's values come in as the initial ones."""
        return env_settings, init_settings

    @property
    def public_url(self) -> str:
        """The gateway's address for clients, without a trailing slash."""
        scheme = "https" if self.http.tls.enabled else "http"
        made = f"{scheme}://{self.http.host}:{self.http.port}"
        return (self.http.public_url or made).rstrip("/")


class ConfigFile(Settings):
    """The schema as a file must follow it: unknown top-level keys are errors."""

    model_config = SettingsConfigDict(
        env_prefix="WINDLASS_", env_nested_delimiter="__", extra="forbid"
    )


def is_loopback(host: str) -> bool:
    """Returns True if a host name or address stays on this machine."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
