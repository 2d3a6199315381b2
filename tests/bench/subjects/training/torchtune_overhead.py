"""A job of TorchTune's through the platform, beside the same training without it."""

from tests.bench import overhead
from tests.bench.figures import Figure, Options
from tests.support.environments.torchtune_env import environment

# Training alone takes longer than a minute with these on two cores.
EXAMPLES = 9000


async def measure(options: Options) -> list[Figure]:
    """See `overhead`; TorchTune's environment is made in `build/` at the first run."""
    return overhead.measure(
        "torchtune_overhead",
        options,
        backend="torchtune",
        examples=EXAMPLES,
        agent={"torchtune_python": str(environment())},
    )
