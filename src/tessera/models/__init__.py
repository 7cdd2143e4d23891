"""Convolutional networks in plain torch that every feature shares. Listing them imports no torch."""

from tessera.models import catalogue as _catalogue  # noqa: F401  (fills the registry)
from tessera.models.flops import ModelInfo, count, model_info
from tessera.models.registry import MODELS, Entry, build, image_size_of, lay_out, list_models, model

__all__ = [
    "MODELS",
    "Entry",
    "ModelInfo",
    "build",
    "count",
    "image_size_of",
    "lay_out",
    "list_models",
    "model",
    "model_info",
]
