"""Keys for objects of projects, as users tells them; each process keeps what it heard for a while.

Every process that has objects asks: files, models, jobs, inference, rbac, users and the gateway.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

import grpc

from windlass.api.users.v1 import users_pb2 as pb
from windlass.api.users.v1.users_pb2_grpc import UsersInternalServiceAsyncStub
from windlass.core.errors import from_rpc
from windlass.core.objects import ObjectKey

# How long it counts that a project's objects are not sealed, and by which key they are. Users lets
# a project's first key wait for longer.
KNOWN_SECONDS = 1.0
# While users does not answer, for so long: it gives no project a key meanwhile.
OUTAGE_SECONDS = 60.0
_AWAY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
_ASK_SECONDS = 15.0
_REMEMBERED = 10_000
_KEPT = 1000


@dataclass(frozen=True, slots=True)
class _Known:
    """News of a project: the key that seals, empty for none, when it was heard and begins."""

    key_id: str
    at: float
    begins_at: float


class UsersObjectKeys:
    """ObjectKeys, asked of users."""

    def __init__(
        self,
        users: Callable[[], UsersInternalServiceAsyncStub],
        *,
        clock: Callable[[], float] = time.monotonic,
    ):
        """`users` is asked for only once an object is a project's."""
        self._users = users
        self._clock = clock
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._kept: OrderedDict[tuple[str, str], tuple[float, ObjectKey]] = OrderedDict()

    async def seals(self, project_id: str) -> bool:
        """See ObjectKeys.seals."""
        return bool((await self._of(project_id)).key_id)

    async def sealing(self, project_id: str) -> ObjectKey | None:
        """See ObjectKeys.sealing; waits until every process knows of a project's first key."""
        known = await self._of(project_id)
        if not known.key_id:
            return None
        key = await self.opening(project_id, known.key_id)
        await asyncio.sleep(max(0.0, known.begins_at - self._clock()))
        return key

    async def opening(self, project_id: str, key_id: str) -> ObjectKey:
        """See ObjectKeys.opening."""
        until, kept = self._kept.get((project_id, key_id), (0.0, None))
        if kept is not None and self._clock() < until:
            return kept
        self._kept.pop((project_id, key_id), None)
        began = self._clock()
        request = pb.OpenObjectKeyRequest(project_id=project_id, key_id=key_id)
        try:
            answer = await self._users().OpenObjectKey(request, timeout=_ASK_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise from_rpc(error) from error
        key = ObjectKey(key_id, answer.secret)
        self._kept[project_id, key_id] = (began + answer.keep_seconds, key)
        if len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return key

    async def _of(self, project_id: str) -> _Known:
        known, now = self._known.get(project_id), self._clock()
        if known is not None and now - known.at < KNOWN_SECONDS:
            return known
        request = pb.GetObjectSealingRequest(project_id=project_id)
        try:
            answer = await self._users().GetObjectSealing(request, timeout=_ASK_SECONDS)
        except grpc.aio.AioRpcError as error:
            # The release before knows of no such keys, and its projects have none.
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                # Unless a server of this release has told of one: that one stays.
                return known if known is not None and known.key_id else _Known("", now, 0.0)
            if error.code() in _AWAY and known is not None and now - known.at < OUTAGE_SECONDS:
                return known
            raise from_rpc(error) from error
        found = _Known(answer.key_id, now, self._clock() + answer.begins_in_seconds)
        self._known[project_id] = found
        self._known.move_to_end(project_id)
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return found
