"""Load modes: offline, single-stream, server."""
