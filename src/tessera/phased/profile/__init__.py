"""What happened in a pass: its timeline, and the directory that `--profile` writes."""
