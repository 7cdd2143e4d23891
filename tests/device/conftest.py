"""Fixtures of the device tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.device.standin.runner import stop_server


@pytest.fixture(scope="package", autouse=True)
def server() -> Iterator[None]:
    """End the server of the device for tests after the last test of this package."""
    yield
    stop_server()
