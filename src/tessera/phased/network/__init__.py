"""A network without its weights, and its cutting into phases."""
