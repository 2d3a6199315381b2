"""The agent's chart without a cluster: valid, checked in, and with the rights it promises."""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tests.cluster.objects.chart import CHART, HelmError, helm, rendered
from tests.cluster.provision import programs
from tests.cluster.provision.site import REPOSITORY
from tests.support.environments.required import lacking

from windlass_agent.executors.kubernetes.overlay import check_overlay
from windlass_agent.executors.kubernetes.settings import ClusterSettings

MANIFESTS = REPOSITORY / "deploy" / "manifests"


@pytest.fixture(autouse=True)
def built() -> None:
    if not programs.BY_NAME["helm"].folder().exists():
        lacking("helm is not built: `make cluster`")


def test_helm_finds_nothing_wrong() -> None:
    said = helm(
        "lint",
        "--strict",
        str(CHART),
        values={"controlPlane": {"address": "grpcs://a:1"}, "registration": {"key": "k"}},
    )
    assert "0 chart(s) failed" in said


def test_the_plain_manifests_are_the_charts() -> None:
    values = yaml.safe_load((MANIFESTS / "values.yaml").read_text())
    written = list(yaml.safe_load_all((MANIFESTS / "windlass-agent.yaml").read_text()))
    namespace, *objects = written
    assert namespace["kind"] == "Namespace"
    assert objects == rendered(values), "run tools/render_manifests.py"


@pytest.mark.parametrize(
    "values",
    [
        {"controlPlane": {"address": ""}},
        {"controlPlane": {"address": "grpc://plain:1"}},
        {"controlPlane": {"address": "grpcs://user@host:1"}},
        {"runners": {"port": 0}},
        {"nonsense": True},
        {"image": {"digest": "sha256:short"}},
        {"runAsUser": 0},
    ],
)
def test_values_that_cannot_work_are_refused(values: dict[str, Any]) -> None:
    with pytest.raises(HelmError):
        rendered(values)


def test_a_key_is_needed() -> None:
    with pytest.raises(HelmError, match="windlass clusters register"):
        rendered({"registration": {"existingSecret": "", "key": ""}})


def rules(objects: list[dict[str, Any]]) -> Iterator[tuple[str, str, str, str, bool]]:
    """Role, group, resource, verb, and whether it is for named objects alone."""
    for item in objects:
        for rule in item.get("rules") or () if item["kind"] in ("Role", "ClusterRole") else ():
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    for verb in rule["verbs"]:
                        named = bool(rule.get("resourceNames"))
                        yield item["metadata"]["name"], group, resource, verb, named


def test_no_role_gives_what_leads_to_everything() -> None:
    found = list(rules(rendered()))
    assert found
    for role, _, resource, verb, named in found:
        assert "*" not in (resource, verb), role
        assert verb not in ("escalate", "update", "deletecollection"), role
        if resource == "secrets":
            assert named
            assert verb in ("get", "patch")
        if verb == "bind":
            assert named
        if verb == "impersonate":
            assert named or resource == "userextras/windlass-user"
        assert resource not in (
            "roles",
            "clusterrolebindings",
            "serviceaccounts/token",
            "nodes/proxy",
        )
        if resource.startswith("pods/e") or resource in ("pods/attach", "pods/portforward"):
            assert role == "windlass-agent-editor"


def test_without_its_writing_rights_the_agent_only_looks() -> None:
    objects = rendered({"rbac": {"namespaces": False, "quota": False}})
    verbs = {
        verb
        for role, _, resource, verb, _ in rules(objects)
        if role == "windlass-agent" and resource not in ("secrets", "tokenreviews")
    }
    assert verbs == {"get", "list", "watch", "impersonate"}


def test_the_pod_is_restricted_and_holds_no_secret_in_its_spec() -> None:
    objects = rendered({"registration": {"key": "not-in-the-pod", "existingSecret": ""}})
    (deployment,) = [item for item in objects if item["kind"] == "Deployment"]
    pod = deployment["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = pod["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert "not-in-the-pod" not in str(deployment)
    assert deployment["spec"]["strategy"] == {"type": "Recreate"}


def test_the_agent_takes_the_settings_that_the_chart_writes() -> None:
    overlay = {"spec": {"tolerations": [{"key": "gpu", "operator": "Exists"}]}}
    cluster = {"image": "runner:1", "accelerators": [{"resource": "amd.com/gpu"}]}
    objects = rendered({"cluster": cluster, "podTemplate": overlay, "runners": {"port": 9443}})
    (data,) = [item["data"] for item in objects if item["kind"] == "ConfigMap"]
    settings = ClusterSettings.model_validate(yaml.safe_load(data["cluster.yaml"]))
    assert settings.agent_address == "windlass-agent.windlass-agent.svc:9443"
    assert settings.accelerators[0].resource == "amd.com/gpu"
    # The keeper of engines is the agent's own image, unless the operator names another.
    assert settings.engines.keeper.image.startswith("ghcr.io/windlass/agent:")
    assert check_overlay(yaml.safe_load(data["pod-template.yaml"])) == overlay


def test_an_administrator_may_make_the_namespaces() -> None:
    objects = rendered(
        {
            "rbac": {"namespaces": False},
            "projects": [
                {"project": "proj_a", "cluster": "cluster-1", "namespace": "team-a"},
                {"project": "proj_b", "cluster": "cluster-1", "namespace": "team-b"},
            ],
        }
    )
    made = [
        item
        for item in objects
        if item["kind"] == "RoleBinding" and item["metadata"]["namespace"] == "team-b"
    ]
    assert {item["roleRef"]["name"] for item in made} == {
        "windlass-agent-space",
        "windlass-agent-viewer",
        "windlass-agent-editor",
    }


@pytest.mark.parametrize("made", [2**40, 0])
def test_the_agent_alone_makes_and_deletes_the_claim_that_it_makes(made: int) -> None:
    weights = {"claim": "windlass-weights", "bytes": made}
    found = {
        one["metadata"]["name"]: one["spec"]
        for one in rendered({"cluster": {"engines": {"weights": weights}}})
        if one["kind"] == "ValidatingAdmissionPolicy"
    }
    mounts = [one["message"] for one in found["windlass-agent-weights"]["validations"]]
    assert any("ephemeral" in message for message in mounts)
    claims = found["windlass-agent-weights-copies"]
    (rule,) = claims["matchConstraints"]["resourceRules"]
    by_windlass = [one for one in claims["validations"] if "Windlass" in one["message"]]
    expected = (["CREATE", "DELETE"], 2) if made else (["CREATE"], 0)
    assert (rule["operations"], len(by_windlass)) == expected
    assert all(
        "'system:serviceaccount:windlass-agent:windlass-agent'" in one["expression"]
        for one in by_windlass
    )


def test_federation_widens_rights_in_projects_namespaces_alone_and_only_when_asked() -> None:
    before, after = (
        set(rules(rendered({"federation": {"enabled": enabled}}))) for enabled in (False, True)
    )
    assert set(rules(rendered())) == before < after
    assert {(role, resource, verb) for role, _, resource, verb, _ in after - before} == {
        ("windlass-agent-space", "jobs/status", "patch"),
        ("windlass-agent-space", "jobsets/status", "patch"),
        *(
            ("windlass-agent-space", resource, verb)
            for resource in ("events", "configmaps")
            for verb in ("create", "patch")
        ),
    }
