"""Let the retention delete events of the audit log that it has dropped, and nobody any other.

Revision ID: 202611280512
Revises: 202611280511
Create Date: 2026-11-28 05:12:00.000000
"""

import sqlalchemy as sa
from alembic import op

revision = "202611280512"
down_revision = "202611280511"
branch_labels = None
depends_on = None

_COUNTS = ("retention_days", "dropped_sequence", "retained_at")
_REFUSE = """
CREATE FUNCTION rbac_audit_keep() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.sequence <= (
        SELECT dropped_sequence FROM rbac_audit_chains WHERE id = OLD.organization_id
    ) THEN RETURN OLD; END IF;
    RAISE EXCEPTION 'the audit log is append-only' USING ERRCODE = '42501';
END $$
"""
_KEEP = """
CREATE TRIGGER keep BEFORE DELETE ON rbac_audit_events
FOR EACH ROW EXECUTE FUNCTION rbac_audit_keep()
"""
_GUARD = """
CREATE TRIGGER append_only BEFORE {} ON rbac_audit_events
FOR EACH STATEMENT EXECUTE FUNCTION rbac_audit_append_only()
"""


def upgrade() -> None:
    for name in _COUNTS:
        op.add_column(
            "rbac_audit_chains",
            sa.Column(name, sa.BigInteger(), server_default="0", nullable=False),
        )
    op.execute("DROP TRIGGER append_only ON rbac_audit_events")
    op.execute(_GUARD.format("TRUNCATE"))
    op.execute(_REFUSE)
    op.execute(_KEEP)


def downgrade() -> None:
    op.execute("DROP TRIGGER keep ON rbac_audit_events")
    op.execute("DROP FUNCTION rbac_audit_keep()")
    op.execute("DROP TRIGGER append_only ON rbac_audit_events")
    op.execute(_GUARD.format("DELETE OR TRUNCATE"))
    for name in _COUNTS:
        op.drop_column("rbac_audit_chains", name)
