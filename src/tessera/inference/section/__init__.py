"""The inference section of the report. Its parts are built from records only."""
