"""The order of effects, over a Runtime that carries them out. No paddle."""
