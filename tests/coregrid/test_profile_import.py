"""Tests of measured times from CSV files beside predicted times."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from tessera.cli.main import main
from tessera.coregrid.networks.layers import describe_network
from tessera.coregrid.networks.plan import plan_network
from tessera.coregrid.profile_import import compare_convolutions, compare_network, read_profile
from tessera.coregrid.published import PUBLISHED_TIMES, predict_published_time
from tessera.errors import TesseraError
from tessera.machine import load_machine

ATTRIBUTES = (
    "{'sliding_window_config': 'SlidingWindowConfig(batch_size=1; input_hw=(128;128); window_hw=(3;3); "
    "stride_hw=(1;1); padding=((1; 1); (1; 1)); output_padding = (0; 0); dilation_hw=(1;1); num_cores_nhw=64)'; "
    "'output_channels': '512'; 'groups': '1'; 'memory_config': 'MemoryConfig(memory_layout="
    "TensorMemoryLayout::HEIGHT_SHARDED;buffer_type=BufferType::L1)'; 'enable_act_double_buffer': 'false'}"
)
HEADINGS = [
    "OP CODE",
    "OP TYPE",
    "ATTRIBUTES",
    "MATH FIDELITY",
    "CORE COUNT",
    "DEVICE KERNEL DURATION [ns]",
    "INPUT_0_X_PAD[LOGICAL]",
    "INPUT_1_DATATYPE",
    "OUTPUT_0_DATATYPE",
]


def write_profile(path: Path, headings: list[str], rows: list[list[str]]) -> Path:
    stream = io.StringIO()
    writer = csv.writer(stream)
    writer.writerows([headings, *rows])
    path.write_text(stream.getvalue())
    return path


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    conv = [
        "Conv2dDeviceOperation",
        "tt_dnn_device",
        ATTRIBUTES,
        "LoFi",
        "64",
        "67000",
        "8[4]",
        "BFLOAT8_B",
        "BFLOAT16",
    ]
    move = ["MoveDeviceOperation", "tt_dnn_device", "{}", "", "64", "5000", "8[4]", "", "BFLOAT16"]
    signpost = ["start", "signpost", "", "", "", "", "", "", ""]
    return write_profile(tmp_path / "ops.csv", HEADINGS, [signpost, conv, move])


def test_a_convolution_of_a_profile_is_predicted_from_its_attributes(profile: Path) -> None:
    operations = read_profile(profile)
    assert [operation.seconds for operation in operations] == pytest.approx([67e-6, 5e-6])
    (compared,) = compare_convolutions(operations, load_machine("wormhole-n150"))
    published = next(row for row in PUBLISHED_TIMES if row.name == "VAE of SDXL" and row.machine == "wormhole-n150")
    assert compared.measured == pytest.approx(67e-6)
    assert compared.predicted == pytest.approx(predict_published_time(published), rel=0.02)


def test_the_command_prints_the_comparison(profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["conv", "--import", str(profile)]) == 0
    shown = capsys.readouterr().out
    assert "4 to 512" in shown or "8 to 512" in shown
    assert "1 of 2 operations predicted" in shown
    assert main(["conv", "--import", str(profile), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["measured"] == pytest.approx(67e-6)


def test_a_report_is_matched_with_the_layers_of_a_network(tmp_path: Path) -> None:
    plan = plan_network(describe_network("resnet18", 1, 64), load_machine("wormhole-n150")).best
    codes = {
        "conv": "Conv2dDeviceOperation",
        "add": "BinaryNgDeviceOperation",
        "max_pool": "Pool2D",
        "linear": "Matmul",
    }
    rows = []
    for step in plan.steps:
        if step.kind == "conv":
            rows.append(["HaloDeviceOperation", "2.0 μs"])
        rows.append([codes.get(step.kind, "Reshape"), f"{step.seconds * 2e6} μs"])
    path = write_profile(tmp_path / "report.csv", ["OP Code", "Device Time"], rows)
    compared = compare_network(read_profile(path), plan)
    convolutions = [each for each in compared if each.code.startswith("Conv2d")]
    assert len(convolutions) == 20
    for each in convolutions:
        assert each.measured == pytest.approx(2 * each.predicted + 2e-6, rel=1e-6)
    differences = [abs(each.predicted - each.measured) for each in compared]
    assert differences == sorted(differences, reverse=True)


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = write_profile(tmp_path / "other.csv", ["a", "b"], [["1", "2"]])
    with pytest.raises(TesseraError, match="not a profile of a device"):
        read_profile(path)
