"""Integers and frozen dataclasses that say which worker owns what. Imports nothing else of ours, and not torch."""

from tessera.geometry.box import Box, Interval
from tessera.geometry.halo import HaloPlan, Move
from tessera.geometry.mesh import Mesh
from tessera.geometry.partition import Partition
from tessera.geometry.window import Window

__all__ = ["Box", "HaloPlan", "Interval", "Mesh", "Move", "Partition", "Window"]
