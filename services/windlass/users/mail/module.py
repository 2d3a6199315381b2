"""Builds mail, a part of users."""

from windlass.core.app import App
from windlass.core.db.leases import run_loop
from windlass.core.outbound.mail import SmtpServer
from windlass.users.mail.outbox import TOPIC, MailOutbox, MailPosting

POLL_SECONDS = 5.0


def build(app: App) -> MailOutbox:
    """Returns the outbox; its mail is handed to the operator's server, if there is one."""
    settings = app.settings.mail
    outbox = MailOutbox(app.keyring.envelope("mail"), app.wake, enabled=bool(settings.host))
    if outbox.enabled:
        posting = MailPosting(app.database, outbox, SmtpServer(settings))
        listener = app.wake.listen(TOPIC)
        app.background(
            "users.mail",
            lambda: run_loop(
                "users.mail",
                listener,
                posting.once,
                poll_seconds=POLL_SECONDS,
                resting=posting.has_none,
            ),
        )
    return outbox
