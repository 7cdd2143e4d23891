"""Tests of `tessera phases --model FOLDER` and `--rewrite FOLDER`: Hugging Face folders, with inputs of their own.

They require transformers, diffusers or timm, which are not dependencies of the project.
"""

from __future__ import annotations

import json
import sys

import pytest
import torch

from tessera.cli.main import main
from tessera.errors import TesseraError
from tessera.phased.cases import cases
from tessera.phased.paging.sample_inputs import build_sample_inputs
from tests.phased.bench.test_run import measure_case

pytestmark = pytest.mark.timeout(180)


def import_transformers():
    """Import transformers, without a torchvision that was built for another torch."""
    try:
        import torchvision  # noqa: F401
    except (ImportError, RuntimeError):
        sys.modules["torchvision"] = None  # type: ignore[assignment]
    return pytest.importorskip("transformers")


def write_gpt2(folder, dtype=torch.float32):
    transformers = import_transformers()
    config = transformers.GPT2Config(n_embd=64, n_layer=4, n_head=2, vocab_size=300, n_positions=64)
    network = transformers.GPT2LMHeadModel(config).to(dtype).eval()
    network.save_pretrained(folder, max_shard_size="300KB")
    return network


@pytest.mark.parametrize("schedule", ["overlapped", "phased", "resident"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_language_model_is_measured_from_its_folder(tmp_path, schedule, dtype):
    network = write_gpt2(tmp_path, dtype)
    record = measure_case(str(tmp_path), schedule=schedule, batch_size=2, batches_per_step=3)
    assert record.metrics["error"].value <= 1e-5
    assert record.metrics["weights"].value == sum(weight.nbytes for weight in network.parameters())
    assert record.metrics["items"].value == pytest.approx(6 / record.metrics["time"].value, rel=0.5)


def test_a_vision_transformer_is_measured_from_its_folder(tmp_path):
    transformers = import_transformers()
    sizes = {"hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 128}
    transformers.ViTModel(transformers.ViTConfig(image_size=32, **sizes)).save_pretrained(tmp_path)
    assert measure_case(str(tmp_path), schedule="overlapped").metrics["error"].value <= 1e-5


def test_a_diffusion_network_is_measured_from_its_folder(tmp_path):
    diffusers = pytest.importorskip("diffusers")
    blocks = {"block_out_channels": (32, 64), "layers_per_block": 1}
    kinds = {"down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D")}
    kinds |= {"up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D")}
    sizes = {"sample_size": 16, "cross_attention_dim": 32, "attention_head_dim": 8}
    diffusers.UNet2DConditionModel(**sizes, **blocks, **kinds).save_pretrained(tmp_path)
    assert measure_case(str(tmp_path), schedule="overlapped").metrics["error"].value <= 1e-5


def test_a_folder_is_rewritten_in_the_order_of_use(tmp_path, capsys):
    network = write_gpt2(tmp_path / "folder")
    target = tmp_path / "streamed.safetensors"
    assert main(["phases", "--rewrite", str(tmp_path / "folder"), "-o", str(target)]) == 0
    assert "in the order of use" in capsys.readouterr().err
    from tessera.phased import PhasedModel

    inputs = build_sample_inputs(network, seed=5)
    kind = type(network)
    with torch.no_grad(), PhasedModel.from_pretrained(target, model=lambda: kind(network.config)) as phased:
        assert torch.equal(phased(**inputs).logits, network(**inputs).logits)


def test_a_folder_determines_dtype_and_weights(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["None"]}))
    [case] = cases([str(tmp_path)])
    assert "dtype" not in case.params
    assert "image_size" not in case.params
    with pytest.raises(TesseraError, match="--dtype cannot be combined with a checkpoint folder"):
        cases([str(tmp_path)], dtype=["int8"])


def test_a_folder_without_a_configuration_is_an_unknown_model(tmp_path):
    with pytest.raises(TesseraError, match=r"unknown model: got .* a folder with config\.json"):
        cases([str(tmp_path)])


def test_a_network_with_unknown_inputs_is_an_error():
    with pytest.raises(TesseraError, match="the inputs of this network are not known: got 'Linear'"):
        build_sample_inputs(torch.nn.Linear(2, 2))
