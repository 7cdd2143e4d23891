"""The network without its weights: tracing, splitting into phases, and the program of each phase."""
