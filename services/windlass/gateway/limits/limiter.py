"""Rate limiter of a gateway: grants drawn from the projects' shared allowances.

A request spends from a grant in memory; when it is spent, one call draws the next, a twentieth of
a minute's worth. So all gateways together never let more through than a project has. What a
request reserved and did not use is settled with the next draw, which also renews the grants of a
project that goes on asking, so that its requests do not wait for one.
"""

import asyncio
import time
from collections import OrderedDict
from contextlib import suppress

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
# It counts as new for so long.
FRESH_SECONDS = 1.0
# Shares of fewer requests or tokens are not drawn ahead.
LEAST_SHARE = 2
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
        return self._draw(needed, max(needed, self.size / SHARE) if needed else 0.0)

    def renewal(self, now: float) -> pb.BucketDraw:
        """Returns the draw that settles, and renews a grant that is half spent or not fresh."""
        share = self.size / SHARE
        is_fresh = self.held >= share / 2 and now < self._expires_at - GRANT_SECONDS + FRESH_SECONDS
        # Of a small limit each request counts, and another gateway may have the next one.
        if is_fresh or share < LEAST_SHARE:
            return self._draw(0.0, 0.0)
        return self._draw(1.0, max(1.0, share - self.held))

    def _draw(self, needed: float, wanted: float) -> pb.BucketDraw:
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
        self.renewed_at = self.used_at = 0.0
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

    def draw(self, tokens: int, holder: str) -> pb.DrawRequest:
        """Return what to draw so that a request of so many tokens may pass."""
        spare = max(1, self.concurrent // SHARE)
        return self._asked(holder, self.requests.wish(1), self.tokens.wish(tokens), spare)

    def renewal(self, now: float, holder: str) -> pb.DrawRequest:
        """Return what to draw between requests: what is owed, and what those to come may spend."""
        if now - self.used_at > GRANT_SECONDS:
            return self._asked(holder, self.requests.wish(0), self.tokens.wish(0), 0)
        spare = self.concurrent // SHARE
        return self._asked(holder, self.requests.renewal(now), self.tokens.renewal(now), spare)

    def _asked(
        self, holder: str, requests: pb.BucketDraw, tokens: pb.BucketDraw, spare: int
    ) -> pb.DrawRequest:
        return pb.DrawRequest(
            project_id=self.project_id,
            holder=holder,
            requests=requests,
            tokens=tokens,
            concurrent_limit=self.concurrent,
            slots_active=self.active,
            slots_wanted=self.active + spare,
        )

    def spend(self, tokens: int, now: float) -> Headers:
        """Take one request and its tokens; return the headers that say what is left."""
        self.used_at = now
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
                    granted = await self._draw(project, project.draw(tokens, self._holder))
            if not project.covers(tokens, now):
                raise project.refuse(tokens, now)
        return project.spend(tokens, now)

    def leave(self, project: ProjectLimits, reserved: int, used: int) -> None:
        """End a request that used that many tokens."""
        project.active -= 1
        if project.tokens.size:
            project.tokens.unsettled += used - reserved
        self._unsettled[project.project_id] = project
        self._wake.set()

    async def run(self) -> None:
        """Settles used amounts and renews grants until cancelled."""
        if not self.enabled:
            await asyncio.Event().wait()
        renewed_at = time.monotonic()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(RENEW_SECONDS):
                    await self._wake.wait()
            self._wake.clear()
            await asyncio.sleep(SETTLE_SECONDS)
            if time.monotonic() - renewed_at >= RENEW_SECONDS:
                renewed_at = time.monotonic()
                await self.renew()
            else:
                await self.settle()

    async def renew(self) -> None:
        """Settles, and renews the slots of all projects that have some."""
        due = time.monotonic() - RENEW_SECONDS
        held = [one for one in self._projects.values() if one.slots and one.renewed_at < due]
        self._unsettled |= {one.project_id: one for one in held}
        await self.settle()

    async def settle(self) -> None:
        """Settles what ended since the last call, and draws ahead for its projects."""
        projects, self._unsettled = self._unsettled, {}
        for project in projects.values():
            async with project.drawing:
                request = project.renewal(time.monotonic(), self._holder)
                if project.concurrent or request.requests.needed or request.tokens.per_minute:
                    await self._draw(project, request)

    async def _draw(self, project: ProjectLimits, request: pb.DrawRequest) -> bool:
        """Draw what is needed, and tell whether all of it was granted.

        Where nobody answers, this gateway grants it by itself: inference goes on without the usage
        service, as it does without its counting. Then each gateway grants the whole limit.
        """
        # What is given back must not be taken while the call is on its way.
        project.slots = min(project.slots, request.slots_wanted)
        try:
            answer = await self._allowances.Draw(request, timeout=DRAW_SECONDS)
        except grpc.aio.AioRpcError as error:
            log.warning("allowance_draw_failed", code=error.code().name)
            answer = pb.DrawResponse(
                requests=project.requests.grant_alone(request.requests, time.monotonic()),
                tokens=project.tokens.grant_alone(request.tokens, time.monotonic()),
                slots=max(project.active, min(request.slots_wanted, project.concurrent)),
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
