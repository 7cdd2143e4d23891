"""Run a function on workers: in the calling process (inline), in pinned processes, or on the ranks of a job."""

from tessera.launch.config import LaunchConfig
from tessera.launch.worker import Worker
from tessera.launch.workers import Workers

__all__ = ["LaunchConfig", "Worker", "Workers"]
