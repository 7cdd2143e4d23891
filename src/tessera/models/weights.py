"""The values of a model's weights: random ones from a seed, or those of a file."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from tessera.errors import TesseraError

PADDING = "__padding__"  # tensors of a file whose names begin so fill gaps, which safetensors does not allow to be left


def initialise(module: nn.Module, seed: int) -> None:
    """Fill every weight and buffer once, from a generator of its own.

    Random weights serve to time a network and to compare two ways of running it. So the statistics of the
    normalisations are random too (with means of 0 and variances of 1 a fault in folding them would not show),
    and a normalisation that ends a residual branch (marked `ends_branch`) is scaled down: untrained, each
    branch would else double the variance, past the range of float16 within a deep network. A convolution that is fed
    less than a ReLU leaves (marked by its `gain`) has larger weights: behind a swish and a gate the image would
    else die out, and with it every fault in handling it.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, layer in module.named_modules():
            if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d | nn.Linear):
                nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu", generator=generator)
                layer.weight.mul_(getattr(layer, "gain", 1.0))
                if layer.bias is not None:
                    layer.bias.normal_(0, 0.05, generator=generator)
            elif isinstance(layer, nn.BatchNorm2d | nn.GroupNorm):
                scale = 0.25 if getattr(layer, "ends_branch", False) else 1.0
                layer.weight.uniform_(0.8 * scale, 1.2 * scale, generator=generator)
                layer.bias.normal_(0, 0.05, generator=generator)
                if isinstance(layer, nn.GroupNorm):
                    continue  # it has no statistics
                assert layer.running_mean is not None
                assert layer.running_var is not None
                assert layer.num_batches_tracked is not None
                layer.running_mean.normal_(0, 0.05, generator=generator)
                layer.running_var.uniform_(0.8, 1.25, generator=generator)
                layer.num_batches_tracked.zero_()
            else:
                if [*layer.parameters(recurse=False), *layer.buffers(recurse=False)]:
                    raise TesseraError(f"no rule for random weights of {name or 'the model'}", got=type(layer).__name__)


def load_weights(module: nn.Module, path: Path) -> None:
    """Give a model the weights of a file; every tensor must be there, in its shape, and none besides.

    A model on the meta device gets its memory from this, and nothing is initialised first.
    """
    found = read_weights(path)
    wanted = module.state_dict()
    # Batch counts are not weights: files written before torch kept them lack them, and torch makes them up.
    missing = [k for k in wanted if k not in found and not k.endswith("num_batches_tracked")]
    unexpected = [k for k in found if k not in wanted]
    if missing or unexpected:
        parts = [f"missing {_few(missing)}"] * bool(missing) + [f"unexpected {_few(unexpected)}"] * bool(unexpected)
        raise TesseraError(f"{path} is not of this model: {'; '.join(parts)}")
    for key, tensor in found.items():
        if tensor.shape != wanted[key].shape:
            raise TesseraError(
                f"{path} is not of this model: {key} has another shape",
                got=tuple(tensor.shape),
                allowed=str(tuple(wanted[key].shape)),
            )
    # A copy: the tensors of a file may be maps of it, which would change or fault with the file.
    values = {key: tensor.to(wanted[key].dtype, copy=True) for key, tensor in found.items()}
    module.load_state_dict(values, assign=True)


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a file by name. Its kind is told by its content; no code in it is ever run."""
    try:
        with path.open("rb") as file:
            head = file.read(9)
        found: object
        # A safetensors file opens with the length of its header, which is JSON.
        found = load_file(path) if head[8:9] == b"{" else torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise TesseraError("no such file of weights", got=str(path)) from None
    except OSError as error:
        raise TesseraError(f"cannot read weights: {error.strerror or error}", got=str(path)) from None
    except pickle.UnpicklingError as error:
        if "Unsupported" in str(error):  # torch names the call or the class that it refused
            raise TesseraError(
                f"{path} holds pickled code, which is not run", do="save its state_dict(), or safetensors"
            ) from None
        raise TesseraError(f"{path} is not a file of weights, or is torn", do=_SAVE) from None
    except (SafetensorError, EOFError, RuntimeError, ValueError, KeyError):
        raise TesseraError(f"{path} is not a file of weights, or is torn", do=_SAVE) from None
    if not isinstance(found, Mapping) or not all(isinstance(v, Tensor) for v in found.values()):
        inside = _few([str(k) for k in found]) if isinstance(found, Mapping) else type(found).__name__
        raise TesseraError(f"{path} is not a plain state_dict", got=inside, do="save model.state_dict() alone")
    return {name: tensor for name, tensor in found.items() if not name.startswith(PADDING)}


_SAVE = "write it with safetensors, or torch.save(model.state_dict(), …)"


def _few(keys: list[str]) -> str:
    more = f" and {len(keys) - 3} more" if len(keys) > 3 else ""
    return ", ".join(keys[:3]) + more
