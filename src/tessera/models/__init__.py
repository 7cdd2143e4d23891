"""Convolutional networks in plain torch, shared by all features. Listing them does not import torch."""

from tessera.models import catalogue as _catalogue  # noqa: F401  (fills the registry)
from tessera.models.flops import ModelInfo, compute_model_info, model_info
from tessera.models.registry import (
    MODELS,
    ModelEntry,
    build,
    build_example_inputs,
    build_layers,
    get_image_size,
    list_models,
    model,
)

__all__ = [
    "MODELS",
    "ModelEntry",
    "ModelInfo",
    "build",
    "build_example_inputs",
    "build_layers",
    "compute_model_info",
    "get_image_size",
    "list_models",
    "model",
    "model_info",
]
