"""Bounds of what callers may send: /openapi.json promises them, and the services hold them.

Those of a model's files and names are in `windlass.modelfiles`, those of a job's document in
`windlass.jobs_api`, and those of Kubernetes's names in `windlass.kubernetes.names`.
"""

from typing import Literal, get_args

# Unix seconds, far beyond any date.
LATEST = 2**40

# Organizations, projects and API keys, as people see them.
TITLE_LENGTH = 100
USER_ID_LENGTH = 200
SECRET_BYTES = 64 * 1024
# Of a project, a cluster and a store; as OpenAI names them.
GEOGRAPHY_PATTERN = r"^[A-Z]{2}$"
# Of an organization, archived ones included: whoever places something hears of each, each second.
MAX_GEOGRAPHY_PROJECTS = 1000
MAX_KEY_SECONDS = 10 * 365 * 86400
# For which two secrets of one key answer.
MAX_OVERLAP_SECONDS = 30 * 86400
MAX_KEY_SCOPES = 64
MAX_KEY_NETWORKS, NETWORK_LENGTH = 32, 64
# Of an organization: as many as one event of the audit log has room for.
MAX_ORGANIZATION_NETWORKS = 80
# Of an organization, or of a project.
MAX_ROLES, MAX_ROLE_PERMISSIONS, DESCRIPTION_LENGTH = 500, 64, 1000
# Of a role that is asked for; and of one person's requests in a day.
MIN_ELEVATION_SECONDS, MAX_ELEVATION_SECONDS = 60, 30 * 86400
MAX_APPROVALS, REASON_LENGTH, MAX_DAILY_REQUESTS = 2, 500, 50
MAX_GROUPS, MAX_GROUP_MEMBERS = 1000, 10_000
# Of an organization, and of each part that says where one is.
MAX_CERTIFICATES = 50
MAX_EXTERNAL_KEYS, EXTERNAL_KEY_LENGTH = 50, 512
# Whom a directory may provision in an organization, and what it may say of each: 100 people fit a
# message. An email is bounded in bytes, as by RFC 5321.
MAX_DIRECTORY_PEOPLE, DIRECTORY_TEXT_LENGTH = 100_000, 200
MAX_EMAILS, EMAIL_BYTES, EMAIL_TYPE_LENGTH = 5, 254, 40
MAX_FILTER_TERMS, MAX_DIRECTORY_PAGE, MAX_MEMBERS_PAGE = 50, 100, 2000
# Of members that a list is asked for by their ids.
MAX_NAMED_MEMBERS = 100
# Of a key, and of all its patterns together: they travel with each call between services.
MAX_KEY_MODELS, KEY_MODELS_LENGTH, MODEL_PATTERN_LENGTH = 32, 2048, 256
# Of a project, likewise.
MAX_PROJECT_MODELS, PROJECT_MODELS_LENGTH = 64, 2048
MIN_LONGEST_LIFE, MAX_UNUSED_DAYS = 3600, 3650
MAX_KEY_TAGS, TAG_NAME_LENGTH, TAG_LENGTH = 16, 32, 64
# Of an organization, and of one of its identity providers.
MAX_IDENTITY_PROVIDERS, MAX_FEDERATION_RULES = 100, 1000
ISSUER_LENGTH, AUDIENCE_LENGTH = 2048, 512
MAX_TRANSFORMATIONS, MAX_MATCHERS = 16, 16
ATTRIBUTE_LENGTH, ATTRIBUTE_VALUE_LENGTH, EXPRESSION_LENGTH = 64, 2048, 1000
MAX_QUOTA = 2**62

MIN_FILE_SECONDS, MAX_FILE_SECONDS = 3600, 30 * 86400
# Projects that a model is shared with in one request.
MAX_GRANTED_PROJECTS = 100
IDEMPOTENCY_KEY_LENGTH = 128
# Of a user and of a repository of a hub, of `hf://USER/REPOSITORY`, and of a branch or commit.
HUB_NAME_LENGTH = 96
SOURCE_LENGTH = len("hf://") + 2 * HUB_NAME_LENGTH + 1
REVISION_LENGTH = 128
WEBHOOK_URL_LENGTH = 2048
WEBHOOK_NAME_LENGTH = 256

