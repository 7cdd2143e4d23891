"""Integers and frozen dataclasses that say which worker owns what. Imports nothing else of ours, and not torch."""

from tessera.geometry.mesh import Mesh

__all__ = ["Mesh"]
