"""The section of phased execution in the report."""
