"""Run a function inline, in pinned processes, or on ranks."""

from tessera.launch.config import LaunchConfig
from tessera.launch.worker import Worker
from tessera.launch.workers import Workers

__all__ = ["LaunchConfig", "Worker", "Workers"]
