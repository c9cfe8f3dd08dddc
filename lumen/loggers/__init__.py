"""Loggers: where the values of a run are written."""
