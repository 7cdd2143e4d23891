"""What computes: devices as threads or as processes."""
