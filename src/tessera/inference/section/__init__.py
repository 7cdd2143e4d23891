"""The parts of the inference section of the report, each from records alone."""
