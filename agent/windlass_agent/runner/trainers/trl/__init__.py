"""TRL's scripts with a report of their progress, and ORPO as a script of ours.

It imports `protocol` and the modules of `trainers`, not `torchtune`.
"""
