"""Drawings of a plan: shards and halos, memory, timeline, and an HTML page with all drawings."""
