"""The one configuration schema: file, environment, flags; nothing else reads the environment.

Precedence: flags, then `WINDLASS_…` variables (`WINDLASS_HTTP__PORT`), then the
YAML file, then these defaults.
"""

from ipaddress import IPv4Network, IPv6Network, ip_address
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, SecretStr
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict


class Section(BaseModel):
    """A part of the schema; a key that it does not know is an error."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True)


class Tls(Section):
    """A certificate for a listener, PEM files."""

    certificate: Path | None = Field(None, description="With its chain.")
    key: Path | None = Field(None, description="Its private key.")
    client_ca: Path | None = Field(None, description="Clients need a certificate of it.")

    @property
    def enabled(self) -> bool:
        """True where both files are named."""
        return self.certificate is not None and self.key is not None


class Http(Section):
    """The gateway's listener."""

    host: str = Field("127.0.0.1", description="The address to listen on.")
    port: int = Field(8080, ge=0, le=65535, description="0: any that is free.")
    public_url: str = Field("", description="How clients reach it; empty: from host and port.")
    tls: Tls = Tls()
    cors_origins: list[Annotated[str, Field(pattern=r"^(\*|https?://[^/@?#\s]+)$")]] = Field(
        [], description="Origins whose pages may ask from browsers, or *; none by default."
    )
    max_body_bytes: int = Field(
        8 * 2**20, ge=1024, description="Of a request other than an upload: 413."
    )
    max_connections: int = Field(
        0, ge=0, description="In all; 0: as many as open files allow, at most 20,000."
    )
    max_connections_per_address: int = Field(
        1000,
        ge=1,
        description="Of one IPv4 address or IPv6 /64; a trusted proxy has no such bound.",
    )
    trusted_proxies: list[IPv4Network | IPv6Network] = Field(
        [], description="Proxies in front, as CIDR; only from them does X-Forwarded-For count."
    )
    max_head_bytes: int = Field(32 * 1024, ge=1024, description="Request line and headers: 431.")
    max_target_bytes: int = Field(8 * 1024, ge=256, description="The URL of a request: 414.")
    max_headers: int = Field(100, ge=8, description="Headers of a request: 431.")
    head_seconds: float = Field(
        10.0, gt=0, description="For a TLS handshake, and for a request's head: 408."
    )
    body_seconds: float = Field(
        20.0, gt=0, description="How long a body may fall behind body_bytes_per_second: 408."
    )
    body_bytes_per_second: int = Field(1000, ge=1, description="What a body must reach.")
    write_seconds: float = Field(
        60.0, gt=0, description="How long a client may leave an answer unread."
    )
    keep_alive_seconds: int = Field(75, ge=1, description="Between two requests.")


class Grpc(Section):
    """The listener for agents and for targets on other machines; the socket needs none."""

    listen: str = Field("", description="host:port; empty: only the Unix socket.")
    tls: Tls = Tls()
    reflection: bool = Field(False, description="Anybody may list services and messages.")
    peer_ca: Path | None = Field(
        None, description="PEM that trusts peers at grpcs://host:port; empty: the system's."
    )


class OperationsSection(Section):
    """Each process's listener for operators: health with reasons, metrics, the API's pages."""

    listen: str = Field(
        "127.0.0.1:0",
        pattern=r"^(|.+:[0-9]{1,5})$",
        description="host:port, without keys; port 0: any, in run/<name>.operations; empty: none.",
    )


class DatabaseSection(Section):
    """Postgres. Empty URL: a private one under the data folder."""

    url: SecretStr = Field(SecretStr(""), description="postgresql://…; empty: a private one.")
    pool_size: int = Field(16, ge=2, le=200, description="Connections of each process.")
    migrate: bool = Field(True, description="Bring the schema up to date at start.")


class Objects(Section):
    """Storage of file content and model artifacts."""

    kind: Literal["filesystem", "s3"] = Field(
        "filesystem", description="A folder under data_dir, or an S3 bucket."
    )
    bucket: str = Field("", description="Of S3.")
    prefix: str = Field("", description="Begins the names of all objects in the bucket.")
    endpoint_url: str = Field("", description="Of another S3 server; empty: AWS.")
    region: str = Field("", description="Of S3; empty: as the environment says.")
    access_key_id: str = Field("", description="Empty: as the environment says.")
    secret_access_key: SecretStr = Field(SecretStr(""), description="Belongs to access_key_id.")
    presign_seconds: int = Field(
        3600, ge=60, le=7 * 86400, description="How long a signed URL is good."
    )


class Auth(Section):
    """API keys and their hashes."""

    key_prefix: str = Field(
        "wl-", pattern=r"^[a-z][a-z0-9]{0,15}[-_]$", description="Begins every new API key."
    )
    wrong_keys: int = Field(
        100, ge=1, description="Of one IPv4 address or IPv6 /64 before it has to wait: 429."
    )
    wrong_registration_keys: int = Field(20, ge=1, description="The same of agents that enrol.")


