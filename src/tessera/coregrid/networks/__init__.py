"""Whole networks on the grid: their layers from the models' own graphs, and how all of them lie at the least cost."""
