"""Words of Kubernetes that services, agents and clients share: labels, names, quantities,
resources and the choices of some fields.

May import nothing else of Windlass.
"""
