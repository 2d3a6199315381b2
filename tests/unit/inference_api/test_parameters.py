"""Parameters without effect: the page and the types agree with the tables."""

import msgspec
from tools.generate_parameters_reference import TARGET, reference

from windlass.inference_api.parameters import REFUSED, WITHOUT_EFFECT
from windlass.inference_api.requests import ChatRequest, CompletionRequest


def test_the_page_is_the_tables() -> None:
    assert TARGET.read_text() == reference(), "run tools/generate_parameters_reference.py"


def test_what_the_tables_name_is_known_to_the_types() -> None:
    fields = {
        field.name
        for kind in (ChatRequest, CompletionRequest)
        for field in msgspec.structs.fields(kind)
    }
    assert fields >= WITHOUT_EFFECT.keys() | REFUSED.keys()
