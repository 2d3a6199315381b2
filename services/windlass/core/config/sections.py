"""The sections of the configuration: every setting, its default and its bounds."""

from ipaddress import IPv4Network, IPv6Network
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator

from windlass.core.config.database_url import driver_url

TenantId = Annotated[str, Field(pattern=r"^(org-|proj_)[A-Za-z0-9]{8,64}$")]


class Section(BaseModel):
    """A part of the schema; a key that it does not know is an error."""

    model_config = ConfigDict(extra="forbid", validate_assignment=True)


class TlsSection(Section):
    """A certificate for a listener, PEM files."""

    certificate: Path | None = Field(None, description="PEM file of the certificate and its chain.")
    key: Path | None = Field(None, description="PEM file of the certificate's private key.")
    client_ca: Path | None = Field(
        None, description="PEM file of the CA of clients' certificates; empty: none are asked for."
    )

    @property
    def enabled(self) -> bool:
        """True if both the certificate and its key are set."""
        return self.certificate is not None and self.key is not None


class HttpTlsSection(TlsSection):
    """The certificate of the gateway's listener, and whose it asks clients for."""

    clients: Literal["required", "optional"] = Field(
        "required",
        description="With client_ca: whether every client has a certificate, or those alone whose "
        "organization demands one.",
    )


class HttpSection(Section):
    """The gateway's listener."""

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8080, ge=0, le=65535, description="Port to listen on; 0: any free port.")
    public_url: str = Field(
        "", description="URL by which clients reach the gateway; empty: made of host and port."
    )
    tls: HttpTlsSection = HttpTlsSection()
    cors_origins: list[Annotated[str, Field(pattern=r"^(\*|https?://[^/@?#\s]+)$")]] = Field(
        [], description="Origins whose pages may call the API from a browser (CORS), or *."
    )
    max_body_bytes: int = Field(
        8 * 2**20, ge=1024, description="Largest body of a request except uploads; larger: 413."
    )
    max_connections: int = Field(
        0, ge=0, description="Open connections; 0: as many as open files allow, at most 20,000."
    )
    max_connections_per_address: int = Field(
        1000,
        ge=1,
        description="Open connections of one IPv4 address or IPv6 /64 but a trusted proxy.",
    )
    trusted_proxies: list[IPv4Network | IPv6Network] = Field(
        [],
        description="Networks (CIDR) of proxies whose X-Forwarded-For and Client-Cert are "
        "believed.",
    )
    max_head_bytes: int = Field(
        32 * 1024, ge=1024, description="Largest request line and headers together; larger: 431."
    )
    max_target_bytes: int = Field(
        8 * 1024, ge=256, description="Longest URL of a request; longer: 414."
    )
    max_headers: int = Field(100, ge=8, description="Most headers of a request; more: 431.")
    head_seconds: float = Field(
        10.0, gt=0, description="Time for a TLS handshake and for a request's head, then 408."
    )
    body_seconds: float = Field(
        20.0, gt=0, description="Time that a body may lag behind body_bytes_per_second; then 408."
    )
    body_bytes_per_second: int = Field(
        1000, ge=1, description="Least rate at which a body must arrive."
    )
    write_seconds: float = Field(
        60.0,
        gt=0,
        description="Time that a client may leave a response unread, or lag behind "
        "answer_bytes_per_second.",
    )
    answer_bytes_per_second: int = Field(
        10_000, ge=1, description="Least rate at which a response that waits must be read."
    )
    drain_seconds: float = Field(
        30.0,
        ge=0,
        description="Time that open model requests keep a server that should stop; new ones are "
        "answered 503.",
    )
    keep_alive_seconds: int = Field(
        75, ge=1, description="Time that an idle connection stays open between two requests."
    )


class GrpcSection(Section):
    """The listener for agents and for targets on other machines; the socket needs none."""

    listen: str = Field("", description="Address as host:port; empty: only the Unix socket.")
    tls: TlsSection = TlsSection()
    reflection: bool = Field(
        False, description="Let any caller list services and messages (gRPC reflection)."
    )
    peer_ca: Path | None = Field(
        None, description="PEM file of CAs trusted for peers at grpcs://; empty: the system's."
    )


