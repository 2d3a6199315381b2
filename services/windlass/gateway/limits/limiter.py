"""Rate limiter of a gateway: grants drawn from the projects' shared allowances.

A request spends from a grant in memory; when it is spent, one call draws the next, a twentieth of
a minute's worth. So all gateways together never let more through than a project has. What a
request reserved and did not use is settled with the next draw.
"""

import asyncio
import time
from collections import OrderedDict

import grpc

from windlass.api.usage.v1 import allowances_pb2 as pb
from windlass.api.usage.v1 import allowances_pb2_grpc as rpc
from windlass.core import telemetry
from windlass.core.config import LimitsSection
from windlass.gateway.limits.refusals import (
    REQUESTS,
    TOKENS,
    Headers,
    bucket_headers,
    concurrency_refusal,
    rate_refusal,
    seconds_until,
)

log = telemetry.logger("gateway.limits")
PROJECTS = 100_000
# Of a minute's worth, drawn at a time.
SHARE = 20
# A grant that nobody spends is let go: the shared bucket refills meanwhile.
GRANT_SECONDS = 10.0
DRAW_SECONDS = 2.0
SETTLE_SECONDS = 0.05
# Slots are renewed before the service takes them for those of a dead gateway.
RENEW_SECONDS = 5.0
NAMES = {"requests": REQUESTS, "tokens": TOKENS}


class BucketGrant:
    """Grant that this gateway holds of one bucket."""

    __slots__ = ("_expires_at", "_level_at", "held", "level", "size", "unsettled")

    def __init__(self, size: int):
        self.size = size
        self.held = 0.0
        # What was left for everybody at the last draw.
        self.level = float(size)
        # Used beyond what was reserved; negative: to give back.
        self.unsettled = 0.0
        self._level_at = time.monotonic()
        self._expires_at = 0.0

    def covers(self, amount: float, now: float) -> bool:
        """Returns True if the grant covers an amount."""
        return not self.size or (now < self._expires_at and self.held >= amount)

    def expire(self, now: float) -> None:
        """Releases the grant if it has not been used for long."""
        if now >= self._expires_at:
            self.held = 0.0

    def wish(self, amount: float) -> pb.BucketDraw:
        """Returns the amount to draw from the allowance so that `amount` is covered."""
        needed = max(0.0, amount - self.held)
        wanted = max(needed, self.size / SHARE) if needed else 0.0
        settled, self.unsettled = self.unsettled, 0.0
        return pb.BucketDraw(per_minute=self.size, needed=needed, wanted=wanted, settled=settled)

    def grant_alone(self, draw: pb.BucketDraw, now: float) -> pb.BucketGrant:
        """Grants an amount locally while the allowance service is unavailable."""
        refilled = self.level + (now - self._level_at) * self.size / 60
        level = min(self.size, refilled) - draw.settled
        granted = draw.needed if draw.needed <= level else 0.0
        return pb.BucketGrant(granted=granted, level=min(self.size, level - granted))

    def receive(self, grant: pb.BucketGrant, now: float) -> None:
        """Adds a granted amount."""
        self.held += grant.granted
        self.level, self._level_at = grant.level, now
        if grant.granted:
            self._expires_at = now + GRANT_SECONDS

    @property
    def left(self) -> float:
        """The project's remaining amount, as far as this gateway knows."""
        return self.level + self.held


class ProjectLimits:
    """Limits of one project at this gateway."""

    def __init__(self, project_id: str, limits: LimitsSection):
        self.project_id = project_id
        self.requests = BucketGrant(limits.requests_per_minute)
        self.tokens = BucketGrant(limits.tokens_per_minute)
        self.concurrent = limits.concurrent_requests
        self.active = 0
        self.slots = 0
        self.renewed_at = 0.0
        # One draw at a time: the next one finds what the last one brought.
        self.drawing = asyncio.Lock()

    def reservation(self, tokens: int) -> int:
        """Return what a request that may use `tokens` has to reserve: at most a minute's worth."""
        return min(tokens, self.tokens.size)

    def expire(self, now: float) -> None:
        """Releases grants that were made too long ago."""
        self.requests.expire(now)
        self.tokens.expire(now)

    def covers(self, tokens: int, now: float) -> bool:
        """Returns True if a request of so many tokens may pass without a further draw."""
        return (
            self.requests.covers(1, now)
            and self.tokens.covers(tokens, now)
            and (not self.concurrent or self.active < self.slots)
        )

    def spend(self, tokens: int) -> Headers:
        """Take one request and its tokens; return the headers that say what is left."""
        self.requests.held -= 1 if self.requests.size else 0
        self.tokens.held -= tokens if self.tokens.size else 0
        self.active += 1
        return self.headers()

    def refuse(self, tokens: int, now: float) -> Exception:
        """Return the error of a request that no draw covers."""
        rates = (("requests", self.requests, 1), ("tokens", self.tokens, tokens))
        for what, grant, amount in rates:
            if not grant.covers(amount, now):
                wait = seconds_until(amount, grant.size, grant.left)
                return rate_refusal(what, grant.size, wait, self.headers())
        return concurrency_refusal(self.concurrent)

    def headers(self) -> Headers:
        """Return the headers that say what is left."""
        headers: Headers = []
        for grant, names in ((self.requests, REQUESTS), (self.tokens, TOKENS)):
            if grant.size:
                headers += bucket_headers(names, grant.size, grant.left)
        return headers


