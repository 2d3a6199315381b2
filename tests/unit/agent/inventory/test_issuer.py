"""The report of a cluster's issuer: once, when it changes, and again after a failure."""

from typing import Any

import grpc

from windlass_agent.inventory.issuer import JWKS, METADATA, IssuerReport
from windlass_agent.kube import KubeError

KEYS = {"keys": [{"kty": "RSA", "kid": "a"}]}


class Api:
    """Answers two paths, as a cluster's API does, and takes reports, as a control plane."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {METADATA: {"issuer": "https://kubernetes"}, JWKS: KEYS}
        self.error: Exception | None = None
        self.told: list[tuple[str, str]] = []

    async def get(self, path: str) -> Any:
        if isinstance(answer := self.answers[path], Exception):
            raise answer
        return answer

    async def report(self, issuer: str, jwks: str) -> None:
        if self.error is not None:
            raise self.error
        self.told.append((issuer, jwks))


async def test_an_issuer_is_told_once_and_when_it_changes() -> None:
    api = Api()
    report = IssuerReport(api.get, api.report)
    await report.look()
    await report.look()
    assert api.told == [("https://kubernetes", '{"keys":[{"kty":"RSA","kid":"a"}]}')]
    api.answers[JWKS] = {"keys": []}
    await report.look()
    assert len(api.told) == 2


async def test_a_failure_is_left_to_the_next_look() -> None:
    api = Api()
    report = IssuerReport(api.get, api.report)
    api.answers[METADATA] = KubeError(403, "Forbidden", "no")
    await report.look()
    api.answers[METADATA] = {"issuer": "https://kubernetes"}
    api.error = grpc.aio.AioRpcError(
        grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata()
    )
    await report.look()
    assert api.told == []
    api.error = None
    await report.look()
    assert len(api.told) == 1
