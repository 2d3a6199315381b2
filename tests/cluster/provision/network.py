"""The link between this machine and a cluster's network namespace."""

import subprocess

from tests.cluster.provision.site import SLOTS, Site


def connect(name: str, pid: int) -> Site:
    """Links the namespace of a process to this machine, and says where the cluster is.

    The kernel gives a link's name to one asker only, and takes the link with the namespace.
    """
    for slot in range(1, SLOTS):
        site = Site(name, slot, pid)
        made = ip(f"link add {site.link} type veth peer name eth0 netns {pid}")
        if made.returncode == 0:
            break
        if "File exists" not in made.stderr:
            raise RuntimeError(made.stderr.strip())
    else:
        raise RuntimeError("too many clusters run on this machine")
    must(ip(f"address add {site.host}/24 dev {site.link}"))
    must(ip(f"link set {site.link} up"))
    # An agent of a test runs on this machine, and reaches pods from here.
    must(ip(f"route add {site.pods} via {site.address}"))
    for command in (
        "link set lo up",
        f"address add {site.address}/24 dev eth0",
        "link set eth0 up",
        f"route add default via {site.host}",
    ):
        must(ip(command, inside=pid))
    return site


def ip(command: str, inside: int = 0) -> subprocess.CompletedProcess[str]:
    """Runs `ip`, in the network namespace of a process if one is given."""
    enter = ["nsenter", "--net", f"--target={inside}"] if inside else []
    return subprocess.run(
        [*enter, "ip", *command.split()], capture_output=True, text=True, check=False
    )


def must(done: subprocess.CompletedProcess[str]) -> None:
    """Raises what a failed command said."""
    if done.returncode:
        raise RuntimeError(f"{' '.join(done.args)}: {done.stderr.strip()}")


# What of the traffic between this machine and the cluster is lost.
CUTS = {
    "all": """
        chain incoming { type filter hook prerouting priority -100; iifname eth0 drop; }
        chain outgoing { type filter hook postrouting priority -100; oifname eth0 drop; }
    """,
    # Answers to what the cluster asked still come in.
    "inbound": """
        chain incoming {
            type filter hook prerouting priority -100;
            iifname eth0 ct direction original drop;
        }
    """,
}


def cut(site: Site, kind: str) -> None:
    """Loses packets, as a broken network or a firewall does: nobody hears of it."""
    nft(site, f"table inet windlass {{ {CUTS[kind]} }}")


def restore(site: Site) -> None:
    """Lets all packets through again."""
    nft(site, "table inet windlass\ndelete table inet windlass")


def nft(site: Site, rules: str) -> None:
    """Changes the rules of a cluster's namespace."""
    enter = ["nsenter", "--net", f"--target={site.pid}"]
    must(
        subprocess.run(
            [*enter, "nft", "-f", "-"], input=rules, capture_output=True, text=True, check=False
        )
    )
