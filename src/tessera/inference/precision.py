"""Precisions: the number formats of a network's inputs, weights and arithmetic.

`16.32` means 16 bits for activations and 32 for weights. On processors without 16-bit arithmetic the 16 bits
are a storage format only, and the arithmetic is float32.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """A precision as one engine runs it on one processor; formats are named as torch dtypes.

    `io` is the format of the engine's inputs and outputs, `weights` the format to which weights are rounded, `compute`
    the format of the arithmetic. `min_top1` and `max_error` are the limits of the agreement check against float32. Two
    scores that differ by less than `tie` times the largest score count as equal: the format may not distinguish them.
    """

    name: str
    io: str
    weights: str
    compute: str
    min_top1: float
    max_error: float
    tie: float

    def explain_storage(self, *, inputs: bool = True) -> str:
        """Return a note if 16 bits are a storage format only, else an empty string.

        `inputs` is whether the inputs have 16 bits; it is False for 8-bit inputs.

        >>> from dataclasses import replace
        >>> replace(PRECISIONS["16.16"], compute="float32").explain_storage(inputs=False)
        '16.16: outputs and weights are stored in 16 bits, the arithmetic is float32: no float16 arithmetic here'
        """
        if self.io != "float16" or self.compute != "float32":
            return ""
        *parts, last = ["inputs"] * inputs + ["outputs"] + ["weights"] * (self.weights == "float16")
        words = f"{', '.join(parts)} and {last}" if parts else last
        return f"{self.name}: {words} are stored in 16 bits, the arithmetic is float32: no float16 arithmetic here"


def _build_precision(name: str, io: str, weights: str, compute: str, **limits: float) -> Precision:
    return Precision(name=name, io=io, weights=weights, compute=compute, **limits)


PRECISIONS = {
    one.name: one
    for one in (
        _build_precision("32.32", "float32", "float32", "float32", min_top1=1.0, max_error=1e-3, tie=1e-4),
        _build_precision("16.32", "float16", "float32", "float16", min_top1=1.0, max_error=2e-2, tie=2e-3),
        _build_precision("16.16", "float16", "float16", "float16", min_top1=1.0, max_error=2e-2, tie=2e-3),
        _build_precision("bf16", "float32", "bfloat16", "bfloat16", min_top1=0.75, max_error=1e-1, tie=1.6e-2),
        _build_precision("int8", "float32", "int8", "int8", min_top1=0.95, max_error=5e-1, tie=1e-4),
    )
}
PRECISION_ALIASES = {"fp32": "32.32", "float32": "32.32", "fp16": "16.16", "bfloat16": "bf16"}


def resolve_precision(name: str) -> str:
    """Return the name of a precision from a name or an alias such as `fp32`.

    >>> resolve_precision("fp32"), resolve_precision("int8")
    ('32.32', 'int8')
    """
    return PRECISION_ALIASES.get(name, name)


def has_float16() -> bool:
    """Return whether torch reports float16 arithmetic on this processor."""
    import torch

    return bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())
