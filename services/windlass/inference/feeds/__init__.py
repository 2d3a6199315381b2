"""Feeds: answers that requests consent to have kept, graded, train the engine that gave them.

Owns inference_feeds and inference_fed_answers. May import trainings, servings, graders and the
kernel.
"""
