"""The implementation of the public functions of `tessera`: timing, running cases, comparing runs, inference."""
