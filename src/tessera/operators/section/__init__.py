"""The operators' part of the report."""
