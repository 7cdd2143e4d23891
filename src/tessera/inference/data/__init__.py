"""Images: generated or decoded from files, and the pipeline that feeds them to an engine."""
