"""The pages of docs/reference that tools make say what the code says now."""

import re

from tools import generate_errors_reference as errors


def test_the_page_on_errors_is_true_and_has_status_and_sentence() -> None:
    page = errors.reference()
    assert errors.TARGET.read_text() == page, "run `make docs`"
    assert "| `model_in_use` | 409 | FAILED_PRECONDITION | The model is in use by …. |" in page
    assert "| `url_too_long` | 414 |  | The request's URL is too long. |" in page
    assert "| `not_found` | 404 | NOT_FOUND |" in page
    assert re.search(r"\| `out_of_memory` \| .* ran out of memory. \|", page)
