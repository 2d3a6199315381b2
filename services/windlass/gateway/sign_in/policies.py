"""/v1/organization/sign_in_policy, /v1/auth/explanation and that of a member."""

from typing import Annotated

from pydantic import Field

from windlass.api.users.v1 import sign_in_pb2 as pb
from windlass.api.users.v1 import sign_in_pb2_grpc as rpc
from windlass.bounds import MAX_POLICY_METHODS, MAX_SIGN_IN_AGE, PROVIDER_GROUP_LENGTH
from windlass.core.app import App
from windlass.gateway.openai.rendering import Json
from windlass.gateway.parameters import Body
from windlass.gateway.plain import plain
from windlass.gateway.resource_router import ResourceRouter

Methods = Annotated[
    list[Annotated[str, Field(max_length=PROVIDER_GROUP_LENGTH)]],
    Field(max_length=MAX_POLICY_METHODS),
]


class NewSignInPolicy(Body):
    """The whole policy; what is left out asks for nothing."""

    required: Annotated[
        bool,
        Field(
            description="The organization's own issuers alone let its people in, and people make "
            "keys only while signed in."
        ),
    ] = False
    administrators_acr: Annotated[
        Methods, Field(description="Of what only owners may do: one of these; none: any.")
    ] = []
    administrators_amr: Annotated[Methods, Field(description="As administrators_acr.")] = []
    administrators_max_age: Annotated[
        int,
        Field(
            ge=0,
            le=MAX_SIGN_IN_AGE,
            description="Seconds since a person has shown who they are; 0: any.",
        ),
    ] = 0
    fresh_max_age: Annotated[
        int,
        Field(
            ge=0,
            le=MAX_SIGN_IN_AGE,
            description="Seconds since then, of anybody in a session, before a dangerous step; 0: "
            "what the installation asks, which counts where it is less.",
        ),
    ] = 0


def sign_in_policies_router(app: App) -> ResourceRouter:
    """Routes of the policy for sign-ins, and of explanations."""
    router = ResourceRouter(tags=["sign-in"])
    policies = app.clients.stub(rpc.SignInPoliciesServiceStub)

    @router.get("/organization/sign_in_policy")
    async def get_sign_in_policy() -> Json:
        """The organization's policy for sign-ins."""
        found = await policies.GetSignInPolicy(pb.GetSignInPolicyRequest())
        return plain(found, "sign_in_policy")

    @router.put("/organization/sign_in_policy")
    async def put_sign_in_policy(body: NewSignInPolicy) -> Json:
        """Sets the whole policy; sessions follow it within a second."""
        request = pb.PutSignInPolicyRequest(**body.model_dump())
        return plain(await policies.PutSignInPolicy(request), "sign_in_policy")

    @router.get("/auth/explanation")
    async def explain_access() -> Json:
        """Says how the caller has signed in, and what its groups and roles come from."""
        found = await policies.ExplainAccess(pb.ExplainAccessRequest())
        return plain(found, "access_explanation")

    @router.get("/members/{user_id}/explanation")
    async def explain_member_access(user_id: str) -> Json:
        """Says how a member has signed in, and what their groups and roles come from."""
        request = pb.ExplainMemberAccessRequest(user_id=user_id)
        return plain(await policies.ExplainMemberAccess(request), "access_explanation")

    return router