class VaultTransit(Section):
    """A key in the transit engine of HashiCorp Vault or OpenBao."""

    address: str = Field("", pattern=r"^(|https?://[^/]+)$", description="Empty: not used.")
    mount: str = Field("transit", pattern=r"^[\w./-]+$", description="Path of the engine.")
    key: str = Field("windlass", pattern=r"^[\w.-]+$", description="Name of the key.")
    namespace: str = Field("", description="Of Vault Enterprise.")
    token: SecretStr = Field(SecretStr(""), description="May encrypt and decrypt with the key.")
    token_file: Path | None = Field(None, description="Read at each use; before `token`.")
    ca: Path | None = Field(None, description="PEM that trusts the address; empty: the system's.")


class MasterKeySection(Section):
    """Master key of the installation's secrets; every process needs the same.

    With all of it empty, a key is made in `data_dir/keys/master.key`. Where Vault is named and a
    local key too, Vault seals and the local key opens what it sealed before.
    """

    key: SecretStr = Field(
        SecretStr(""),
        description="Base64 of 32 bytes; to rotate, several with commas, the newest first.",
    )
    file: Path | None = Field(
        None, description="A file with the same, such as a mounted Kubernetes Secret."
    )
    vault: VaultTransit = VaultTransit()

    @property
    def is_shared(self) -> bool:
        """True where it comes from outside of the data folder."""
        return bool(self.key.get_secret_value() or self.file or self.vault.address)


class Limits(Section):
    """Per-project limits of the gateway; 0 means none."""

    requests_per_minute: int = Field(0, ge=0, description="Over all gateways.")
    tokens_per_minute: int = Field(0, ge=0, description="Over all gateways.")
    concurrent_requests: int = Field(0, ge=0, description="At once.")


class Quotas(Section):
    """Default quotas of each project, unless it has its own; 0 means no bound."""

    engines: int = Field(4, ge=0, description="Of its own models, at once.")
    jobs: int = Field(10_000, ge=0, description="That have not ended.")
    running_jobs: int = Field(1000, ge=0, description="That have a place; others wait for one.")
    uploads: int = Field(100, ge=0, description="Files, and models, that are being uploaded.")
    stored_bytes: int = Field(2**40, ge=0, description="Of files and models.")
    fetched_bytes: int = Field(2**40, ge=0, description="From hubs, in 24 hours.")
    event_streams: int = Field(100, ge=0, description="At once, of each process of jobs.")
    projects: int = Field(1000, ge=0, description="Of an organization.")


class Usage(Section):
    """Records of usage."""

    keep_days: int = Field(
        90, ge=1, description="Older ones are summed by the hour, and the sums kept for ever."
    )


class Files(Section):
    """Bounds of uploads."""

    max_bytes: int = Field(512 * 2**20, ge=1, description="Of one file.")


class Jobs(Section):
    """Settings of fine-tuning jobs."""

    default_backend: str = Field("trl", description="Of a job that names none.")
    default_gpus: int = Field(
        0, ge=0, le=64, description="Of a job whose request has no windlass.resources."
    )
    agent_lost_seconds: float = Field(
        60.0,
        gt=0,
        description="A cluster's silence until its jobs are placed anew, where agents.… sets none.",
    )
    max_attempts: int = Field(5, ge=1, description="That may die before the job fails.")
    drain_seconds: float = Field(
        60.0, gt=0, description="From SIGTERM to SIGKILL of a runner of the agent in `serve`."
    )
    keep_last_checkpoints: int = Field(
        0, ge=0, description="Of each job the latest so many stay; 0: all of them."
    )
    keep_best_checkpoints: int = Field(
        1, ge=0, description="And so many with the best measure, where not all stay."
    )


class Graders(Section):
    """Graders that may reward answers."""

    python: bool = Field(
        True,
        description="Python graders run, each in a sandbox (bubblewrap), where one can be made.",
    )


class Hub(Section):
    """Hub that this server, and no pod, fetches models from."""

    endpoint: str = Field(
        "https://huggingface.co",
        pattern=r"^(https?://[^/@?#\s]+)?$",
        description="Hugging Face's hub or a mirror of it; empty: nothing is fetched.",
    )


class Tracking(Section):
    """Trackers of experiments that jobs may report to: an origin not listed is refused."""

    allowed: list[Annotated[str, Field(pattern=r"^https?://[^/@?#\s]+$")]] = Field(
        ["https://api.wandb.ai"],
        description="https://host, with :port if you like; http:// only where it is listed so.",
    )
    wandb_url: str = Field(
        "https://api.wandb.ai",
        pattern=r"^https?://[^/@?#\s]+$",
        description="Where Weights & Biases answers: its own, or a server of yours.",
    )


class Inference(Section):
    """Engines started on demand."""

    engine: str = Field("builtin", description="Which one is started.")
    max_engines: int = Field(4, ge=1, description="At once, in all.")
    max_adapters: int = Field(8, ge=1, description="Loaded at once in an engine.")
    idle_seconds: float = Field(1800.0, gt=0, description="Unused until an engine is stopped.")
    hold_seconds: float = Field(
        120.0, gt=0, description="How long a request waits for an engine to start."
    )


