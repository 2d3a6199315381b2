"""Agents, installations and journeys on clusters, as tests set them up."""
