"""The pure core: immutable values and functions over them. No paddle, clock, environment, file or global RNG."""
