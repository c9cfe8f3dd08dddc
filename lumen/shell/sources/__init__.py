"""Sources: the batches of a loader for one rank, from any point of an epoch on."""
