"""Command that starts the processes of one job."""

from windlass.backends.backend import RenderContext


def torchrun(context: RenderContext) -> tuple[str, ...]:
    """The arguments between Python and a module; none for a process that is alone.

    Nodes find each other by `PET_*`, which torchrun reads.
    """
    if context.nodes * context.processes == 1:
        return ()
    launcher = ("-m", "torch.distributed.run")
    if context.nodes > 1:
        return launcher
    # A free port, since jobs of a machine without pods share its own.
    alone = ("--standalone", "--local-addr", "127.0.0.1")
    return (*launcher, *alone, "--nproc-per-node", str(context.processes))
