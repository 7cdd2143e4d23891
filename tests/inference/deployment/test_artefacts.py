"""Tests of the files that replicas share: the first caller creates a file once, and callers see only complete files."""

from __future__ import annotations

import subprocess
import sys

import pytest

onnx = pytest.importorskip("onnx")

CODE = """
import sys
from pathlib import Path
from tessera.inference.deployment.artefacts import Artefacts
from tessera.inference.opening import plan_deployment
from tessera.inference.settings import Settings
files = Artefacts(Path(sys.argv[1]))
settings = Settings(model="tests.inference.small_networks:build_classifier", image_size=32, engine="openvino")
path = files.export_onnx(plan_deployment(settings))
print(path, "export" in files.seconds)
"""


@pytest.mark.timeout(300)
def test_concurrent_processes_create_a_file_once(tmp_path):
    command = [sys.executable, "-c", CODE, str(tmp_path)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [process.communicate(timeout=280)[0].split() for process in running]
    assert all(process.returncode == 0 for process in running)
    assert len({path for path, _ in answers}) == 1
    assert sorted(made for _, made in answers) == ["False", "True"]
    onnx.checker.check_model(onnx.load(answers[0][0]))
    assert len(list(tmp_path.glob("*.onnx"))) == 1
