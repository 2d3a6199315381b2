"""Network policies of pods."""

import pytest
from pydantic import ValidationError

from windlass_agent.executors.kubernetes.settings import ClusterSettings
from windlass_agent.namespaces.network import network_policies


def test_jobs_reach_each_other_names_the_agent_and_the_store() -> None:
    settings = ClusterSettings.model_validate(
        {
            "agent_namespace": "windlass-agent",
            "agent_address": "windlass-agent.windlass-agent.svc:8443",
            "egress": [{"cidr": "10.7.0.0/16", "excluded": ["10.7.1.0/24"], "ports": [9000]}],
        }
    )
    labels = {"windlass.dev/cluster": "c"}
    refuse, job, guest, engine, _ = network_policies("team-a", settings, labels=labels)
    assert refuse["spec"]["ingress"] == refuse["spec"]["egress"] == []
    assert job["metadata"]["labels"]["windlass.dev/cluster"] == "c"
    peers = {
        "podSelector": {
            "matchLabels": {
                "app.kubernetes.io/managed-by": "windlass",
                "windlass.dev/kind": "job",
            }
        }
    }
    assert job["spec"]["podSelector"] == peers["podSelector"]
    assert job["spec"]["ingress"] == [{"from": [peers]}]
    ranks, names, agent, store = job["spec"]["egress"]
    assert ranks == {"to": [peers]}
    assert {port["port"] for port in names["ports"]} == {53}
    assert agent == {
        "to": [
            {
                "namespaceSelector": {
                    "matchLabels": {"kubernetes.io/metadata.name": "windlass-agent"}
                }
            }
        ],
        "ports": [{"port": 8443, "protocol": "TCP"}],
    }
    assert store == {
        "to": [{"ipBlock": {"cidr": "10.7.0.0/16", "except": ["10.7.1.0/24"]}}],
        "ports": [{"port": 9000, "protocol": "TCP"}],
    }
    peers["podSelector"]["matchLabels"]["windlass.dev/kind"] = "guest"
    # All the same but the agent: a guest has no runner.
    assert guest["spec"]["egress"] == [{"to": [peers]}, names, store]
    assert engine["spec"]["egress"] == [names, agent, store]


def test_only_the_agent_reaches_engines_and_only_their_door() -> None:
    settings = ClusterSettings.model_validate({"agent_namespace": "windlass-agent"})
    *_, engine, _ = network_policies("team-a", settings)
    assert engine["spec"]["podSelector"]["matchLabels"]["windlass.dev/kind"] == "engine"
    home = {"kubernetes.io/metadata.name": "windlass-agent"}
    assert engine["spec"]["ingress"] == [
        {
            "from": [{"namespaceSelector": {"matchLabels": home}}],
            # As many as a pod may have residents.
            "ports": [{"port": 8443, "endPort": 8506, "protocol": "TCP"}],
        }
    ]


def test_a_pickers_pods_reach_what_tells_the_load_in_its_own_namespace() -> None:
    picker = {"namespace": "team-a", "model": "m", "address": "p:9002"}
    settings = ClusterSettings.model_validate(
        {"engines": {"pickers": [picker | {"pods": {"app": "epp"}}, picker | {"model": "n"}]}}
    )
    *_, engine, _ = network_policies("team-a", settings)
    _, load = engine["spec"]["ingress"]
    assert load == {
        "from": [{"podSelector": {"matchLabels": {"app": "epp"}}}],
        "ports": [{"port": 8080, "protocol": "TCP"}],
    }
    *_, other, _ = network_policies("team-b", settings)
    assert len(other["spec"]["ingress"]) == 1


def test_pods_of_engines_on_several_nodes_reach_each_other_and_no_others() -> None:
    *_, groups = network_policies("team-a", ClusterSettings())
    in_group = {"key": "leaderworkerset.sigs.k8s.io/name", "operator": "Exists"}
    selector = groups["spec"]["podSelector"]
    assert selector["matchLabels"]["windlass.dev/kind"] == "engine"
    assert selector["matchExpressions"] == [in_group]
    assert groups["spec"]["ingress"] == [{"from": [{"podSelector": selector}]}]
    assert groups["spec"]["egress"] == [{"to": [{"podSelector": selector}]}]


def test_nobody_reaches_a_clouds_metadata() -> None:
    _, job, *_ = network_policies("team-a", ClusterSettings())
    blocks = [
        to["ipBlock"]
        for rule in job["spec"]["egress"]
        for to in rule.get("to", ())
        if "ipBlock" in to
    ]
    assert {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]} in blocks


@pytest.mark.parametrize(
    "section",
    [
        {"agent_address": "windlass-agent"},
        {"agent_address": "grpcs://a:1"},
        {"agent_namespace": "A"},
        {"egress": [{"cidr": "10.0.0.0/99"}]},
        {"egress": [{"cidr": "10.0.0.0/8", "ports": [0]}]},
        {"accelerators": [{"resource": "a b"}]},
        {"accelerators": [{}]},
        {"accelerators": [{"resource": "nvidia.com/gpu", "device_class": "gpu.nvidia.com"}]},
        {"unknown": 1},
    ],
)
def test_settings_that_cannot_be_meant_are_refused(section: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ClusterSettings.model_validate(section)
