"""Compare two interpreters or environments on the same cases (`tessera ab`)."""
