"""Tests of tests/install-browser.sh: no-op if the browser exists, a one-line message if it cannot be installed."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "install-browser.sh"


def run_script(path: Path, *commands: str) -> str:
    """Run the script with only these commands on PATH, each replaced by a stub."""
    for name in ("sh", "id", "mktemp", "grep", "tail", "rm"):
        (path / name).symlink_to(str(shutil.which(name)))
    for name in commands:
        (path / name).write_text("#!/bin/sh\nexit ${STATUS:-0}\n")
        (path / name).chmod(0o755)
    environment = {"PATH": str(path), "STATUS": "100"}
    done = subprocess.run(["sh", str(SCRIPT)], env=environment, capture_output=True, text=True, timeout=20, check=True)
    return done.stdout + done.stderr


def test_an_installed_browser_is_left_alone(tmp_path: Path) -> None:
    assert run_script(tmp_path, "chromium", "chromedriver", "apt-get") == ""


@pytest.mark.parametrize("commands", [(), ("apt-get",)])
def test_a_failed_installation_is_reported_in_one_line(tmp_path: Path, commands: tuple[str, ...]) -> None:
    message = run_script(tmp_path, *commands)
    assert message.count("\n") == 1
    if not commands:
        assert "no apt-get" in message
    elif os.geteuid() == 0:
        assert "could not install" in message
    else:
        assert "not root" in message
