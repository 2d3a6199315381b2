"""NetworkPolicies of a project's namespace: allowed connections; all others are denied."""

from collections.abc import Mapping, Sequence

from windlass.kubernetes import names
from windlass.kubernetes.labels import (
    ENGINE_KIND,
    GUEST,
    JOB_KIND,
    KIND,
    LWS_NAME,
    MANAGED_BY,
)
from windlass_agent.executors.kubernetes.render.engine_pod import DOOR_PORT, HEALTH_PORT
from windlass_agent.executors.kubernetes.render.host import LAST_DOOR_PORT
from windlass_agent.executors.kubernetes.render.parts import Object
from windlass_agent.executors.kubernetes.settings import ClusterSettings

_NAMESPACE = "kubernetes.io/metadata.name"


def network_policies(
    namespace: str, settings: ClusterSettings, *, labels: Mapping[str, str] | None = None
) -> list[Object]:
    """Returns a policy that denies all traffic and one for each kind of workload, to be applied."""
    # A guest has no runner, and so nothing to say to the agent.
    egress = {JOB_KIND: [_dns(), _agent(settings)], GUEST: [_dns()]}
    return [
        _policy(namespace, "windlass-default", {}, [], [], labels or {}),
        *(
            _policy(
                namespace,
                f"windlass-{kind}",
                {KIND: kind},
                # Ranks of one job talk to each other on any port.
                [{"from": [_pods(kind)]}],
                [{"to": [_pods(kind)]}, *egress[kind], *_outside(settings)],
                labels or {},
            )
            for kind in egress
        ),
        _policy(
            namespace,
            f"windlass-{ENGINE_KIND}",
            {KIND: ENGINE_KIND},
            # Requests come through the agent alone. Residents of one pod have a door each.
            [
                {
                    "from": [_of_agent(settings)],
                    "ports": [{"port": DOOR_PORT, "endPort": LAST_DOOR_PORT, "protocol": "TCP"}],
                },
                *_pickers(namespace, settings),
            ],
            [_dns(), _agent(settings), *_outside(settings)],
            labels or {},
        ),
        # And pods of an engine on several nodes talk to each other on any port.
        _policy(
            namespace,
            f"windlass-{ENGINE_KIND}-groups",
            {KIND: ENGINE_KIND},
            [{"from": [_groups()]}],
            [{"to": [_groups()]}],
            labels or {},
            exists=(LWS_NAME,),
        ),
    ]


def _policy(
    namespace: str,
    name: str,
    selected: Mapping[str, str],
    ingress: list[Object],
    egress: list[Object],
    labels: Mapping[str, str],
    *,
    exists: Sequence[str] = (),
) -> Object:
    selector = _selector(selected, exists)
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {
            "name": name,
            "namespace": names.dns_label("Namespace", namespace),
            "labels": MANAGED_BY | dict(labels),
        },
        "spec": {
            "podSelector": selector,
            "policyTypes": ["Ingress", "Egress"],
            "ingress": ingress,
            "egress": egress,
        },
    }


def _selector(selected: Mapping[str, str], exists: Sequence[str] = ()) -> Object:
    made: Object = {"matchLabels": MANAGED_BY | dict(selected)}
    if exists:
        made["matchExpressions"] = [{"key": name, "operator": "Exists"} for name in exists]
    return made


def _pods(kind: str) -> Object:
    return {"podSelector": _selector({KIND: kind})}


def _groups() -> Object:
    return {"podSelector": _selector({KIND: ENGINE_KIND}, (LWS_NAME,))}


def _pickers(namespace: str, settings: ClusterSettings) -> list[Object]:
    """The pods that may read the load of engines, if the operator named any."""
    found = [one for one in settings.engines.pickers if one.namespace == namespace and one.pods]
    if not found:
        return []
    pods = [{"podSelector": {"matchLabels": one.pods}} for one in found]
    return [{"from": pods, "ports": [{"port": HEALTH_PORT, "protocol": "TCP"}]}]


def _dns() -> Object:
    # Anywhere: clusters run it as pods, on nodes, or on an address of their own.
    return {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]}


def _agent(settings: ClusterSettings) -> Object:
    _, _, port = settings.agent_address.rpartition(":")
    return {"to": [_of_agent(settings)], "ports": [{"port": int(port), "protocol": "TCP"}]}


def _of_agent(settings: ClusterSettings) -> Object:
    return {"namespaceSelector": {"matchLabels": {_NAMESPACE: settings.agent_namespace}}}


def _outside(settings: ClusterSettings) -> list[Object]:
    return [
        {
            "to": [
                {
                    "ipBlock": {"cidr": one.cidr}
                    | ({"except": list(one.excluded)} if one.excluded else {})
                }
            ],
            "ports": [{"port": port, "protocol": "TCP"} for port in one.ports],
        }
        for one in settings.egress
    ]
