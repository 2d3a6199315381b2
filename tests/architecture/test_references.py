"""The pages of docs/reference that `make docs` makes say what the code says now."""

from tools import generate_configuration_reference as configuration
from tools import generate_errors_reference as errors
from tools import generate_http_reference as http
from tools import generate_prometheus_reference as prometheus


def test_the_page_on_errors_is_true_and_has_status_and_meaning() -> None:
    page = errors.reference()
    assert errors.TARGET.read_text() == page, "run `make docs`"
    assert "| `model_in_use` | 409 | FAILED_PRECONDITION | Something uses the model; " in page
    assert "| `url_too_long` | 414 |  | The request's URL is too long; " in page
    assert "| `not_found` | 404 | NOT_FOUND |" in page
    assert "| `out_of_memory` | The job needed more memory than" in page
    assert not [line for line in page.splitlines() if line.endswith("|  |")]


def test_the_page_on_metrics_is_true() -> None:
    page = prometheus.reference()
    assert prometheus.TARGET.read_text() == page, "run `make docs`"
    assert "| `windlass_rpc_duration_seconds` | histogram | `service`, `method` |" in page


def test_the_page_on_configuration_is_true_and_explains_every_setting() -> None:
    page = configuration.reference()
    assert configuration.TARGET.read_text() == page, "run `make docs`"
    assert "| `http.port` | `WINDLASS_HTTP__PORT` | integer, from 0 to 65,535 | `8080` |" in page
    assert "| `sessions.kubernetes.tls` |" in page
    assert not [line for line in page.splitlines() if line.endswith("|  |")]


def test_the_page_on_http_is_true() -> None:
    page = http.reference()
    assert http.TARGET.read_text() == page, "run `make docs`"
    assert "| `POST /v1/chat/completions` | body: `model*`, `messages*`, `…` |" in page
    assert "| `DELETE /v1/files/{file_id}` |  | Deletes a file that no live job uses. |" in page
