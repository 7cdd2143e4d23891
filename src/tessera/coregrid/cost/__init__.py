"""Predicted time of a plan: rates of a core, durations of a core's steps, timelines, and the cost of resharding."""
