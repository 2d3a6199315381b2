"""Nodes on which jobs only seem to train: a pod ends after a while, with a runner's last word.

They are played by a kwok of the test's own; the cluster's ends pods at once and without a word.
"""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from tests.cluster.cluster import TestCluster
from tests.cluster.control_plane import kwok

PLAYER = "rehearsal"
RUN_MILLISECONDS = (500, 3000)
LAST_WORD = json.dumps(
    {
        "outcome": "failed",
        "error_code": "invalid_training_file",
        "error_message": "Line 3.",
        "reported": False,
    }
)
STAGE = f"""
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {{name: pod-last-word}}
spec:
  resourceRef: {{apiGroup: v1, kind: Pod}}
  selector:
    matchExpressions:
    - {{key: .metadata.deletionTimestamp, operator: DoesNotExist}}
    - {{key: .status.phase, operator: In, values: [Running]}}
  delay:
    durationMilliseconds: {RUN_MILLISECONDS[0]}
    jitterDurationMilliseconds: {RUN_MILLISECONDS[1]}
  next:
    statusTemplate: |
      containerStatuses:
      {{{{ range .spec.containers }}}}
      - name: {{{{ .name | Quote }}}}
        image: {{{{ .image | Quote }}}}
        ready: false
        restartCount: 0
        state:
          terminated:
            exitCode: 1
            reason: Error
            finishedAt: {{{{ Now | Quote }}}}
            message: '{LAST_WORD}'
      {{{{ end }}}}
      phase: Failed
"""


@contextmanager
def rehearsing(cluster: TestCluster, folder: Path, nodes: int) -> Iterator[dict[str, str]]:
    """Such nodes until the end of the block, which gets the labels that lead to them."""
    site = cluster.own()
    stages = yaml.safe_load_all((site.folder / "kwok-stages.yaml").read_text())
    kept = [one for one in stages if one["metadata"]["name"] != "pod-complete"]
    config = folder / f"kwok-{site.name}.yaml"
    config.write_text(yaml.safe_dump_all([*kept, yaml.safe_load(STAGE)]))
    # Among the cluster's own programs, and gone with this process.
    command = ["setpriv", "--pdeathsig", "KILL", "nsenter", "--net", f"--target={site.pid}"]
    with config.with_suffix(".log").open("wb") as log:
        player = subprocess.Popen(
            [*command, *kwok(site, config, player=PLAYER)], stdout=log, stderr=log
        )
    try:
        names = cluster.kwok_nodes(nodes, player=PLAYER)
        yield {"kwok": names[0].rpartition("-")[0]}
    finally:
        player.kill()
        player.wait()
