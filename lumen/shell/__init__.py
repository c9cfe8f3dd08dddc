"""The effects: paddle, processes, files."""
