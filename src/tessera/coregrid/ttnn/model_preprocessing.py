"""Parameters of torch modules as attributes, as ttnn's model scripts read them."""

from __future__ import annotations

from typing import Any

from torch import nn

from tessera.coregrid.device.tensors import Tensor, from_torch
from tessera.coregrid.formats import DataType, bfloat16


class ParameterDict(dict[str, Any]):
    """A dict whose entries are attributes as well."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"no parameter {name!r}; there are {', '.join(self)}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


def preprocess_linear_weight(weight: Any, *, dtype: DataType = bfloat16, **options: Any) -> Tensor:
    """Return the weight of a linear layer as a matrix `(in, out)` on the host."""
    return from_torch(weight.detach().T.contiguous(), dtype, **options)


def preprocess_linear_bias(bias: Any, *, dtype: DataType = bfloat16, **options: Any) -> Tensor:
    """Return the bias of a linear layer as a matrix of one row on the host."""
    return from_torch(bias.detach().reshape(1, -1), dtype, **options)


def preprocess_model_parameters(
    *, initialize_model: Any, custom_preprocessor: Any = None, device: Any = None, **_: Any
) -> ParameterDict:
    """Return the parameters of a model, module by module; `custom_preprocessor` may replace those of a module."""
    return _read_parameters(initialize_model(), "", custom_preprocessor)


def _read_parameters(module: nn.Module, name: str, custom: Any) -> ParameterDict:
    if custom is not None and (found := custom(module, name, None, None)):
        return ParameterDict(found)
    parameters = ParameterDict(dict(module.named_parameters(recurse=False)))
    for key, child in module.named_children():
        parameters[key] = _read_parameters(child, f"{name}.{key}".lstrip("."), custom)
    return parameters
