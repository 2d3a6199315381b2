"""Grades for sampled answers: rewards in the trainer, python graders and judges beside it.

It imports `protocol` and `reporting`. Trainers import it by the path of `rewards`, so never torch.
"""
