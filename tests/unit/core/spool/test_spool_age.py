"""The age of what a spool keeps is that of its oldest line."""

from pathlib import Path

from windlass.core.spool import Spool


def test_a_spool_is_as_old_as_its_oldest_segment(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    assert spool.age_seconds() == 0
    spool.append(b"line")
    assert 0 < spool.age_seconds() < 60
    spool.seal()
    (old,) = spool.sealed()
    older = old.with_name(f"{int(old.stem.partition('-')[0]) - 3600 * 10**9:020d}-x.log")
    old.rename(older)
    spool.append(b"line")
    assert 3600 <= spool.age_seconds() < 3700
    older.unlink()
    assert spool.age_seconds() < 60
