"""The ranks of a job: started, connected, watched over and ended."""
