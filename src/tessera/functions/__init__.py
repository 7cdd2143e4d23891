"""Benchmarks of a user's own Python functions: the `@tessera.benchmark` decorator and `tessera run FILE.py`."""
