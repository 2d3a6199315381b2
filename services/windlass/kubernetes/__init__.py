"""Words of Kubernetes that services, agents and clients share: labels, names, quantities."""
