"""Places in line, page by page; what Kueue itself answers is asked of the real one."""

from aiohttp import web
from tests.support.fakes.kube_api import kube_api

from windlass_agent.kueue import Kueue


async def test_places_are_counted_over_all_pages() -> None:
    async def answer(request: web.Request) -> web.Response:
        assert request.path == (
            "/apis/visibility.kueue.x-k8s.io/v1beta2/clusterqueues/main/pendingworkloads"
        )
        offset, limit = int(request.query["offset"]), int(request.query["limit"])
        items = [
            {
                "metadata": {"name": f"w{place}", "namespace": "team"},
                "positionInClusterQueue": place,
            }
            for place in range(offset, min(offset + limit, 1500))
        ]
        return web.json_response({"items": items})

    async with kube_api(answer) as kube:
        places = await Kueue(kube).pending("main")
    assert len(places) == 1500
    assert (places["team/w0"], places["team/w1499"]) == (1, 1500)


async def test_no_workload_yet_is_none() -> None:
    async def answer(request: web.Request) -> web.Response:
        assert request.query["labelSelector"] == "kueue.x-k8s.io/job-uid=u-1"
        return web.json_response({"metadata": {}, "items": []})

    async with kube_api(answer) as kube:
        assert await Kueue(kube).workload_of("team", "u-1") is None
