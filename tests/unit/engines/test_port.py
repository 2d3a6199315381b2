import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from aiohttp import web

from windlass.inference_api.images.bounds import MAX_PIXELS
from windlass.inference_api.routes import ENGINE_ROUTES
from windlass_agent.engines.endpoint import parse_endpoint
from windlass_agent.engines.port import CapabilityMissing, EngineError, EngineSpec
from windlass_agent.engines.registry import engines
from windlass_agent.engines.sglang.kind import SglangEngine
from windlass_agent.engines.vllm_engine import VllmEngine


def test_choosing_an_engine_imports_no_torch() -> None:
    code = (
        "import sys; from windlass_agent.engines.registry import engines; engines();"
        "sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_command_names_its_socket_and_takes_no_value_for_a_flag() -> None:
    spec = EngineSpec(
        model_dir=Path("/models/-x"), served_name="--help", endpoint="unix:///run/e/s"
    )
    command = engines()["builtin"].command(spec)
    assert {"--model=/models/-x", "--served-model-name=--help", "--uds=/run/e/s"} <= set(command)


@pytest.mark.parametrize(
    "address", ["", "unix://relative/path", "http://host", "ftp://h:1", f"unix:///{'x' * 200}"]
)
def test_a_wrong_address_is_refused(address: str) -> None:
    with pytest.raises(ValueError):
        parse_endpoint(address)


async def test_what_is_not_declared_is_refused_before_any_call() -> None:
    control = engines()["builtin"].control("unix:///nowhere/engine.sock")
    sglang = SglangEngine(Path("python")).control("unix:///nowhere/engine.sock")
    for call in (sglang.sleep(), sglang.wake(), sglang.asleep(), sglang.weight_version()):
        with pytest.raises(CapabilityMissing):
            await call
    with pytest.raises(CapabilityMissing, match="weight_updates"):
        await sglang.update_weights(2, Path("/models/two"))
    assert await control.ready() is False
    with pytest.raises(EngineError, match="did not answer"):
        await control.loaded_adapters()
    await control.close()
    await sglang.close()


async def test_one_that_has_begun_to_sleep_is_waited_for(tmp_path: Path) -> None:
    calls: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        calls.append(request.path)
        # As all engines say it from the beginning of a sleep.
        return web.json_response({"is_sleeping": True})

    app = web.Application()
    app.add_routes([web.get("/is_sleeping", answer), web.post("/sleep", answer)])
    runner = web.AppRunner(app)
    await runner.setup()
    await web.UnixSite(runner, str(tmp_path / "s")).start()
    control = engines()["builtin"].control(f"unix://{tmp_path / 's'}")
    await control.sleep()
    assert "/sleep" in calls
    await control.close()
    await runner.cleanup()


def test_vllm_is_told_that_it_will_sleep_and_needs_a_gpu_for_that() -> None:
    vllm = VllmEngine(Path("python"))
    spec = EngineSpec(model_dir=Path("/m"), served_name="m", endpoint="unix:///run/e/s", gpus=1)
    assert "--enable-sleep-mode" not in vllm.command(spec)
    assert "VLLM_SERVER_DEV_MODE" not in vllm.environment(spec)
    sleeps = replace(spec, sleeps=True)
    assert "--enable-sleep-mode" in vllm.command(sleeps)
    assert vllm.environment(sleeps)["VLLM_SERVER_DEV_MODE"] == "1"
    assert (vllm.sleeps(1), vllm.sleeps(0)) == (True, False)


def test_vllm_s_threads_are_bound_to_no_cores_that_other_engines_have_too() -> None:
    spec = EngineSpec(model_dir=Path("/m"), served_name="m", endpoint="unix:///run/e/s")
    bound = "VLLM_CPU_OMP_THREADS_BIND"
    assert VllmEngine(Path("python")).environment(spec)[bound] == "nobind"
    assert bound not in VllmEngine(Path("python")).environment(replace(spec, gpus=1))


def test_vllm_has_the_gateway_s_bound_of_pixels() -> None:
    spec = EngineSpec(model_dir=Path("/m"), served_name="m", endpoint="unix:///run/e/s", gpus=1)
    assert VllmEngine(Path("python")).environment(spec)["VLLM_MAX_IMAGE_PIXELS"] == str(MAX_PIXELS)


def test_no_request_of_a_tenant_reaches_what_steers_an_engine() -> None:
    steering = {"sleep", "wake_up", "is_sleeping", "collective_rpc", "load_lora_adapter", "load"}
    assert not steering & {path.rpartition("/")[2] for path in ENGINE_ROUTES}
