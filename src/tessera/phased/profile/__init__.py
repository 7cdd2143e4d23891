"""The profile of a pass: values computed from its events, its timeline, and the directory that `--profile` writes."""
