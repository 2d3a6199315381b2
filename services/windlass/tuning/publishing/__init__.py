"""Publishing of weights: what full-parameter runs save for samplers becomes versions of weights.

Engines that follow a run take them in place (docs/adr/0092). May import what
`windlass.tuning` may.
"""
