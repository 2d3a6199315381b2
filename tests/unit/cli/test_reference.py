"""The reference that is checked in is what the command says of itself."""

from tools.generate_cli_reference import TARGET, reference


def test_the_reference_is_current() -> None:
    assert TARGET.read_text() == reference(), "run tools/generate_cli_reference.py"
