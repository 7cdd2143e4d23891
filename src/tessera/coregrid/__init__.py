"""Convolution on a grid of cores with a small memory each: planned, executed and counted under a model of the chip."""
