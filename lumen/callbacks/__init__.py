"""Callbacks: what a run does beside training."""
