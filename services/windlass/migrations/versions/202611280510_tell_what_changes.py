"""Have events of the audit log tell what a change found and made, and be found by action.

A hash covers a digest of the details alone, so that they can be erased, which is the one change
that the database lets be made. A downgrade takes the details away, and the hashes of the events
that have them differ then.

Revision ID: 202611280510
Revises: 202611280505
Create Date: 2026-11-28 05:10:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611280510"
down_revision = "202611280505"
branch_labels = None
depends_on = None

_TABLE = "rbac_audit_events"
_INDEX = "ix_rbac_audit_events_organization_id_action_sequence"
_TEXTS = ("before", "after", "details_salt", "details_digest")
_GUARD = """
CREATE TRIGGER append_only BEFORE {} ON rbac_audit_events
FOR EACH STATEMENT EXECUTE FUNCTION rbac_audit_append_only()
"""
_REFUSE = """
CREATE FUNCTION rbac_audit_erase() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE erased rbac_audit_events := OLD;
BEGIN
    erased.before := ''; erased.after := ''; erased.details_salt := '';
    IF NEW IS NOT DISTINCT FROM erased THEN RETURN NEW; END IF;
    RAISE EXCEPTION 'the audit log is append-only' USING ERRCODE = '42501';
END $$
"""
_ERASE = """
CREATE TRIGGER erase BEFORE UPDATE ON rbac_audit_events
FOR EACH ROW EXECUTE FUNCTION rbac_audit_erase()
"""


def upgrade() -> None:
    for name in _TEXTS:
        op.add_column(_TABLE, sa.Column(name, sa.Text(), server_default="", nullable=False))
    op.create_index(_INDEX, _TABLE, ["organization_id", "action", "sequence"])
    op.execute("DROP TRIGGER append_only ON rbac_audit_events")
    op.execute(_GUARD.format("DELETE OR TRUNCATE"))
    op.execute(_REFUSE)
    op.execute(_ERASE)


def downgrade() -> None:
    op.execute("DROP TRIGGER erase ON rbac_audit_events")
    op.execute("DROP FUNCTION rbac_audit_erase()")
    op.execute("DROP TRIGGER append_only ON rbac_audit_events")
    op.execute(_GUARD.format("UPDATE OR DELETE OR TRUNCATE"))
    op.drop_index(_INDEX, _TABLE)
    for name in reversed(_TEXTS):
        op.drop_column(_TABLE, name)