class Limiter:
    """The limits of recently active projects."""

    def __init__(
        self, limits: LimitsSection, allowances: rpc.AllowancesInternalServiceAsyncStub, holder: str
    ):
        self._limits = limits
        self._allowances = allowances
        self._holder = holder
        self.enabled = bool(
            limits.requests_per_minute or limits.tokens_per_minute or limits.concurrent_requests
        )
        self._projects: OrderedDict[str, ProjectLimits] = OrderedDict()
        self._unsettled: dict[str, ProjectLimits] = {}
        self._wake = asyncio.Event()

    def of(self, project_id: str) -> ProjectLimits:
        """Return the project's limits."""
        found = self._projects.get(project_id)
        if found is None:
            found = self._projects[project_id] = ProjectLimits(project_id, self._limits)
            if len(self._projects) > PROJECTS:
                self._drop_idle()
        else:
            self._projects.move_to_end(project_id)
        return found

    async def enter(self, project: ProjectLimits, tokens: int) -> Headers:
        """Take one request that reserves `tokens`; raises HttpError 429."""
        now = time.monotonic()
        if not project.covers(tokens, now):
            async with project.drawing:
                # One moment for the draw and for what it brings: of two grants, one that ends in
                # between would be missing. Smaller requests may spend what this one waits for.
                now = time.monotonic()
                project.expire(now)
                granted = True
                while granted and not project.covers(tokens, now):
                    granted = await self._draw(project, tokens, requests=1)
            if not project.covers(tokens, now):
                raise project.refuse(tokens, now)
        return project.spend(tokens)

    def leave(self, project: ProjectLimits, reserved: int, used: int) -> None:
        """End a request that used that many tokens."""
        project.active -= 1
        if not project.tokens.size and not project.concurrent:
            return
        if project.tokens.size:
            project.tokens.unsettled += used - reserved
        self._unsettled[project.project_id] = project
        self._wake.set()

    async def run(self) -> None:
        """Settles used amounts and renews grants until cancelled."""
        if not self.enabled:
            await asyncio.Event().wait()
        while True:
            try:
                async with asyncio.timeout(RENEW_SECONDS):
                    await self._wake.wait()
            except TimeoutError:
                now = time.monotonic()
                held = [one for one in self._projects.values() if one.slots]
                self._unsettled |= {
                    one.project_id: one for one in held if now - one.renewed_at > RENEW_SECONDS
                }
            self._wake.clear()
            await asyncio.sleep(SETTLE_SECONDS)
            projects, self._unsettled = self._unsettled, {}
            for project in projects.values():
                async with project.drawing:
                    await self._draw(project, 0, requests=0)

    async def _draw(self, project: ProjectLimits, tokens: int, *, requests: int) -> bool:
        """Draw what is needed, and tell whether all of it was granted.

        Where nobody answers, this gateway grants it by itself: inference goes on without the usage
        service, as it does without its counting. Then each gateway grants the whole limit.
        """
        more = requests * max(1, project.concurrent // SHARE)
        request = pb.DrawRequest(
            project_id=project.project_id,
            holder=self._holder,
            requests=project.requests.wish(requests),
            tokens=project.tokens.wish(tokens),
            concurrent_limit=project.concurrent,
            slots_active=project.active,
            slots_wanted=project.active + more,
        )
        try:
            answer = await self._allowances.Draw(request, timeout=DRAW_SECONDS)
        except grpc.aio.AioRpcError as error:
            log.warning("allowance_draw_failed", code=error.code().name)
            answer = pb.DrawResponse(
                requests=project.requests.grant_alone(request.requests, time.monotonic()),
                tokens=project.tokens.grant_alone(request.tokens, time.monotonic()),
                slots=max(project.active, min(project.active + more, project.concurrent)),
            )
        now = time.monotonic()
        project.requests.receive(answer.requests, now)
        project.tokens.receive(answer.tokens, now)
        project.slots, project.renewed_at = answer.slots, now
        return (
            answer.requests.granted >= request.requests.needed
            and answer.tokens.granted >= request.tokens.needed
            and (not project.concurrent or project.active < project.slots)
        )

    def _drop_idle(self) -> None:
        name, oldest = self._projects.popitem(last=False)
        if oldest.active:
            self._projects[name] = oldest
