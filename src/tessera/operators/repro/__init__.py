"""A record's case as a program of one file that needs no Tessera: to send along with a bug report."""

from tessera.operators.repro.program import program

__all__ = ["program"]
