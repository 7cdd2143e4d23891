"""Devices, which compute phases: threads or processes."""
