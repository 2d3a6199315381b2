"""Runners that only claim to train, for pods of nodes that only seem to run them.

Each speaks through the runner's own link, with the token and the trust of its pod: a step, a
checkpoint, a table of metrics, the model, the end. Then it ends its pod as a kubelet would.
"""

import asyncio
import datetime
import json
import random
from pathlib import Path
from typing import Any

import httpx
from tests.support.services.jobs_plane import manifest_of

from windlass.api.runner.v1 import runner_pb2 as pb
from windlass.kubernetes.labels import PREFIX
from windlass_agent.executors.kubernetes.render.parts import AUDIENCE
from windlass_agent.kube import Kube, ResourceNotFound
from windlass_agent.runner.protocol.link import AgentLink, CallRefused
from windlass_agent.runner.protocol.outcome import Outcome, OutcomeKind

RUN_SECONDS = (0.5, 3.0)
CONTENT = {"adapter_config.json": b"{}", "adapter_model.safetensors": b"weights"}
RESULT = {"step_metrics.csv": b"step,train_loss\n1,0.5\n"}
TOKENS = 100
CA = PREFIX + "agent-ca"


class Players:
    """Plays the runner of every pod that runs."""

    def __init__(self, kube: Kube, folder: Path, address: str):
        self._kube = kube
        self._folder = folder
        self._address = address
        self._http = httpx.AsyncClient(timeout=60)
        self._playing: dict[str, asyncio.Task[None]] = {}

    def see(self, pod: dict[str, Any]) -> None:
        """Takes every state of a pod; what runs for the first time begins to play."""
        uid, is_running = pod["metadata"]["uid"], pod["status"].get("phase") == "Running"
        if is_running and uid not in self._playing:
            self._playing[uid] = asyncio.create_task(self._play(pod))

    async def close(self) -> None:
        """Ends every runner; raises what one of them met."""
        for task in self._playing.values():
            task.cancel()
        ended = await asyncio.gather(*self._playing.values(), return_exceptions=True)
        await self._http.aclose()
        for one in ended:
            if isinstance(one, Exception):
                raise one

    async def _play(self, pod: dict[str, Any]) -> None:
        await asyncio.sleep(random.uniform(*RUN_SECONDS))
        metadata = pod["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}"
        try:
            token = await self._token(path, pod)
            ca = self._folder / f"{metadata['uid']}.crt"
            ca.write_text(metadata["annotations"][CA])
            link = AgentLink(self._address, token=lambda: token, ca=ca)
            try:
                await self._train(link)
            finally:
                await link.close()
            await self._kube.patch(f"{path}/pods/{metadata['name']}/status", ended(pod))
        except (ResourceNotFound, CallRefused):
            """The attempt was given up, and its pod goes or is gone."""

    async def _token(self, path: str, pod: dict[str, Any]) -> str:
        metadata = pod["metadata"]
        bound = {
            "kind": "Pod",
            "apiVersion": "v1",
            "name": metadata["name"],
            "uid": metadata["uid"],
        }
        request = {"spec": {"audiences": [AUDIENCE], "boundObjectRef": bound}}
        account = pod["spec"]["serviceAccountName"]
        answer = await self._kube.create(f"{path}/serviceaccounts/{account}/token", request)
        return str(answer["status"]["token"])

    async def _train(self, link: AgentLink) -> None:
        await link.assignment()
        losses = {"train_loss": 0.5}
        metrics = pb.StepMetrics(
            step=1, total_steps=1, epoch=1.0, values=losses, trained_tokens=TOKENS
        )
        await link.report([pb.RunEvent(seq=1, at_ms=1, metrics=metrics)])
        await self._upload(link, pb.ARTIFACT_KIND_CHECKPOINT, CONTENT)
        await self._upload(link, pb.ARTIFACT_KIND_RESULT_FILE, RESULT)
        await self._upload(link, pb.ARTIFACT_KIND_FINAL, CONTENT)
        await link.finish(Outcome(verdict=OutcomeKind.SUCCEEDED, trained_tokens=TOKENS), last_seq=1)

    async def _upload(
        self, link: AgentLink, kind: "pb.ArtifactKind.ValueType", files: dict[str, bytes]
    ) -> None:
        begun = await link.create_artifact(kind, step=1, manifest=manifest_of(files))
        for file in begun.uploads:
            (await self._http.put(file.url, content=files[file.path])).raise_for_status()
        await link.commit_artifact(
            pb.CommitArtifactRequest(artifact_id=begun.artifact_id, is_adapter=files is CONTENT)
        )


def ended(pod: dict[str, Any]) -> dict[str, Any]:
    """The status of a pod whose runner has succeeded."""
    now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    word = json.dumps({"outcome": "succeeded", "trained_tokens": TOKENS, "reported": True})
    done = {"exitCode": 0, "reason": "Completed", "finishedAt": now, "message": word}
    containers = [
        {
            "name": one["name"], "image": one["image"], "imageID": "", "ready": False,
            "restartCount": 0, "state": {"terminated": done},
        }
        for one in pod["spec"]["containers"]
    ]  # fmt: skip
    return {"status": {"phase": "Succeeded", "containerStatuses": containers}}
