"""Every metric of the processes, declared in one place; who sets one imports its file.

A process exposes the files that it imports, so that each kind shows what it does. Names keep the
conventions of Prometheus. No label has a value that a tenant chooses: each is one of few. Models'
names are the exception, of engines, which are few, and of a bounded number of models.

May import nothing else of Windlass.
"""

from prometheus_client import disable_created_metrics

# Of each series another one, of the time it began.
disable_created_metrics()  # type: ignore[no-untyped-call]  # of the library, without types
