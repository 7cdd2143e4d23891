"""The subjects of the comparison of repeated passes: language models, a diffusion network and image networks.

A subject is built from its configuration with random weights. Its checkpoint is written once, as a safetensors file
that `PhasedModel.from_pretrained` reads, and in accelerate's format with a file for every tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from halo.zoo_networks import import_public
from torch import Tensor, nn

from tessera.models import MODELS

PROMPT_TOKENS = 16
CHECKPOINT, OFFLOADED = "checkpoint.safetensors", "offloaded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A network, and its passes: `passes` in total, which the engines run in turns of `turn` passes."""

    title: str
    build: Callable[[], nn.Module]
    state: Callable[[nn.Module], Any]
    dtype: torch.dtype = torch.float32
    passes: int
    turn: int


class TokenState:
    """Greedy generation with a KV cache: every pass adds a token."""

    def __init__(self, vocabulary: int) -> None:
        self.ids = torch.randint(0, vocabulary, (1, PROMPT_TOKENS), generator=torch.Generator().manual_seed(1))
        self.cache: Any = None
        self.results: list[float] = []

    def advance(self, network: nn.Module) -> None:
        output = network(input_ids=self.ids, past_key_values=self.cache, use_cache=True)
        self.cache, self.ids = output.past_key_values, output.logits[:, -1:].argmax(-1)
        self.results.append(float(self.ids))


class DiffusionState:
    """Denoising steps: every pass subtracts a part of the predicted noise."""

    def __init__(self, size: int, width: int) -> None:
        generator = torch.Generator().manual_seed(1)
        self.sample = torch.randn(1, 4, size, size, generator=generator)
        self.text = torch.randn(1, 77, width, generator=generator)
        self.results: list[float] = []

    def advance(self, network: nn.Module) -> None:
        step = torch.tensor(900 - 50 * len(self.results))
        self.sample = self.sample - 0.1 * network(self.sample, step, self.text, return_dict=False)[0]
        self.results.append(float(self.sample.abs().mean()))


class ImageState:
    """One image, repeatedly."""

    def __init__(self, size: int) -> None:
        self.image = torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(1))
        self.results: list[float] = []

    def advance(self, network: nn.Module) -> None:
        output = network(self.image)
        value: Tensor = output if isinstance(output, Tensor) else output.last_hidden_state
        self.results.append(float(value.abs().mean()))


def list_subjects(small: bool) -> dict[str, Subject]:
    """Return the subjects by name; with `small`, tiny ones that only check that the comparison runs."""
    width, layers = (64, 8) if small else (1024, 24)
    llama_width, llama_inner, llama_layers = (64, 128, 8) if small else (2048, 5632, 36)
    vocabulary = 256 if small else 32000
    channels = (32, 64, 64, 64) if small else (160, 320, 640, 640)
    latent, image = (16, 64) if small else (32, 224)
    vit = {"hidden_size": width, "num_hidden_layers": layers, "intermediate_size": 4 * width, "image_size": image}

    def build_gpt2() -> nn.Module:
        transformers = import_public("transformers")
        heads = {"n_head": width // 64, "n_embd": width, "n_layer": layers}
        sizes = {"vocab_size": vocabulary, "n_positions": 4 * PROMPT_TOKENS}
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(**heads, **sizes))

    def build_llama() -> nn.Module:
        transformers = import_public("transformers")
        config = transformers.LlamaConfig(
            vocab_size=vocabulary,
            hidden_size=llama_width,
            intermediate_size=llama_inner,
            num_hidden_layers=llama_layers,
            num_attention_heads=llama_width // 64 or 1,
            tie_word_embeddings=False,
        )
        return transformers.LlamaForCausalLM(config)

    def build_unet() -> nn.Module:
        diffusers = import_public("diffusers")
        return diffusers.UNet2DConditionModel(
            sample_size=latent, block_out_channels=channels, cross_attention_dim=channels[-1], attention_head_dim=8
        )

    def build_vit() -> nn.Module:
        transformers = import_public("transformers")
        heads = {"num_attention_heads": width // 64 or 1, "patch_size": 16}
        return transformers.ViTModel(transformers.ViTConfig(**vit, **heads))

    def build_resnet() -> nn.Module:
        return MODELS["resnet18" if small else "resnet152"].factory()

    tokens, turn = (4, 2) if small else (32, 8)
    steps = 2 if small else 10
    images = 2 if small else 6
    return {
        "gpt2": Subject(
            title="GPT-2, float32",
            build=build_gpt2,
            state=lambda _: TokenState(vocabulary),
            passes=tokens,
            turn=turn,
        ),
        "llama": Subject(
            title="Llama, bfloat16",
            build=build_llama,
            state=lambda _: TokenState(vocabulary),
            dtype=torch.bfloat16,
            passes=tokens,
            turn=turn,
        ),
        "unet": Subject(
            title="diffusion UNet",
            build=build_unet,
            state=lambda _: DiffusionState(latent, channels[-1]),
            passes=steps,
            turn=steps // 2,
        ),
        "vit": Subject(title="ViT-L", build=build_vit, state=lambda _: ImageState(image), passes=images, turn=1),
        "resnet": Subject(
            title="ResNet-152", build=build_resnet, state=lambda _: ImageState(image), passes=images, turn=1
        ),
    }


def write_subject(subject: Subject, folder: Path) -> int:
    """Write the checkpoint of a subject in both formats; return the size of the weights in bytes."""
    from accelerate.utils import offload_state_dict
    from safetensors.torch import save_file

    torch.manual_seed(0)
    network = subject.build().to(subject.dtype).eval()
    state = network.state_dict()
    unique = {id(value): (name, value) for name, value in reversed(network.state_dict(keep_vars=True).items())}
    save_file({name: value.detach().contiguous() for name, value in unique.values()}, folder / CHECKPOINT)
    offload_state_dict(str(folder / OFFLOADED), state)
    return sum(value.nbytes for _, value in unique.values())
