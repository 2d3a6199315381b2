import sys
from types import ModuleType

import pytest

from windlass_agent.runner.protocol.outcome import Failure
from windlass_agent.runner.trainers.trl.quantization import check_quantization


def test_what_qlora_needs_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    # None in this table is what an import of something that is not there finds.
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    check_quantization(in_4bit=False)
    with pytest.raises(Failure, match="install windlass") as caught:
        check_quantization(in_4bit=True)
    assert caught.value.param == "windlass.config.load_in_4bit"


def test_qlora_goes_on_where_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    there = ModuleType("bitsandbytes")
    there.__spec__ = __spec__
    monkeypatch.setitem(sys.modules, "bitsandbytes", there)
    check_quantization(in_4bit=True)
