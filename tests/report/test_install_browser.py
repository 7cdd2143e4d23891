import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "install-browser.sh"


def install(path: Path, *commands: str) -> str:
    """Run the script where there are only these commands, each doing nothing."""
    for name in ("sh", "id", "mktemp", "grep", "tail", "rm"):
        (path / name).symlink_to(str(shutil.which(name)))
    for name in commands:
        (path / name).write_text("#!/bin/sh\nexit ${STATUS:-0}\n")
        (path / name).chmod(0o755)
    environment = {"PATH": str(path), "STATUS": "100"}
    done = subprocess.run(["sh", str(SCRIPT)], env=environment, capture_output=True, text=True, timeout=20, check=True)
    return done.stdout + done.stderr


def test_nothing_is_done_where_the_browser_is(tmp_path: Path) -> None:
    assert install(tmp_path, "chromium", "chromedriver", "apt-get") == ""


@pytest.mark.parametrize("commands", [(), ("apt-get",)])
def test_where_it_cannot_install_it_says_so_in_one_line(tmp_path: Path, commands: tuple[str, ...]) -> None:
    said = install(tmp_path, *commands)
    assert said.count("\n") == 1
    if not commands:
        assert "no apt-get" in said
    elif os.geteuid() == 0:
        assert "could not install" in said
    else:
        assert "not root" in said
