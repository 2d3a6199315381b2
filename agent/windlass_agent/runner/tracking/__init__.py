"""Trackers of experiments that a job reports to besides: MLflow, Weights & Biases, TensorBoard.

None of them can fail a job or hold it up: whatever goes wrong becomes a warning.
"""
