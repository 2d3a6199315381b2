"""Builds what ends keys by itself, a part of users: policies, and notices before."""

from windlass.api.users.v1 import users_pb2_grpc as rpc
from windlass.core.app import App
from windlass.core.db.leases import run_loop
from windlass.users.keys import notices, unused
from windlass.users.keys.notices import KeyNotices
from windlass.users.keys.policies import KeyPolicies
from windlass.users.keys.policy_service import KeyPoliciesServicer
from windlass.users.keys.store import KeyStore
from windlass.users.keys.unused import UnusedKeys
from windlass.users.mail.outbox import MailOutbox

# Between two questions for organizations whose unused keys are to be looked for.
POLL_SECONDS = 15.0
# Between two looks at what expires within days.
NOTICE_POLL_SECONDS = 600.0


def build(app: App, keys: KeyStore, outbox: MailOutbox) -> None:
    """Constructs and registers the servicer of policies, and the work of both."""
    notice = KeyNotices(app.database, outbox, app.audit)
    ending = UnusedKeys(app.database, notice, app.wake)
    app.serve(
        KeyPoliciesServicer(KeyPolicies(app.database), ending, keys, app.wake),
        rpc.add_KeyPoliciesServiceServicer_to_server,
    )
    listener = app.wake.listen(unused.TOPIC)
    app.background(
        "users.unused_keys",
        lambda: run_loop(
            "users.unused_keys",
            listener,
            ending.once,
            poll_seconds=POLL_SECONDS,
            resting=ending.has_none,
        ),
    )
    woken = app.wake.listen(notices.TOPIC)
    app.background(
        "users.key_notices",
        lambda: run_loop(
            "users.key_notices",
            woken,
            notice.once,
            poll_seconds=NOTICE_POLL_SECONDS,
            resting=notice.has_none,
        ),
    )
