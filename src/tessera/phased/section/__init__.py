"""The part of the report about phased execution."""
