"""Writer of a one-file program that repeats the case of a record without Tessera, for a bug report."""

from tessera.operators.repro.program import write_program

__all__ = ["write_program"]
