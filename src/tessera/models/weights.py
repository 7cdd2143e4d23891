"""Model weights: random from a seed, or read from a file."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from tessera.errors import TesseraError

PADDING_PREFIX = "__padding__"  # prefix of dummy tensors that fill alignment gaps, because safetensors allows no gaps


def initialise_weights(module: nn.Module, seed: int) -> None:
    """Fill all weights and buffers of a module with random values from `seed`; the global random state is unchanged.

    Random weights are used to time a network and to compare the outputs of two ways of running it. Therefore:

    - Norms get random statistics: with means of 0 and variances of 1, errors in folding the norms would not show.
    - A norm at the end of a residual branch (marked `ends_branch`) is scaled down. Otherwise each branch would double
      the variance, which exceeds the range of float16 in a deep network.
    - A convolution whose input has a smaller mean square than after a ReLU (marked by `gain`) gets larger weights.
      Otherwise activations would vanish behind SiLUs and gates, and errors would not show.
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
                    continue  # the norm has no running statistics
                assert layer.running_mean is not None
                assert layer.running_var is not None
                assert layer.num_batches_tracked is not None
                layer.running_mean.normal_(0, 0.05, generator=generator)
                layer.running_var.uniform_(0.8, 1.25, generator=generator)
                layer.num_batches_tracked.zero_()
            else:
                if [*layer.parameters(recurse=False), *layer.buffers(recurse=False)]:
                    raise TesseraError(
                        f"no initialisation rule for the random weights of {name or 'the model'}",
                        got=type(layer).__name__,
                    )


def load_weights(module: nn.Module, path: Path) -> None:
    """Load the weights of a file into a model; names and shapes must match exactly.

    Tensors on the meta device are allocated.
    """
    tensors = read_weights(path)
    wanted = module.state_dict()
    # Old files lack `num_batches_tracked`, which is not a weight; torch initialises it.
    missing = [k for k in wanted if k not in tensors and not k.endswith("num_batches_tracked")]
    unexpected = [k for k in tensors if k not in wanted]
    if missing or unexpected:
        parts = [f"missing {_format_first_keys(missing)}"] * bool(missing) + [
            f"unexpected {_format_first_keys(unexpected)}"
        ] * bool(unexpected)
        raise TesseraError(f"{path} does not match this model: {'; '.join(parts)}")
    for key, tensor in tensors.items():
        if tensor.shape != wanted[key].shape:
            raise TesseraError(
                f"{path} does not match this model: wrong shape of {key}",
                got=tuple(tensor.shape),
                allowed=str(tuple(wanted[key].shape)),
            )
    # Copy: the tensors may be memory-mapped, and would change or fault if the file changes.
    values = {key: tensor.to(wanted[key].dtype, copy=True) for key, tensor in tensors.items()}
    module.load_state_dict(values, assign=True)


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file by name. The format is detected from the content; no code in the file is run."""
    if path.suffix == ".onnx":
        raise TesseraError("an ONNX file is a network with its weights", got=str(path), do="give it as the model")
    try:
        with path.open("rb") as file:
            head = file.read(9)
        content: object
        # A safetensors file starts with the length of its header, which is JSON.
        content = load_file(path) if head[8:9] == b"{" else torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise TesseraError("weights file not found", got=str(path)) from None
    except OSError as error:
        raise TesseraError(f"cannot read weights: {error.strerror or error}", got=str(path)) from None
    except pickle.UnpicklingError as error:
        if "Unsupported" in str(error):  # torch names the function or class that it refuses to load
            raise TesseraError(
                f"{path} contains pickled code, which is not run", do="save only its state_dict(), or use safetensors"
            ) from None
        raise TesseraError(f"{path} is not a weights file, or is truncated", do=_SAVE_HINT) from None
    except (SafetensorError, EOFError, RuntimeError, ValueError, KeyError):
        raise TesseraError(f"{path} is not a weights file, or is truncated", do=_SAVE_HINT) from None
    if not isinstance(content, Mapping) or not all(isinstance(v, Tensor) for v in content.values()):
        inside = (
            _format_first_keys([str(k) for k in content]) if isinstance(content, Mapping) else type(content).__name__
        )
        raise TesseraError(f"{path} is not a plain state_dict", got=inside, do="save model.state_dict() alone")
    return {name: tensor for name, tensor in content.items() if not name.startswith(PADDING_PREFIX)}


_SAVE_HINT = "write it with safetensors, or torch.save(model.state_dict(), …)"


def _format_first_keys(keys: list[str]) -> str:
    more = f" and {len(keys) - 3} more" if len(keys) > 3 else ""
    return ", ".join(keys[:3]) + more
