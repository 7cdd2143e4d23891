"""Whole networks on the core grid: extraction of layers, choice of a layout for every layer, and execution."""
