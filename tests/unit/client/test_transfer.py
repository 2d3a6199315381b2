"""The bar of a transfer."""

import io
import re

from rich.console import Console

from windlass.client.display.progress import transfer


def test_what_came_in_one_piece_has_no_speed() -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=80)
    with transfer("train.jsonl", 20_200, console) as seen:
        seen(20_200)
    text = re.sub(r"\x1b\[[?0-9;]*[A-Za-z]", "", shown.getvalue())
    assert "20.2/20.2 kB" in text
    assert "?" not in text
