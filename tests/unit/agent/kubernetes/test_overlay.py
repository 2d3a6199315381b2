"""Operators' overlays: what they may change, what they may not, and how lists meet."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from tests.support.factories.kube_workloads import Case, workload

from windlass_agent.executors.kubernetes.overlay import check_overlay, merge
from windlass_agent.executors.kubernetes.settings import ClusterSettings

_WORD = st.sampled_from(["a", "b", "node", "work", "tmp", "GPU"])
_ENV = st.fixed_dictionaries(
    {"name": _WORD},
    optional={"value": _WORD, "valueFrom": st.fixed_dictionaries({"fieldRef": st.just({})})},
)
_MOUNT = st.fixed_dictionaries({"mountPath": _WORD, "name": _WORD})
_CONTAINER = st.fixed_dictionaries(
    {"name": _WORD},
    optional={
        "image": _WORD | st.none(),
        "env": st.lists(_ENV, max_size=3),
        "volumeMounts": st.lists(_MOUNT, max_size=3),
        "securityContext": st.dictionaries(_WORD, st.booleans() | st.none(), max_size=2),
    },
)
_VOLUME = st.fixed_dictionaries({"name": _WORD}) | st.fixed_dictionaries(
    {"name": _WORD, "emptyDir": st.dictionaries(_WORD, _WORD, max_size=1)}
)
_TOLERATION = st.fixed_dictionaries({"key": _WORD})
_TEMPLATES = st.fixed_dictionaries(
    {},
    optional={
        "metadata": st.fixed_dictionaries(
            {},
            optional={
                "labels": st.dictionaries(_WORD, _WORD, max_size=2),
                "annotations": st.dictionaries(_WORD, _WORD, max_size=2),
            },
        ),
        "spec": st.fixed_dictionaries(
            {},
            optional={
                "containers": st.lists(_CONTAINER, max_size=3),
                "volumes": st.lists(_VOLUME, max_size=3) | st.none(),
                "tolerations": st.lists(_TOLERATION, max_size=3) | st.none(),
                "nodeSelector": st.dictionaries(_WORD, _WORD, max_size=2) | st.none(),
                "schedulerName": _WORD,
            },
        ),
    },
)


@given(_TEMPLATES, _TEMPLATES)
def test_merging_changes_neither_part_and_repeating_it_changes_nothing(
    base: dict[str, Any], overlay: dict[str, Any]
) -> None:
    before = copy.deepcopy((base, overlay))
    merged = merge(base, overlay)
    assert (base, overlay) == before
    assert merge(merged, overlay) == merged


@given(_TEMPLATES, _TEMPLATES)
def test_keyed_lists_keep_what_they_had_and_hold_no_key_twice(
    base: dict[str, Any], overlay: dict[str, Any]
) -> None:
    merged = merge(merge({}, base), overlay)
    for name in ("containers", "volumes"):
        found = [item["name"] for item in merged.get("spec", {}).get(name) or []]
        assert len(found) == len(set(found))
        removed = name in overlay.get("spec", {}) and overlay["spec"][name] is None
        asked = [*(overlay.get("spec", {}).get(name) or [])]
        asked += [] if removed else [*(base.get("spec", {}).get(name) or [])]
        assert {item["name"] for item in asked} <= set(found)


@given(_TEMPLATES)
def test_no_overlay_that_is_taken_touches_what_fences_an_attempt(overlay: dict[str, Any]) -> None:
    case = Case("any", workload(gpus=1))
    plain = case.render()[-1]["spec"]["template"]
    made = case.render(overlay=overlay)[-1]["spec"]["template"]
    assert plain["metadata"]["labels"].items() <= made["metadata"]["labels"].items()
    for name in ("restartPolicy", "serviceAccountName", "automountServiceAccountToken"):
        assert made["spec"][name] == plain["spec"][name]
    commands = {item["name"]: item.get("command") for item in made["spec"]["containers"]}
    assert commands["node"] == plain["spec"]["containers"][0]["command"]


@pytest.mark.parametrize(
    ("overlay", "field"),
    [
        ({"kind": "Pod"}, "kind"),
        ({"metadata": {"name": "x"}}, "name"),
        ({"metadata": None}, "metadata"),
        ({"metadata": {"labels": None}}, "labels"),
        ({"metadata": {"labels": {"windlass.dev/job": "other"}}}, "windlass.dev/job"),
        ({"metadata": {"annotations": {"windlass.dev/agent-ca": ""}}}, "agent-ca"),
        ({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "other"}}}, "queue-name"),
        ({"spec": None}, "spec"),
        ({"spec": {"serviceAccountName": "admin"}}, "serviceAccountName"),
        ({"spec": {"automountServiceAccountToken": True}}, "automountServiceAccountToken"),
        ({"spec": {"restartPolicy": "Always"}}, "restartPolicy"),
        ({"spec": {"containers": None}}, "containers"),
        ({"spec": {"containers": {"node": {}}}}, "containers"),
        ({"spec": {"containers": [{"image": "x"}]}}, "name"),
        ({"spec": {"containers": [{"name": "node", "command": ["sh"]}]}}, "command"),
        ({"spec": {"containers": [{"name": "node", "args": None}]}}, "command"),
        ({"spec": {"containers": [{"name": "node", "env": [{"value": "x"}]}]}}, "env"),
        ({"spec": {"volumes": ["python"]}}, "volumes"),
    ],
)
def test_what_an_operator_may_not_say_is_refused_by_name(
    overlay: dict[str, Any], field: str
) -> None:
    with pytest.raises(ValueError, match=field):
        check_overlay(overlay)
    with pytest.raises(ValidationError, match=field):
        ClusterSettings.model_validate({"overlay": overlay})


def test_a_label_may_be_called_like_a_list() -> None:
    check_overlay({"spec": {"nodeSelector": {"env": "production", "ports": "4"}}})


def test_lists_meet_by_their_keys() -> None:
    base = {
        "containers": [
            {
                "name": "node",
                "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
            }
        ],
        "volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "1"}}],
        "tolerations": [{"key": "a"}],
    }
    overlay = {
        "containers": [
            {
                "name": "node",
                "env": [{"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}],
                "volumeMounts": [{"name": "fast", "mountPath": "/tmp"}],
            },
            {"name": "sidecar", "image": "s"},
        ],
        "volumes": [{"name": "tmp", "persistentVolumeClaim": {"claimName": "c"}}],
        "tolerations": [{"key": "a"}, {"key": "b"}],
    }
    assert merge(base, overlay) == {
        "containers": [
            {
                "name": "node",
                "env": [
                    {"name": "A", "value": "1"},
                    {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "x"}}},
                ],
                "volumeMounts": [{"name": "fast", "mountPath": "/tmp"}],
            },
            {"name": "sidecar", "image": "s"},
        ],
        "volumes": [{"name": "tmp", "persistentVolumeClaim": {"claimName": "c"}}],
        "tolerations": [{"key": "a"}, {"key": "b"}],
    }
