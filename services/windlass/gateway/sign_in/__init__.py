"""Sign-in of people, as browsers and programs ask for it, and its administration.

May import the contract, the kernel, and of the gateway its errors, how `openai` and `admin` render
and the modules of parameters. Pages work without scripts.
"""

from windlass.gateway.sign_in.browser import answers_router, browser_router, browser_sessions_router
from windlass.gateway.sign_in.identity_providers import identity_providers_router
from windlass.gateway.sign_in.invites import invites_router
from windlass.gateway.sign_in.mail_domains import mail_domains_router
from windlass.gateway.sign_in.policies import sign_in_policies_router
from windlass.gateway.sign_in.programs import devices_router, programs_router
from windlass.gateway.sign_in.sessions import sessions_router

# Under /v1, with a credential.
ADMIN_ROUTERS = (
    identity_providers_router,
    invites_router,
    mail_domains_router,
    sessions_router,
    sign_in_policies_router,
)
ROUTERS = (
    browser_router,
    answers_router,
    browser_sessions_router,
    programs_router,
    devices_router,
)
"""Routes under `/login`, and the links of invites."""
