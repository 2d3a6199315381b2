"""What is a tenant's is exported: no table that a service forgets, and by default no secret."""

import pytest
import sqlalchemy as sa

from windlass.core.exporting.columns import exported_columns, exported_rows
from windlass.core.leaving.claims import Fate, LeavingClaims, Scope, erased
from windlass.migrations.tables import load_claims, load_tables
from windlass.users.exporting.store import SERVICES

WHOLE = Scope("org", ("proj",), whole=True)
PERSON = Scope("org", ("proj",), whole=True, user_id="ann")
# Of a person's export: columns that name nobody else, as the rows are the person's.
ABOUT = {
    "core_erasures": (),
    "users_people": ("email", "name", "user_id"),
    "users_sessions": ("auth_at", "subject"),
    "users_api_keys": ("name", "role"),
    "users_role_assignments": ("role_id",),
    "users_members": ("role",),
    "users_identities": ("issuer", "subject"),
    "rbac_audit_events": ("action", "at_ms"),
    "files_files": (),
    "jobs_jobs": (),
}


def test_every_service_with_something_to_export_has_steps() -> None:
    assert sorted(one.service for one in load_claims() if one.exports) == sorted(SERVICES)


@pytest.mark.parametrize("claims", load_claims(), ids=lambda claims: claims.service)
def test_every_table_of_tenants_is_exported_or_says_why(claims: LeavingClaims) -> None:
    for one in claims.tables:
        if one.fate is Fate.NOBODYS or one.unexported:
            continue
        assert exported_rows(one, WHOLE) is not None, one.table.name
        assert exported_columns(one, WHOLE), one.table.name
        assert list(one.table.primary_key), one.table.name


def test_no_column_is_exported_that_could_be_a_secret() -> None:
    table = sa.Table(
        "somethings",
        sa.MetaData(),
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("organization_id", sa.Text),
        sa.Column("user_id", sa.Text),
        sa.Column("content", sa.LargeBinary),
        sa.Column("api_token", sa.Text),
        sa.Column("secret_digest", sa.Text),
        sa.Column("place", sa.Text),
        sa.Column("made_by", sa.Text),
        sa.Column("lease_owner", sa.Text),
    )
    claim = erased(table).hiding("place")
    names = [column.name for column in exported_columns(claim, WHOLE)]
    assert names == ["id", "organization_id", "user_id", "made_by"]
    assert [one.name for one in exported_columns(claim, PERSON)] == names[:3]
    assert "api_token" in [one.name for one in exported_columns(claim.showing("api_token"), WHOLE)]
    with pytest.raises(ValueError, match="has no columns"):
        claim.hiding("plaec")


def test_only_what_is_no_secret_is_shown_by_name() -> None:
    shown = {
        f"{one.table.name}.{column}"
        for claims in load_claims()
        for one in claims.tables
        for column in one.shown
    }
    assert shown == {"models_versions.digest"}


def test_a_challenge_of_the_dns_is_not_shown() -> None:
    claims = {one.table.name: one for service in load_claims() for one in service.tables}
    names = [one.name for one in exported_columns(claims["users_mail_domains"], WHOLE)]
    assert ("name" in names, "token" in names) == (True, False)


def test_a_persons_export_has_rows_about_them_alone() -> None:
    load_tables()
    claims = {one.table.name: one for service in load_claims() for one in service.tables}
    for name, columns in ABOUT.items():
        claim = claims[name]
        where = exported_rows(claim, PERSON)
        assert (where is not None) == bool(columns), name
        if where is not None:
            assert "user_id" in str(where), name
            assert {one.name for one in exported_columns(claim, PERSON)} >= set(columns)
