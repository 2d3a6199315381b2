"""What had failed in a run that pytest itself broke off, which prints no summary of its own.

The error of one of xdist's workers is followed by one of the process that collects its reports,
which says less, so that the first one is told again at the very end.
"""

import pytest

# Of an error, and failures.
_LINES, _SHOWN = 8, 20


class Told:
    """What failed, in the process that collects the reports."""

    def __init__(self) -> None:
        self.failed: list[str] = []
        self.errors: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            why = getattr(report.longrepr, "reprcrash", None) or report.longreprtext[-300:]
            first, _, _ = str(getattr(why, "message", why)).partition("\n")
            self.failed.append(f"{report.nodeid} ({report.when}): {first[:200]}")

    def pytest_internalerror(self, excrepr: object) -> None:
        self.errors.append(str(excrepr))

    def lines(self) -> list[str]:
        """Returns what to print; nothing where pytest printed a summary."""
        if not self.errors:
            return []
        # A worker's error is the message of an assertion, which has lines of its own below.
        ends = [error.strip().splitlines()[-_LINES:] for error in self.errors[:2]]
        return [
            "pytest broke the run off:",
            *(f"  {line[:300]}" for end in ends for line in end),
            *(f"FAILED {one}" for one in self.failed[:_SHOWN]),
        ]


def pytest_configure(config: pytest.Config) -> None:
    """Collects where there is no other process to collect it."""
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Told(), "broken-runs")


def pytest_unconfigure(config: pytest.Config) -> None:
    """Prints it below everything else."""
    told = config.pluginmanager.get_plugin("broken-runs")
    if isinstance(told, Told):
        for line in told.lines():
            print(line, flush=True)