class OperationsSection(Section):
    """Each process's listener for operators: health with reasons, metrics, the API's pages."""

    listen: str = Field(
        "127.0.0.1:0",
        pattern=r"^(|.+:[0-9]{1,5})$",
        description="Address as host:port, without authentication; port 0: any free port, "
        "written to run/<name>.operations; empty: no listener.",
    )


class DatabaseSection(Section):
    """Postgres. Empty URL: a private one under the data folder."""

    url: SecretStr = Field(
        SecretStr(""), description="URL, postgresql://…; empty: a private Postgres under data_dir."
    )
    pool_size: int = Field(16, ge=2, le=200, description="Database connections of each process.")
    migrate: bool = Field(True, description="Migrate the schema at start.")
    wait_seconds: float = Field(
        60.0, ge=0, description="Time that a start waits for a database that does not answer yet."
    )

    @field_validator("url")
    @classmethod
    def _is_postgres(cls, url: SecretStr) -> SecretStr:
        if text := url.get_secret_value():
            driver_url(text)
        return url

    @property
    def driver_url(self) -> str:
        """The URL with the driver's name in it, as SQLAlchemy wants it; empty: a private one."""
        text = self.url.get_secret_value()
        return driver_url(text) if text else ""


class ObjectsSection(Section):
    """Storage of file content and model artifacts."""

    kind: Literal["filesystem", "s3"] = Field(
        "filesystem", description="Where objects lie: a folder under data_dir, or an S3 bucket."
    )
    bucket: str = Field("", description="Name of the S3 bucket.")
    prefix: str = Field("", description="Prefix of the names of all objects in the bucket.")
    endpoint_url: str = Field(
        "",
        pattern=r"^(https?://[^@?#\s]+)?$",
        description="URL of an S3 server other than AWS, without credentials.",
    )
    region: str = Field("", description="Region of the bucket; empty: from the AWS environment.")
    access_key_id: str = Field("", description="Access key; empty: from the AWS environment.")
    secret_access_key: SecretStr = Field(SecretStr(""), description="Secret of access_key_id.")
    presign_seconds: int = Field(
        3600,
        ge=60,
        le=7 * 86400,
        description="Lifetime of a signed URL, but of those to read a job's inputs.",
    )
    read_seconds: int = Field(
        60,
        ge=10,
        le=7 * 86400,
        description="Lifetime of a signed URL to read a job's input; "
        "the job asks for another when a download begins later.",
    )


class AuthSection(Section):
    """API keys and their hashes."""

    key_prefix: str = Field(
        "wl-", pattern=r"^[a-z][a-z0-9]{0,15}[-_]$", description="Prefix of every new API key."
    )
    wrong_keys: int = Field(
        100, ge=1, description="Wrong API keys from one IPv4 address or IPv6 /64; then 429."
    )
    outage_grace_seconds: float = Field(
        0.0,
        ge=0,
        le=3600,
        description="Time that keys known good go on for inference while nobody can check them; "
        "a key revoked meanwhile, too. 0: none.",
    )
    wrong_registration_keys: int = Field(
        20, ge=1, description="Wrong registration keys from one address; then 429."
    )


class LimitsSection(Section):
    """Per-project limits of the gateway; 0 means none."""

    requests_per_minute: int = Field(0, ge=0, description="Requests, over all gateways.")
    tokens_per_minute: int = Field(0, ge=0, description="Tokens, over all gateways.")
    concurrent_requests: int = Field(
        0, ge=0, description="Requests in progress, over all gateways."
    )
    weights: dict[TenantId, Annotated[int, Field(ge=1, le=1000)]] = Field(
        {},
        description="Shares of busy engines by organization id, and of an organization's projects "
        "by project id, such as `{proj_4f1cK2mQ: 4}`; 1 for all others.",
    )
    priorities: dict[TenantId, Annotated[int, Field(ge=-10, le=10)]] = Field(
        {},
        description="Whose requests go first at busy engines, by organization id, or by project id "
        "for that project: the larger number, such as `{proj_4f1cK2mQ: 1}`; 0 for all others.",
    )


