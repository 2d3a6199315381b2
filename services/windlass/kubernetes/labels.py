"""Labels and annotations: of our objects, and those of Kubernetes and Kueue that are read."""

PREFIX = "windlass.dev/"
KUEUE_PREFIX = "kueue.x-k8s.io/"
MANAGER_KEY = "app.kubernetes.io/managed-by"
JOB = PREFIX + "job"
ATTEMPT = PREFIX + "attempt"
PROJECT = PREFIX + "project"
WORKLOAD = PREFIX + "workload"
CLUSTER = PREFIX + "cluster"
KIND = PREFIX + "kind"
# Of a pod of the tuning service: trainer, sampler, or lease, whose devices the others join.
ROLE = PREFIX + "role"
LEASE_ROLE = "lease"
# Annotation of a lease whose pod runs those who sit there as its processes.
HOSTS = PREFIX + "hosts"
# Of a pod that answers as an engine: what an InferencePool selects.
MODEL = PREFIX + "model"
# Kinds: ours, and what was applied to another cluster.
JOB_KIND, ENGINE_KIND, GUEST = "job", "engine", "guest"
# Digest of what an engine keeps from its start to its end.
ENGINE_SPEC = PREFIX + "engine-spec"
GENERATION = PREFIX + "generation"
MANAGED_BY = {MANAGER_KEY: "windlass"}
QUEUE = KUEUE_PREFIX + "queue-name"
PRIORITY_CLASS = KUEUE_PREFIX + "priority-class"
# Kubernetes gives each pod of an indexed Job its number, and Kueue a Workload its Job's uid.
BATCH_PREFIX = "batch.kubernetes.io/"
COMPLETION_INDEX = BATCH_PREFIX + "job-completion-index"
JOB_UID = KUEUE_PREFIX + "job-uid"
# LeaderWorkerSet gives each pod of a group the name of its set, and its number, 0 for the leader.
LWS_NAME = "leaderworkerset.sigs.k8s.io/name"
LWS_INDEX = "leaderworkerset.sigs.k8s.io/worker-index"
JOBSET_NAME = "jobset.sigs.k8s.io/jobset-name"
# Whose `managedBy` hands an object to federation; also the finalizer of such an object.
FEDERATION = PREFIX + "federation"
