"""Trackers of experiments that a job also reports to: MLflow, Weights & Biases, TensorBoard.

None of them can fail a job or hold it up: whatever goes wrong becomes a warning.

It imports `protocol` and `reporting`, never torch.
"""