# The kinds of engines.
EngineName = Literal["builtin", "llamacpp", "sglang", "vllm"]
MAX_SLOTS = 10_000
# Of a model.
MAX_REPLICAS = 64
MAX_TARGET_REQUESTS = 10_000
# Percent of an engine's cache, and of its GPUs' time.
MAX_TARGET_CACHE = MAX_TARGET_GPU = 100
# Seconds in line.
MAX_TARGET_WAIT_SECONDS = 600
# Where nobody has said otherwise.
TARGET_REQUESTS = 8
TARGET_CACHE = 90
# An engine that is used says so every ten seconds, and a start takes its time.
MIN_IDLE_SECONDS, MAX_IDLE_SECONDS = 60, 30 * 86_400
MIN_SLEEP_SECONDS = 30
MAX_CLUSTERS, MAX_CLUSTER_WEIGHT = 32, 100
# Of a cluster, the versions of models whose files its agent says it has.
MAX_MODEL_VERSIONS = 64
# Of one engine; its GPUs are those of each of its nodes.
MAX_ENGINE_GPUS = 64
MAX_ENGINE_NODES = 16
# Of each of its nodes; and names of accelerators, as agents report them.
MIN_ENGINE_MEMORY, MAX_ENGINE_MEMORY = 2**28, 2**44
ACCELERATOR_LENGTH = 100
# Of servings, the lowest first.
Priority = Literal["low", "normal", "high"]
PRIORITIES = get_args(Priority)
NORMAL_PRIORITY = "normal"
# Of serving stacks that others run.
STACK_NAME_LENGTH = 63
STACK_URL_LENGTH = 512
STACK_KEY_LENGTH = 4096
STACK_CA_BYTES = 64 * 1024
STACK_MODEL_LENGTH = 256
MAX_STACK_CONCURRENCY = 100_000
MAX_STACK_CONTEXT = 2**24
MAX_ADDRESSES = 16
# HOST:PORT.
ADDRESS_LENGTH = 253 + 6
# A million of whatever is paid in, for an hour.
MAX_PRICE_MICROS = 10**12
MAX_NODE_LABELS = 32
MAX_TOLERATIONS = 16
# Of one queue, and objects of the whole document.
MAX_QUEUE_QUOTAS = 64
MAX_QUOTA_OBJECTS = 1000
MIN_ACCESS_SECONDS, MAX_ACCESS_SECONDS = 60, 3600
# Of identity providers, by which people sign in.
PROVIDER_TEXT_LENGTH = 512
MAX_PROVIDERS, MAX_PROVIDER_DOMAINS, MAX_PROVIDER_SCOPES, MAX_PROVIDER_GROUPS = 20, 50, 20, 500
# Ways of showing who one is that a policy names.
MAX_POLICY_METHODS = 20
# Seconds since a person has shown who they are.
MAX_SIGN_IN_AGE = 30 * 86_400
# Of one value of a groups claim.
PROVIDER_GROUP_LENGTH = 250
# Of one invite, and of an organization's that are open.
MAX_INVITE_PROJECTS, MAX_INVITES = 50, 1000
# Of an organization, for each kind.
MAX_DAILY_MAILS, MAX_DAILY_MAILS_TO_ONE = 500, 20
MAX_MAIL_DOMAINS, MAIL_DOMAIN_LENGTH = 50, 253
MAX_INVITE_SECONDS = 30 * 86_400

# Ways in which an engine is trained in its own memory while it serves.
TRAINING_MODES = ("hogwild", "fenced", "shadow")
TrainingMode = Literal["", "hogwild", "fenced", "shadow"]
