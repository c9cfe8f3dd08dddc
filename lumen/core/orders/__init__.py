"""Orders: which samples an epoch takes and in what order, as values."""
