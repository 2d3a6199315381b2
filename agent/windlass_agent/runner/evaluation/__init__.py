"""Answers of the base and the fine-tuned model, by a process of its own once training has ended.

It imports nothing of the runner. What it answers is graded by `grading`, in the runner.
"""
