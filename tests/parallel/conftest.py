"""Fixtures for tests on real ranks, shared with the launch tests."""

from tests.launch.conftest import own_temp

__all__ = ["own_temp"]
