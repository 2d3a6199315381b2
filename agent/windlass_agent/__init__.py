"""The cluster side of Windlass: what runs where the GPUs are.

It may import the contract, the kernel, and the packages that services, clients and agents share;
never a service, nor what composes servers.
"""

import windlass  # noqa: F401  # It sets what gRPC reads when it is loaded.
