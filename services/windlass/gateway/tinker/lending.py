"""Access tokens of other accounts: keys of theirs, which lend one checkpoint each time."""

from windlass.api.tuning.v1 import transfer_pb2 as pb
from windlass.api.tuning.v1 import transfer_pb2_grpc as rpc
from windlass.core.rpc.tokens import TokenAuthority
from windlass.gateway.authentication.attempts import Attempts
from windlass.gateway.authentication.origins import KeyOrigins
from windlass.gateway.tinker.requests import TinkerRequest

# What says who asks, which here the token alone does.
_IDENTITY = frozenset({
    b"authorization", b"cookie", b"x-api-key", b"openai-organization", b"openai-project",
})  # fmt: skip


class Lending:
    """Asks for what the key of another account may read, in its name."""

    def __init__(
        self,
        transfers: rpc.TransferServiceAsyncStub,
        attempts: Attempts,
        origins: KeyOrigins,
        tokens: TokenAuthority,
    ):
        self._transfers = transfers
        self._attempts = attempts
        self._origins = origins
        self._tokens = tokens

    async def access(self, request: TinkerRequest, token: str | None, path: str) -> str:
        """Returns the secret that opens a checkpoint of the token's account; empty without a token.

        Raises Unauthenticated, PermissionDenied for a key of other networks, AioRpcError.
        """
        if not token:
            return ""
        exchange = request.exchange
        headers = {
            name: value for name, value in exchange.headers.items() if name not in _IDENTITY
        } | {b"x-api-key": token.encode()}
        key = await self._attempts.authenticate(headers, exchange.peer)
        lender = self._origins.admit(key, exchange.peer, headers, exchange.certificate)
        lent = await self._transfers.LendCheckpoint(
            pb.LendCheckpointRequest(path=path),
            metadata=[("windlass-principal", self._tokens.sign_principal(lender))],
        )
        return lent.access
