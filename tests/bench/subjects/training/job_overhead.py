"""A job of TRL's through the platform, beside the same training without it."""

from tests.bench import overhead
from tests.bench.figures import Figure, Options

# Training alone takes longer than a minute with these on two cores.
EXAMPLES = 7000


async def measure(options: Options) -> list[Figure]:
    """See `overhead`."""
    return overhead.measure("job_overhead", options, backend="trl", examples=EXAMPLES, agent={})
