"""Inputs for the network of a checkpoint folder, from its configuration: random tokens, images or latent images."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tessera.errors import TesseraError

TOKENS = 16  # of every sequence
MAX_AUDIO_FRAMES = 3000
DEFAULT_IMAGE_SIZE, DEFAULT_LATENT_SIZE, DEFAULT_CHANNELS = 224, 32, 3


def build_sample_inputs(network: nn.Module, batch_size: int = 1, *, seed: int = 0) -> dict[str, Any]:
    """Return keyword arguments for a network of transformers, diffusers or timm, in the dtype of its weights."""
    generator = torch.Generator().manual_seed(seed)
    dtype = next((p.dtype for p in network.parameters() if p.is_floating_point()), torch.float32)
    names = list(inspect.signature(network.forward).parameters)

    def draw(*shape: int) -> Tensor:
        return torch.randn(batch_size, *shape, generator=generator).to(dtype)

    def draw_tokens(vocabulary: int) -> Tensor:
        return torch.randint(0, vocabulary, (batch_size, TOKENS), generator=generator)

    config = getattr(network, "config", None)
    main = str(getattr(network, "main_input_name", ""))
    if config is not None and main in names:
        text = _get(config, "text_config") or config
        inputs: dict[str, Any] = {}
        if main == "input_ids" or (main == "pixel_values" and "input_ids" in names):
            inputs["input_ids"] = draw_tokens(int(_get(text, "vocab_size") or 2))
        if main == "pixel_values" or ("pixel_values" in names and _get(config, "vision_config")):
            image = _get(config, "vision_config") or config
            inputs["pixel_values"] = draw(int(_get(image, "num_channels") or DEFAULT_CHANNELS), *_get_image_size(image))
        if main == "input_features":
            frames = 2 * int(_get(config, "max_source_positions") or MAX_AUDIO_FRAMES // 2)
            inputs["input_features"] = draw(int(_get(config, "num_mel_bins") or 80), frames)
        if inputs:
            if _get(config, "is_encoder_decoder") and "decoder_input_ids" in names:
                inputs["decoder_input_ids"] = draw_tokens(int(_get(text, "vocab_size") or 2))
            return inputs
    if config is not None and "sample" in names:
        size = _get(config, "sample_size") or DEFAULT_LATENT_SIZE
        height, width = (size, size) if isinstance(size, int) else (size[0], size[1])
        inputs = {"sample": draw(int(_get(config, "in_channels") or DEFAULT_CHANNELS), int(height), int(width))}
        if "timestep" in names:
            inputs["timestep"] = torch.tensor(500)
        context = _get(config, "cross_attention_dim")
        if "encoder_hidden_states" in names and context:
            inputs["encoder_hidden_states"] = draw(TOKENS, int(context if isinstance(context, int) else context[0]))
        return inputs
    if config is None and isinstance(settings := getattr(network, "default_cfg", None), Mapping):
        return {names[0]: draw(*settings["input_size"])}
    raise TesseraError(
        "the inputs of this network are not known",
        got=type(network).__name__,
        do="write a function that returns the network and its inputs, and pass module:callable",
    )


def _get(config: Any, name: str) -> Any:
    return config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)


def _get_image_size(config: Any) -> tuple[int, int]:
    size = _get(config, "image_size") or DEFAULT_IMAGE_SIZE
    return (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))