class Agents(Section):
    """Settings of every agent: its credential's lifetime, and when it suspends its workloads."""

    credential_seconds: float = Field(
        86_400.0, gt=0, description="An agent asks for the next one at half of it."
    )
    suspend_seconds: int = Field(
        60,
        ge=0,
        description="Without contact for this long an agent in Kubernetes suspends its jobs; "
        "they are placed anew after twice that. 0: never.",
    )
    process_suspend_seconds: int = Field(
        0, ge=0, description="The same of agents whose jobs are processes."
    )


class KubernetesListener(Section):
    """Listener where kubectl and others reach clusters' API servers; off unless `listen` is set."""

    listen: str = Field("", description="host:port; empty: no listener.")
    public_url: str = Field(
        "",
        pattern=r"^(|https://[^/]+)$",
        description="How clients reach it; empty: https://host:port of listen.",
    )
    tls: Literal["own", "terminated"] = Field(
        "own",
        description="terminated: plain, for an ingress on this machine that ends TLS.",
    )
    certificate: Path | None = Field(None, description="PEM; empty: made under data_dir.")
    key: Path | None = Field(None, description="PEM of the certificate's private key.")
    ca: Path | None = Field(
        None, description="PEM that kubeconfigs shall trust; empty: our own, or the system's."
    )


class Sessions(Section):
    """Tunnels into clusters."""

    kubernetes: KubernetesListener = KubernetesListener()
    advertise: str = Field(
        "",
        pattern=r"^(|unix:/.+|grpcs://.+:[0-9]+)$",
        description="How other replicas reach this one: grpcs://host:port; empty: its own socket.",
    )
    max_connections: int = Field(4000, ge=1, description="Tunnelled ones at this replica.")
    max_connections_per_cluster: int = Field(1500, ge=1, description="Of those, into one cluster.")


class AgentSection(Section):
    """The agent inside `serve`."""

    enabled: bool = Field(True, description="Jobs and engines run on this machine.")
    name: str = Field("local", description="Of its cluster.")
    slots: int = Field(1, ge=1, description="Jobs that may run at once.")
    engine_slots: int = Field(4, ge=1, description="Engines that may run at once.")
    gpus: list[Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9/.:_-]{0,99}$")]] | None = (
        Field(None, description="Indexes or ids of the GPUs to give out; empty: all there are.")
    )
    engine_gpus: int = Field(
        1, ge=0, le=64, description="Of each engine, where there are so many; shared by engines."
    )
    engine_cpus: int = Field(0, ge=0, le=4096, description="Of each engine; 0: no bound.")
    engine_memory_bytes: int = Field(
        0, ge=0, le=2**50, description="Of each engine; 0: most of what there is."
    )
    confinement: Literal["required", "preferred", "off"] = Field(
        "preferred",
        description="Walls around engines and jobs (bubblewrap). preferred: none where none can "
        "be made, and the log says so.",
    )
    torchtune_python: Path | None = Field(
        None, description="Python of an environment with the extra `torchtune`; empty: this one."
    )
    spare_trainers: int = Field(
        1,
        ge=0,
        le=16,
        description="Trainers that wait for a job, once one has run here; up to 0.9 GiB each.",
    )


class Settings(BaseSettings):
    """Everything that can be set."""

    model_config = SettingsConfigDict(
        env_prefix="WINDLASS_", env_nested_delimiter="__", extra="ignore"
    )

    targets: list[str] = Field(["all"], description="The services of this process.")
    data_dir: Path = Field(Path("data"), description="Folder of keys, objects and databases.")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        "INFO", description="The least that is logged."
    )
    http: Http = Http()
    grpc: Grpc = Grpc()
    operations: OperationsSection = OperationsSection()
    peers: dict[str, str] = Field({}, description="Addresses of services in other processes.")
    database: DatabaseSection = DatabaseSection()
    objects: Objects = Objects()
    auth: Auth = Auth()
    master_key: MasterKeySection = MasterKeySection()
    limits: Limits = Limits()
    quotas: Quotas = Quotas()
    usage: Usage = Usage()
    files: Files = Files()
    jobs: Jobs = Jobs()
    graders: Graders = Graders()
    hub: Hub = Hub()
    tracking: Tracking = Tracking()
    inference: Inference = Inference()
    agents: Agents = Agents()
    sessions: Sessions = Sessions()
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


def load(path: Path | None = None, flags: dict[str, Any] | None = None) -> Settings:
    """Reads the configuration.

    Raises OSError for a file that cannot be read, ValueError (pydantic's
    ValidationError or yaml's own) that says which key is wrong.
    """
    document: Any = {}
    if path is not None:
        document = yaml.safe_load(path.read_text()) or {}
        if not isinstance(document, dict):
            raise ValueError(f"{path}: the top level must be a mapping")
    settings = ConfigFile(**document)
    for dotted, value in (flags or {}).items():
        if value is not None:
            section, _, key = dotted.rpartition(".")
            setattr(getattr(settings, section) if section else settings, key, value)
    return settings


def is_loopback(host: str) -> bool:
    """True where a host name or address stays on this machine."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