class UsageSection(Section):
    """Records of usage."""

    keep_days: int = Field(
        90, ge=1, description="Days that single records are kept; hourly sums are kept for ever."
    )


class LeavingSection(Section):
    """Erasure of projects and organizations that are deleted."""

    grace_seconds: int = Field(
        7 * 86_400,
        ge=0,
        description="Time between a deletion, which can be undone until then, and the erasure.",
    )
    export_keep_seconds: int = Field(
        7 * 86_400,
        ge=60,
        description="Time that an export is kept for download, once it is ready.",
    )


class FilesSection(Section):
    """Bounds of uploads."""

    max_bytes: int = Field(512 * 2**20, ge=1, description="Largest file.")


class JobsSection(Section):
    """Settings of fine-tuning jobs."""

    default_backend: str = Field("trl", description="Backend of a job that names none.")
    default_gpus: int = Field(
        0, ge=0, le=64, description="GPUs of a job whose request has no windlass.resources."
    )
    agent_lost_seconds: float = Field(
        60.0, gt=0, description="Silence before a cluster's jobs move, if its agent suspends none."
    )
    max_attempts: int = Field(5, ge=1, description="Attempts that may die before the job fails.")
    drain_seconds: float = Field(
        60.0,
        gt=0,
        description="Time between SIGTERM and SIGKILL of a runner that the "
        "agent in `serve` started.",
    )
    keep_last_checkpoints: int = Field(
        3, ge=0, description="Latest checkpoints kept of each job; 0: all."
    )
    keep_best_checkpoints: int = Field(
        1,
        ge=0,
        description="Best checkpoints kept of each job besides the latest, unless all are kept.",
    )


class WebhooksSection(Section):
    """Deliveries to tenants' webhooks; by default over https to public addresses alone."""

    allowed_networks: list[IPv4Network | IPv6Network] = Field(
        [], description="Networks (CIDR) that are not public and may be delivered to all the same."
    )
    allow_http: bool = Field(False, description="Accept http:// URLs too.")
    retry_seconds: int = Field(
        72 * 3600,
        ge=0,
        le=30 * 86400,
        description="Time after a job's end during which a failed delivery is tried again.",
    )


class OidcSection(Section):
    """Issuers of OpenID Connect, for workloads and people; by default at public addresses alone."""

    allowed_networks: list[IPv4Network | IPv6Network] = Field(
        [],
        description="Networks (CIDR) that are not public and may have issuers all the same; these "
        "may be named with http:// too.",
    )


class SignInSection(Section):
    """Sessions of people who signed in."""

    secret_seconds: int = Field(
        3600, ge=60, le=86_400, description="Time after which a session must renew its secret."
    )
    idle_seconds: int = Field(
        7 * 86_400, ge=300, description="Time without a renewal after which a session ends."
    )
    longest_seconds: int = Field(
        30 * 86_400, ge=300, description="Time after which a session ends, however it is used."
    )
    fresh_seconds: int = Field(
        900,
        ge=0,
        le=30 * 86_400,
        description="Time since somebody in a session has shown who they are, after which a "
        "dangerous step asks for it again; 0: none does, unless their organization asks.",
    )
    dns_servers: list[Annotated[str, Field(pattern=r"^[0-9a-fA-F.:]+#[0-9]{1,5}$")]] = Field(
        [],
        description="Resolvers that mail domains are proven by, as address#port; none: those of "
        "the system.",
    )


class AuditSection(Section):
    """The audit log."""

    retention_days: int = Field(
        0,
        ge=0,
        le=36_500,
        description="Days for which events are kept, unless an organization keeps them longer; "
        "0: for ever.",
    )


class GradersSection(Section):
    """Graders that may reward answers."""

    python: bool = Field(
        True,
        description="Run Python graders, each in a sandbox (bubblewrap), if the machine can "
        "make one.",
    )


class HubSection(Section):
    """Hub that this server, and no pod, fetches models from."""

    endpoint: str = Field(
        "https://huggingface.co",
        pattern=r"^(https?://[^/@?#\s]+)?$",
        description="URL of Hugging Face's hub or of a mirror; empty: no model can be fetched.",
    )


