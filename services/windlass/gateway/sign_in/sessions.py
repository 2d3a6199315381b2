"""/v1/auth/sessions: the sessions of people who signed in."""

from windlass.api.users.v1 import users_pb2 as pb
from windlass.api.users.v1 import users_pb2_grpc as rpc
from windlass.core.app import App
from windlass.gateway.openai.rendering import Json, page
from windlass.gateway.parameters import After, Limit
from windlass.gateway.resource_router import ResourceRouter

SESSION = pb.CREDENTIAL_KIND_SESSION


def sessions_router(app: App) -> ResourceRouter:
    """Sessions: one's own, and for owners those of the organization."""
    router = ResourceRouter(prefix="/auth/sessions", tags=["sign-in"])
    users = app.clients.stub(rpc.UsersServiceStub)

    @router.get("")
    async def list_sessions(after: After = "", limit: Limit = 0) -> Json:
        """Sessions that go on, newest first."""
        request = pb.ListApiKeysRequest(after=after, limit=limit, kind=SESSION, live=True)
        answer = await users.ListApiKeys(request)
        return page([_render(one) for one in answer.keys], answer.has_more)

    @router.delete("/{session_id}")
    async def end_session(session_id: str) -> Json:
        """Ends a session, everywhere within a second."""
        await users.RevokeApiKey(pb.RevokeApiKeyRequest(key_id=session_id))
        return {"id": session_id, "object": "session.deleted", "deleted": True}

    return router


def _render(session: pb.ApiKey) -> Json:
    return {
        "id": session.id,
        "object": "session",
        "user_id": session.user_id,
        "client": session.name,
        "created_at": session.created_at,
        "secret_expires_at": session.expires_at,
        "last_used_at": session.last_used_at or None,
        "last_used_address": session.last_used_address or None,
    }
