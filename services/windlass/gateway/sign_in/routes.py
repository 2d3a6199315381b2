"""Rules of all routes of sign-in: the caller's address, a bound on guesses, pages for errors."""

from collections.abc import Callable, Collection, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
from fastapi import Request, Response
from fastapi.routing import APIRoute

from windlass.core.addresses import ClientAddresses
from windlass.core.errors import AppError, from_rpc
from windlass.core.rpc.auth import client_address
from windlass.core.throttle import Throttle
from windlass.gateway.errors import HttpError, to_http
from windlass.gateway.exchange import HttpExchange
from windlass.gateway.sign_in.pages import failure_page

# Of one address, before it has to wait: sign-ins that failed, and devices that it has begun.
ALLOWANCE = 50


class Guesses:
    """Counts what somebody unknown tries, by their addresses."""

    def __init__(self, addresses: ClientAddresses):
        self._addresses = addresses
        self._throttle = Throttle(allowance=ALLOWANCE)

    def enter(self, request: Request) -> str:
        """The address of a request, which services are told; raises HttpError 429."""
        exchange: HttpExchange = request.state.exchange
        address = self._addresses.of(exchange.peer, exchange.headers)
        client_address.set(address)
        if waiting := self._throttle.wait(address):
            raise HttpError(
                429,
                "Too many sign-ins from this address have failed. Try again later.",
                kind="rate_limit_error",
                code="too_many_attempts",
                headers={"retry-after": str(int(waiting) + 1)},
            )
        return address

    def count(self, address: str) -> None:
        """Counts one try of an address."""
        self._throttle.fail(address)


class PageRoute(APIRoute):
    """A route for browsers: what it refuses is told on a page."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The handler, with its errors rendered."""
        inner = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await inner(request)
            except (grpc.aio.AioRpcError, AppError, HttpError) as error:
                known = to_http(error)
                exchange: HttpExchange = request.state.exchange
                return failure_page(known.status, known.message, exchange.request_id)

        return handle


@contextmanager
def counted(guesses: Guesses, request: Request, *, unless: Collection[str] = ()) -> Iterator[None]:
    """Tells services the caller's address, and counts what they refuse; raises AppError.

    What is refused for one of the reasons `unless` is no guess.
    """
    address = guesses.enter(request)
    try:
        yield
    except grpc.aio.AioRpcError as error:
        known = from_rpc(error)
        if known.reason not in unless:
            guesses.count(address)
        raise known from error
