"""Fixtures of tests on real clusters: `east`, `west`, and `clusters` for fixtures of a wider scope.

Several workers share the clusters, which start with the first test that wants one and end with
the last worker. With KUBECONFIG they are somebody's own (`somebody.py`).
"""

import os
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest
from tests.cluster.cluster import TestCluster
from tests.cluster.provision import lease, programs
from tests.cluster.provision import site as sites
from tests.cluster.provision.addons import kubectl, until_whole
from tests.cluster.provision.images import BUSYBOX
from tests.cluster.provision.site import Site, marker
from tests.cluster.stages import somebody
from tests.support.environments.locks import FileLock, locked
from tests.support.environments.required import REQUIRED

NAMES = ("east", "west")


class Clusters:
    """The clusters of this worker, each started when first asked for."""

    def __init__(self) -> None:
        self._held = ExitStack()
        self._names: set[str] = set()

    @contextmanager
    def open(self, name: str) -> Iterator[TestCluster]:
        """A cluster for the block; what is made through it goes at its end."""
        require()
        with ExitStack() as made:
            if somebody.kubeconfig():
                yield somebody.cluster(name, made)
            else:
                yield ours(self._site(name), made)

    def close(self) -> None:
        """Leaves the clusters; the last worker ends them."""
        self._held.close()

    def _site(self, name: str) -> Site:
        if name not in self._names:
            self._held.enter_context(lease.use(name))
            self._names.add(name)
        # Read anew, since somebody may have started it anew by hand.
        return sites.read(name)


def ours(site: Site, made: ExitStack) -> TestCluster:
    """A cluster that the tests started."""
    return TestCluster(
        name=site.name,
        kubeconfig=site.kubeconfig(),
        host=site.host,
        api=site.api,
        image=BUSYBOX,
        node=site.node,
        kubectl=kubectl(site),
        made=made,
        site=site,
    )


def require(*, own: bool = False) -> None:
    """Skips the test where there can be no cluster; `own` is one that the tests start."""
    if reason := unavailable(own=own):
        pytest.skip(reason)


def unavailable(*, own: bool = False) -> str:
    """Returns why there can be no cluster here, and how to get one; empty if there can."""
    if somebody.kubeconfig():
        return "starts clusters of its own, not KUBECONFIG's" if own else ""
    if programs.missing():
        return "real clusters are not built: `make cluster` (about 30 minutes, once)"
    if os.geteuid() != 0:
        return "real clusters need root, for network namespaces: `sudo make test-cluster`"
    return ""


@pytest.fixture(scope="session")
def clusters() -> Iterator[Clusters]:
    """For fixtures of a module: `with clusters.open("east") as cluster:`."""
    held = Clusters()
    yield held
    held.close()


@pytest.fixture
def east(clusters: Clusters) -> Iterator[TestCluster]:
    """A real cluster."""
    with clusters.open("east") as cluster:
        yield cluster


@pytest.fixture
def west(clusters: Clusters) -> Iterator[TestCluster]:
    """Another real cluster."""
    with clusters.open("west") as cluster:
        yield cluster


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks whatever uses a cluster, so that nobody need remember to."""
    for item in items:
        if {"clusters", *NAMES} & set(getattr(item, "fixturenames", ())):
            item.add_marker("cluster")


# Outermost, so that the wait is not part of the test's own time.
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Keeps other workers off the clusters while a test marked `alone` breaks them."""
    if not item.get_closest_marker("cluster") or unavailable():
        return (yield)
    lock = FileLock(marker("clusters", "alone"))
    alone = item.get_closest_marker("alone") is not None
    try:
        # Whoever waits keeps later ones waiting too, so that `alone` has its turn.
        with locked(marker("clusters", "turn")):
            if alone:
                lock.take()
            else:
                lock.share()
        return (yield)
    finally:
        if alone and not somebody.kubeconfig():
            _mend()
        lock.close()


def _mend() -> None:
    """Waits until what a test broke is whole; controllers that lost their lease begin anew."""
    for name in NAMES:
        if lease.is_ready(name):
            # The next test says better what is wrong.
            with suppress(TimeoutError):
                until_whole(sites.read(name))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Under REQUIRE_CLUSTER a test on a cluster that is skipped has failed."""
    report = yield
    if report.skipped and item.get_closest_marker("cluster") and not hasattr(report, "wasxfail"):
        assert isinstance(report.longrepr, tuple)
        _, _, reason = report.longrepr
        # From one place, the skips of all tests are one line of the summary.
        report.longrepr = (__file__, 1, reason)
        if REQUIRED:
            report.outcome = "failed"
            report.longrepr = f"REQUIRE_CLUSTER is set, and this was skipped. {reason}"
    return report
