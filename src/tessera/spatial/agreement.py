"""Checks before a parallel network runs: equal arguments, modes, dtypes and weights, and one random state.

Each rank describes its call by a few numbers; one message per call carries the numbers of all ranks. Ranks that differ
would deadlock or mix different results, so all ranks raise the same error. Random generators are set to the state
of rank 0 instead.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten

from tessera.errors import TesseraError
from tessera.spatial.tensor.split_tensor import SplitGroup, SplitTensor

CHECKED = {  # what is compared, and what to do if it differs
    "the images": "pass the same image on every rank, or use `scatter(image, root=…)`",
    "the arguments": "pass the same arguments on every rank",
    "the training modes of the modules": "call train() or eval() on every rank",
    "the gradient modes": "use requires_grad, no_grad and inference_mode identically on every rank",
    "the dtypes": "convert the model and use autocast identically on every rank",
}
SAMPLED_VALUES = 4096  # of one weight per call
WEIGHT_TOLERANCE = 1e-3  # larger than the rounding of different processors, smaller than any other difference


def check_same(what: str, value: int, group: SplitGroup) -> None:
    """Raise an error on all ranks if `value` differs between ranks; `what` is a key of `CHECKED`, or a text."""
    if group.ranks > 1 and len({row[0] for row in _exchange([value], group)}) > 1:
        raise TesseraError(f"{what} of the ranks differ", do=CHECKED.get(what, "pass the same value on every rank"))


def check_call_and_sync_rng(
    model: nn.Module, image: Tensor | None, arguments: Any, calls: int, group: SplitGroup
) -> None:
    """Raise an error on all ranks if their calls of a network differ; copy the random state of rank 0 to all ranks.

    `image` is the argument that will be split. `calls` counts the calls: each call compares a different weight.
    """
    if group.ranks == 1:
        return
    weights, training = [], bytearray()
    for module in iter_modules(model):
        training.append(module.training)
        if module._parameters:
            weights += [weight for weight in module._parameters.values() if weight is not None]
    number, sample = _sample_weight(weights, calls)
    own = [
        0 if image is None else compute_checksum(image),
        _describe_arguments(arguments, image),
        zlib.crc32(training),
        zlib.crc32(
            bytes([torch.is_grad_enabled(), torch.is_inference_mode_enabled(), *[w.requires_grad for w in weights]])
        ),
        _hash([*_describe_autocast(weights), *_describe_dtypes(weights)]),
        number,
        sample,
        _hash_random_state(),
    ]
    columns = list(zip(*_exchange(own, group), strict=True))
    for (what, do), values in zip(CHECKED.items(), columns, strict=False):
        if len(set(values)) > 1:
            raise TesseraError(f"{what} of the ranks differ", do=do)
    *_, numbers, samples, states = columns
    if len(set(numbers)) == 1 and _differ([_to_float(value) for value in samples]):
        raise TesseraError(
            "the weights of the ranks differ",
            do="load and change weights identically on every rank, or parallelize again",
        )
    if len(set(states)) > 1:
        _copy_random_state(group)


def iter_modules(model: nn.Module) -> Iterator[nn.Module]:
    """Yield all modules of a model. Shared modules are yielded repeatedly; `Module.modules` is ten times slower."""
    modules = [model]
    for module in modules:  # grows meanwhile
        yield module
        if module._modules:
            modules += [child for child in module._modules.values() if child is not None]


def compute_checksum(image: Tensor) -> int:
    """Return a number that differs for different tensors with near certainty."""
    plain = image.detach()
    words = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    sums: list[int] = []
    if not plain.is_complex() and plain.layout == torch.strided and plain.device.type != "meta":
        values = plain.contiguous().view(words[plain.itemsize]).view(-1)
        sums = [int(values.sum()), int(values[::7].sum())]
    return zlib.crc32(repr((tuple(image.shape), str(image.dtype), sums)).encode())


def _exchange(own: Sequence[int], group: SplitGroup) -> list[list[int]]:
    """Return the numbers of every rank."""
    table = torch.zeros(group.ranks, len(own), dtype=torch.int64)
    table[group.rank] = torch.tensor(own, dtype=torch.int64)
    group.transport.all_reduce(table)
    rows: list[list[int]] = table.tolist()
    return rows


def _hash(values: Iterable[Any]) -> int:
    return zlib.crc32(" ".join(map(str, values)).encode())


def _describe_autocast(weights: Sequence[Tensor]) -> list[Any]:
    """Return the state of autocast of the CPU and, if the weights are on an accelerator, of its kind of device."""
    kinds = {"cpu"} | {weight.device.type for weight in weights[:1] if weight.device.type != "meta"}
    return [(torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in sorted(kinds)]


def _describe_dtypes(weights: Sequence[Tensor]) -> list[Any]:
    """Return the distinct dtypes of the weights and a checksum of all item sizes.

    This is faster than hashing the dtype name of every weight.
    """
    dtypes = [weight.dtype for weight in weights]
    return [*dict.fromkeys(dtypes), zlib.crc32(bytes([dtype.itemsize for dtype in dtypes]))]


def _describe_arguments(arguments: Any, image: Tensor | None) -> int:
    """Return a number that is equal for arguments of the same structure with equal tensors and numbers."""
    leaves, spec = tree_flatten(arguments)
    texts = [str(len(leaves)), str(spec)]
    for leaf in leaves:
        if isinstance(leaf, SplitTensor):
            texts.append(f"{leaf.layout_on_ranks!r} {leaf.dtype} {leaf.requires_grad}")
        elif isinstance(leaf, Tensor):
            texts.append(f"{'image' if leaf is image else compute_checksum(leaf)} {leaf.requires_grad}")
        else:
            texts.append(repr(leaf) if isinstance(leaf, bool | int | float | str) else type(leaf).__name__)
    return _hash(texts)


def _sample_weight(weights: Sequence[Tensor], calls: int) -> tuple[int, int]:
    """Return the number of the weight that is compared in this call, and the sum of some of its values as bits."""
    number = calls % max(1, len(weights))
    weight = weights[number].detach() if weights else None
    if weight is None or type(weight) not in (Tensor, nn.Parameter) or not weight.is_floating_point():
        return -1, 0
    if weight.device.type == "meta" or not weight.is_contiguous():
        return -1, 0
    total = float(weight.view(-1)[:SAMPLED_VALUES].abs().sum(dtype=torch.float64))
    return number, struct.unpack("q", struct.pack("d", total))[0]


def _to_float(bits: int) -> float:
    value: float = struct.unpack("d", struct.pack("q", bits))[0]
    return value


def _differ(sums: Sequence[float]) -> bool:
    numbers = np.array(sums)
    if not np.isfinite(numbers).all():
        return len({repr(value) for value in sums}) > 1
    return bool(np.ptp(numbers) > WEIGHT_TOLERANCE * numbers.max())


def _copy_random_state(group: SplitGroup) -> None:
    """Give all ranks the random state of rank 0: all ranks must draw the same numbers."""
    state = [torch.get_rng_state().long(), torch.tensor(_read_python_state(), dtype=torch.int64)]
    for values in state:
        if group.rank:
            values.zero_()
        group.transport.all_reduce(values)
    torch.set_rng_state(state[0].to(torch.uint8))
    _write_python_state(state[1].tolist())


def _hash_random_state() -> int:
    """Return a checksum of the random states of torch, Python and NumPy."""
    _, words, _ = random.getstate()
    _, keys, position, *_ = np.random.get_state(legacy=True)
    checksum = hash((words, position)) & 0xFFFFFFFF  # hashes of integers are equal in all processes
    for part in (torch.get_rng_state().numpy(), np.asarray(keys)):
        checksum = zlib.crc32(part.data, checksum)
    return checksum


def _read_python_state() -> list[int]:
    """Return the random state of Python and NumPy as integers."""
    _, words, _ = random.getstate()
    _, keys, position, *_ = np.random.get_state(legacy=True)
    return [*words, *(int(key) for key in keys), int(position)]


def _write_python_state(state: Sequence[int]) -> None:
    version, words, extra = random.getstate()
    count = len(words)
    random.setstate((version, tuple(state[:count]), extra))
    np.random.set_state(("MT19937", np.array(state[count:-1], dtype=np.uint32), state[-1], 0, 0.0))