class TrackingSection(Section):
    """Trackers of experiments that jobs may report to: an origin not listed is refused."""

    allowed: list[Annotated[str, Field(pattern=r"^https?://[^/@?#\s]+$")]] = Field(
        ["https://api.wandb.ai"],
        description="Origins as https://host or https://host:port; http:// must be listed as such.",
    )
    wandb_url: str = Field(
        "https://api.wandb.ai",
        pattern=r"^https?://[^/@?#\s]+$",
        description="URL of the Weights & Biases API, or of your own server.",
    )


class InferenceSection(Section):
    """Engines started on demand."""

    engine: str = Field("builtin", description="Kind of engine to start.")
    presets: str = Field(
        "",
        description="Folder of presets (*.json) beside those of this release; one of the same "
        "name takes its place. Empty: none.",
    )
    max_engines: int = Field(4, ge=1, description="Running engines of the whole installation.")
    max_adapters: int = Field(8, ge=1, description="Adapters loaded at once in one engine.")
    idle_seconds: float = Field(
        1800.0, gt=0, description="Time without requests before an engine is stopped."
    )
    hold_seconds: float = Field(
        120.0, gt=0, description="Time that a request waits for an engine to start."
    )
    hedge_seconds: float = Field(
        0.0,
        ge=0,
        description="Time after which a request that no engine has begun to answer is sent to a "
        "second one that has a free place; 0: never.",
    )
    scale_down_seconds: float = Field(
        300.0, gt=0, description="Time of less load before fewer engines of a model run."
    )
    media_hosts: list[
        Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[1-9][0-9]{0,4})?$")]
    ] = Field(
        [],
        description="Hosts that images of chats are fetched from, as host or host:port, over https "
        "alone; empty: none, and images come in requests.",
    )
    media_networks: list[IPv4Network | IPv6Network] = Field(
        [], description="Networks (CIDR) that are not public and may have such hosts all the same."
    )


class AgentsSection(Section):
    """Settings of every agent: its credential's lifetime, and when it suspends its workloads."""

    credential_seconds: float = Field(
        86_400.0,
        gt=0,
        description="Lifetime of an agent's credential, which the agent renews at half of it.",
    )
    suspend_seconds: int = Field(
        60,
        ge=0,
        description="Time without contact before an agent in Kubernetes suspends its jobs; "
        "they are placed elsewhere after twice that. 0: never.",
    )
    process_suspend_seconds: int = Field(
        0, ge=0, description="The same for agents whose jobs are processes on a machine."
    )


class KubernetesListenerSection(Section):
    """Listener where kubectl and others reach clusters' API servers; off unless `listen` is set."""

    listen: str = Field("", description="Address as host:port; empty: no listener.")
    public_url: str = Field(
        "",
        pattern=r"^(|https://[^/]+)$",
        description="URL by which clients reach it; empty: https:// and the address of listen.",
    )
    tls: Literal["own", "terminated"] = Field(
        "own",
        description="own: the listener speaks TLS. terminated: it speaks plain HTTP to an "
        "ingress on this machine that ends TLS.",
    )
    certificate: Path | None = Field(
        None, description="PEM file of the certificate; empty: made under data_dir."
    )
    key: Path | None = Field(None, description="PEM file of the certificate's private key.")
    ca: Path | None = Field(
        None,
        description="PEM file of the CA that kubeconfigs name; empty: that of the "
        "certificate made here, or the system's.",
    )


class SessionsSection(Section):
    """Tunnels into clusters."""

    kubernetes: KubernetesListenerSection = KubernetesListenerSection()
    advertise: str = Field(
        "",
        pattern=r"^(|unix:/.+|grpcs://.+:[0-9]+)$",
        description="Address by which other replicas reach this one, grpcs://host:port; "
        "empty: its socket.",
    )
    max_connections: int = Field(4000, ge=1, description="Tunnelled connections of this replica.")
    max_connections_per_cluster: int = Field(
        1500, ge=1, description="Tunnelled connections of this replica into one cluster."
    )
