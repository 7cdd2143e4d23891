"""Real ranks; the fixtures of the launch tests apply here too."""

from tests.launch.conftest import own_temp

__all__ = ["own_temp"]
