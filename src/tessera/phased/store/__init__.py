"""Streaming memory: weights in files, how they lie there, and how they are read."""
