"""An agent with an engine that learns, as its plugin would have it; it computes nothing.

The real plugin with a real vLLM is in tests/integration/plugin/test_tinker_in_engine.py. This one
keeps the plugin's rule: a job goes on from the weights that another has left, or is refused.
"""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
from aiohttp import web
from tests.support.agents.wire_agent import WireAgent
from tests.support.waiting import until

from windlass.api.clusters.v1 import clusters_pb2 as pb
from windlass.api.models.v1 import models_pb2
from windlass.core.app import App

TRAINABLE = pb.Capacity(training_engines=["vllm"])
ABLE = pb.EngineCapabilities(context_length=512, training=True)
FAILED, SUCCEEDED = pb.PHASE_FAILED, pb.PHASE_SUCCEEDED


class TaughtEngine:
    """One machine whose engines learn; what they were asked is kept."""

    def __init__(self, agent: WireAgent, folder: Path) -> None:
        self.agent, self.steps, self.chain = agent, 0, ""
        self.bodies: list[dict[str, Any]] = []
        self.completions: list[dict[str, Any]] = []
        # The reason for which a job fails; empty: it does not.
        self.instead: Callable[[dict[str, Any]], str] = lambda body: ""
        # Serves no engine yet.
        self.waits = False
        # Says that passes are done, and puts nothing.
        self.lies = False
        self._folder = folder
        self._done: set[str] = set()
        self._sites: dict[str, web.AppRunner] = {}

    async def run(self) -> None:
        """Serves engines and does their jobs until cancelled."""
        try:
            while True:
                for workload in list(self.agent.workloads.values()):
                    if workload.desired == pb.DESIRED_STATE_RUNNING:
                        await self._do(workload)
                await asyncio.sleep(0.02)
        finally:
            for runner in self._sites.values():
                await runner.cleanup()

    def forget(self) -> None:
        """Loses what was learned, as a process that was started again."""
        self.chain = ""

    async def _do(self, workload: pb.Workload) -> None:
        if workload.HasField("engine") and workload.engine.training:
            if workload.id not in self._sites and not self.waits:
                await self._serve(workload)
        elif workload.HasField("engine_training") and workload.id not in self._done:
            self._done.add(workload.id)
            await self._compute(workload)

    async def _serve(self, workload: pb.Workload) -> None:
        folder = self._folder / f"e-{workload.id}"
        folder.mkdir()
        application = web.Application()
        application.router.add_post("/v1/completions", self._complete)
        application.router.add_post("/v1/chat/completions", self._chat)
        runner = self._sites[workload.id] = web.AppRunner(application)
        await runner.setup()
        await web.UnixSite(runner, str(folder / "s")).start()
        await self.agent.report(
            workload, pb.PHASE_RUNNING, endpoint=f"unix://{folder}/s", capabilities=ABLE
        )

    async def _compute(self, workload: pb.Workload) -> None:
        order = workload.engine_training
        async with httpx.AsyncClient() as http:
            body = msgspec.json.decode((await http.get(order.request.url)).content)
            self.bodies.append(body)
            reason = self.instead(body)
            if not reason and body.get("continues", "") not in ("", self.chain):
                reason = "state_lost"
            if reason:
                await self.agent.report(workload, FAILED, reason=reason, message=f"{reason}.")
                return
            said = pb.EngineTrainingStatus()
            if body.get("forward_only"):
                self.chain = self.chain if body["continues"] else body["idempotency_key"]
                content = self._outputs(body)
                assert order.outputs.bytes == len(content)
                if not self.lies:
                    (await http.put(order.outputs.url, content=content)).raise_for_status()
                said.files.append(models_pb2.FileUrl(path=order.outputs.path))
            else:
                self.chain, self.steps = body["idempotency_key"], self.steps + 1
                step = pb.EngineTrainingStep(step=1, loss=0.5, tokens=3, seconds=0.1)
                said = pb.EngineTrainingStatus(steps=1, total_steps=1, recent=[step])
        await self.agent.report(workload, SUCCEEDED, training=said)

    def _outputs(self, body: dict[str, Any]) -> bytes:
        """Log-probabilities that say how many steps the weights have; each loss is 2."""
        datums = body["datums"]
        count = sum(len(one["loss_fn_inputs"]["target_tokens"]["data"]) for one in datums)
        numbers = [float(-self.steps)] * count + [2.0] * len(datums)
        return struct.pack(f"<{len(numbers)}f", *numbers)

    async def _chat(self, request: web.Request) -> web.Response:
        """Says what the last message says; its letters are the token ids."""
        body = await request.json()
        self.completions.append(body)
        text = body["messages"][-1]["content"]
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
        answer: dict[str, Any] = {"id": "c1", "object": "chat.completion", "created": 1}
        if body.get("return_token_ids"):
            choice["token_ids"] = list(map(ord, text))
            answer["prompt_token_ids"] = [1, 2, 3]
        usage = {"prompt_tokens": 3, "completion_tokens": len(text), "total_tokens": 3 + len(text)}
        return web.json_response(
            answer | {"model": body["model"], "choices": [choice], "usage": usage}
        )

    async def _complete(self, request: web.Request) -> web.Response:
        """Continues with the number of steps."""
        body = await request.json()
        self.completions.append(body)
        tokens = [self.steps] * body["max_tokens"]
        choice = {
            "text": "", "finish_reason": "length", "token_ids": tokens,
            "logprobs": {"token_logprobs": [-0.5] * len(tokens)},
        }  # fmt: skip
        choices = [choice | {"index": one} for one in range(body["n"])]
        usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": len(tokens)}
        return web.json_response({"choices": choices, "usage": usage | {"total_tokens": 1}})


@asynccontextmanager
async def taught(app: App, folder: Path) -> AsyncIterator[TaughtEngine]:
    """Runs such a machine until the end of the block."""
    agent = await WireAgent.join(app, engines=("vllm",), capacity=TRAINABLE, run_folder=str(folder))
    engine = TaughtEngine(agent, folder)
    running = asyncio.create_task(engine.run())
    try:
        yield engine
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await agent.leave()


async def asked(engine: TaughtEngine, number: int) -> dict[str, Any]:
    """The body of a job, once the engine has it."""
    await until(lambda: len(engine.bodies) > number)
    return engine.bodies[number]
