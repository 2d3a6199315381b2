"""Opening of an engine's answer to a request, at whichever engine has a place for it."""

import time
from functools import partial
from typing import NamedTuple

from windlass.gateway.exchange import HttpExchange
from windlass.gateway.inference.disconnect_watch import DisconnectWatch
from windlass.gateway.inference.engines import (
    Asker,
    EngineConnection,
    EnginePlace,
    Engines,
    NoAnswer,
    Sent,
    Tenant,
    demand_line,
)
from windlass.gateway.inference.engines.trace import trace_headers
from windlass.gateway.inference.head import BodyJudge, CacheSalts, Head, for_engine
from windlass.gateway.inference.images.room import ImageHold
from windlass.gateway.inference.meter import UsageMeter
from windlass.gateway.inference.offers import Endpoints, Offer, is_salted, offered, offering
from windlass.gateway.inference.relay import StreamComments
from windlass.gateway.inference.waiting import ModelFinder

# Of clients that do not set `prompt_cache_key`.
SESSION = b"x-session-id"


class EngineRequest(NamedTuple):
    """A request that goes to an engine."""

    exchange: HttpExchange
    head: Head
    judge: BodyJudge
    meter: UsageMeter
    # Whether usage is asked for in every chunk.
    usage: bool
    comments: StreamComments | None
    disconnect: DisconnectWatch
    hold: ImageHold

    def asker(self, offer: Offer) -> Asker:
        """Returns whose request it is, and for the engines of which version."""
        caller = self.exchange.caller
        tenant = Tenant(caller.organization_id, caller.require_project())
        return Asker(offer.served.engine_version_id, tenant, self.background)

    @property
    def background(self) -> bool:
        """True if others go before it."""
        return self.exchange.background or self.head.may_wait


class EngineOpener:
    """Finds engines for requests, and has one of them answer."""

    def __init__(self, finder: ModelFinder, engines: Engines, salts: CacheSalts):
        self._finder = finder
        self._engines = engines
        self._salts = salts

    async def find(
        self, ask: EngineRequest, *, seconds: float | None = None, is_open: bool = False
    ) -> Offer:
        """Waits for engines that have the model; raises HttpError, as the finder does."""
        path, judge = ask.exchange.path, ask.judge
        found = await self._finder.find(
            ask.exchange.caller,
            ask.head.model,
            path=path,
            judge=judge,
            seconds=seconds,
            is_open=is_open,
        )
        return Offer(found, offering(found.endpoints, path, judge))

    async def open(self, ask: EngineRequest, offer: Offer) -> tuple[EngineConnection, EnginePlace]:
        """An engine's answer, and the place there, which the caller gives back.

        Waits for a place where all are taken, and for another engine when those that are known
        are gone.
        """
        exchange = ask.exchange
        deadline = time.monotonic() + self._finder.hold_seconds
        again = True
        while True:
            place = self._place(ask, offer)
            try:
                if place is None:
                    place = await self._wait(ask, offer, deadline)
                    left = deadline - time.monotonic()
                    offer = await self.find(ask, seconds=left, is_open=True)
                    if place.pool.address not in {one.address for one in offer.able}:
                        continue
                ask.meter.open()
                body, lines = self._body(ask, offer, place), trace_headers(exchange.headers)
                ids = (exchange.path, body, exchange.unique_id)
                lines += demand_line(exchange.headers)
                sent = Sent(*ids, lines, ask.meter.asked, ask.meter.refused)
                ask.disconnect.before = partial(self._abort, ask.meter, place, offer.able, sent)
                response = await self._engines.open(place, offer.able, sent, again=again)
                taken, place = place, None
                return response, taken
            except NoAnswer as error:
                again = again and not error.broke_off
                left = deadline - time.monotonic()
                if left <= 0:
                    raise
            finally:
                if place is not None:
                    ask.disconnect.before = None
                    self._engines.done(place)
            known = offer.served.endpoints
            await self._finder.change(exchange.caller, ask.head.model, known, seconds=left)
            left = deadline - time.monotonic()
            offer = await self.find(ask, seconds=left, is_open=True)

    async def _abort(
        self, meter: UsageMeter, place: EnginePlace, able: Endpoints, sent: Sent
    ) -> None:
        """Has the engine of a client that has left end its work, and say the usage if it can."""
        meter.client_left = True
        if meter.is_asked:
            await self._engines.abort(place, able, sent)

    def _body(self, ask: EngineRequest, offer: Offer, place: EnginePlace) -> bytes:
        salted = is_salted(ask.judge, offer)
        salt = self._salts.of(ask.exchange.caller.organization_id) if salted else ""
        return for_engine(
            ask.judge.body, ask.head, usage=ask.usage, salt=salt, background=place.background
        )

    def _place(self, ask: EngineRequest, offer: Offer) -> EnginePlace | None:
        # Engines that keep no prompts apart keep none at all.
        turns = 0
        if is_salted(ask.judge, offer):
            session = ask.exchange.headers.get(SESSION, b"")
            turns = ask.head.conversation(ask.exchange.caller.organization_id, session)
        return self._engines.place(offer.able, ask.asker(offer), conversation=turns)

    async def _wait(self, ask: EngineRequest, offer: Offer, deadline: float) -> EnginePlace:
        """A place at an engine, once one is free; a client that streams is told meanwhile."""
        version, path = offer.served.version_id, ask.exchange.path
        geography = offer.served.geography
        endpoints = partial(self._finder.endpoints, geography=geography)
        offers = partial(offered, endpoints, version, path, ask.judge)
        tell = partial(ask.comments.say, "the engines are busy") if ask.comments else None
        left = deadline - time.monotonic()
        # Not all engines of a version read images while its agents are of two releases.
        kind = (version, path, bool(ask.judge.images), geography)
        return await self._engines.wait(ask.asker(offer), kind, offers, seconds=left, tell=tell)
