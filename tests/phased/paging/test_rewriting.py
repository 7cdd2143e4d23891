"""Tests of checkpoints that are rewritten for streaming, and of progress."""

from __future__ import annotations

import io
import json

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from tessera.cli.main import main
from tessera.errors import TesseraError
from tessera.phased import PhasedModel
from tessera.phased.paging.progress import PhasedProgress, ProgressPrinter
from tessera.phased.rewriting import rewrite_checkpoint
from tessera.phased.store.weights_file import WeightsFile
from tests.phased.bench import custom_models


def build_network():
    return nn.Sequential(*(nn.Linear(48, 48) for _ in range(12))).eval()


def write_checkpoint(folder, form):
    """Write a network in an order that differs from its use, and return the network and the checkpoint."""
    network = build_network()
    state = {
        name: value.clone() for name, value in sorted(network.state_dict().items(), key=lambda item: item[0][::-1])
    }
    if form == "torch":
        torch.save(state, folder / "w.pt")
        return network, folder / "w.pt"
    if form == "file":
        save_file(state, folder / "w.safetensors")
        return network, folder / "w.safetensors"
    names = {name: f"part-{number % 2}.safetensors" for number, name in enumerate(state)}
    for file in set(names.values()):
        save_file({name: state[name] for name in state if names[name] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    return network, folder


@pytest.mark.parametrize("form", ["file", "shards", "torch"])
@pytest.mark.parametrize("ordered", [False, True])
def test_rewritten_checkpoint_is_in_the_order_of_use(tmp_path, form, ordered):
    (tmp_path / "source").mkdir()
    network, source = write_checkpoint(tmp_path / "source", form)
    target = tmp_path / "streamed.safetensors"
    written = rewrite_checkpoint(source, target, model=build_network if ordered else None)
    assert written.order == ("registration" if ordered else "names")
    assert written.nbytes == sum(weight.nbytes for weight in network.parameters())
    tensors = WeightsFile(target).tensors
    places = [max(tensors[f"{number}.{kind}"].start for kind in ("weight", "bias")) for number in range(12)]
    assert places == sorted(places)
    x = torch.randn(2, 48)
    with torch.no_grad(), PhasedModel.from_pretrained(target, model=build_network, budget="40KB") as phased:
        assert torch.equal(phased(x), network(x))
        assert all(len(layout.runs) == 1 for layout in phased.plan.layouts)


def test_rewritten_checkpoint_can_have_fewer_bits(tmp_path, capsys):
    network, source = write_checkpoint(tmp_path, "file")
    target = tmp_path / "int8.safetensors"
    assert main(["phases", "--rewrite", str(source), "-o", str(target), "--dtype", "int8"]) == 0
    assert str(target) in capsys.readouterr().err
    with torch.no_grad(), PhasedModel.from_pretrained(target, model=build_network) as phased:
        assert len(phased.encoding_errors) == 12
        x = torch.randn(2, 48)
        torch.testing.assert_close(phased(x), network(x), rtol=0.1, atol=0.02)


def test_weights_are_in_the_order_of_use_if_inputs_are_known(tmp_path, capsys):
    network = custom_models.Reversed().eval()
    save_file(network.state_dict(), tmp_path / "w.safetensors")
    target = tmp_path / "streamed.safetensors"
    model = f"{custom_models.__name__}:build_reversed"
    assert main(["phases", "--rewrite", str(tmp_path / "w.safetensors"), "-o", str(target), "--model", model]) == 0
    assert "in the order of use" in capsys.readouterr().err
    tensors = WeightsFile(target).tensors
    places = [tensors[f"layers.{number}.weight"].start for number in range(5)]
    assert places == sorted(places, reverse=True)
    x = torch.randn(2, 48)
    with torch.no_grad(), PhasedModel.from_pretrained(target, model=custom_models.Reversed) as phased:
        assert torch.equal(phased(x), network(x))


def test_rewriting_does_not_replace_files_and_requires_a_target(tmp_path, capsys):
    _, source = write_checkpoint(tmp_path, "file")
    with pytest.raises(TesseraError, match="already exists"):
        rewrite_checkpoint(source, source)
    assert main(["phases", "--rewrite", str(source)]) == 2
    assert "requires -o" in capsys.readouterr().err


def test_progress_reports_writes_phases_and_passes():
    reports: list[PhasedProgress] = []
    network = build_network()
    with torch.no_grad(), PhasedModel(network, budget="40KB", progress=reports.append, keep=False) as phased:
        written = [report for report in reports if report.stage == "write"]
        assert len(written) == 24
        assert written[-1].done < written[-1].total == sum(weight.nbytes for weight in network.parameters())
        for _ in range(2):
            phased(torch.randn(2, 48))
        count = len(phased.phases)
        runs = [report for report in reports if report.stage == "run"]
        assert {report.phase for report in runs} == set(range(count))
        assert max(report.number for report in runs) >= 2
        assert runs[-1].done >= runs[-1].total


def test_progress_is_printed_as_lines_without_a_terminal():
    stream = io.StringIO()
    printer = ProgressPrinter(stream)
    for done in range(3):
        printer(PhasedProgress(stage="write", done=done, total=4096))
    assert stream.getvalue() == "writing weights: 0 B of 4.00 KiB\n"
