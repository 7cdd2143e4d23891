"""Number formats of a network at work: how its inputs and weights are kept, and what it computes in.

`16.32` means sixteen bits for what flows, thirty-two for the weights. Few processors compute in sixteen
bits; on the others sixteen bits are a way to keep numbers, and the arithmetic is float32.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """What a precision means in one engine on one processor, by the names of torch's dtypes.

    `io` is the format in which inputs and outputs cross to the engine and back, `weights` that to which the weights are
    rounded, `compute` that of the arithmetic. `least_top1` and `largest_error` are what its agreement with float32 has
    to reach to pass for the same network; two scores that differ by less than `tie` of the largest are no two answers,
    since the format cannot tell them apart.
    """

    name: str
    io: str
    weights: str
    compute: str
    least_top1: float
    largest_error: float
    tie: float

    def note(self, *, inputs: bool = True) -> str:
        """What has to be told where sixteen bits are storage only; `inputs` may come in eight.

        >>> from dataclasses import replace
        >>> replace(PRECISIONS["16.16"], compute="float32").note(inputs=False)
        '16.16: outputs and weights are kept in 16 bits, the arithmetic is float32: there is none in float16 here'
        """
        if self.io != "float16" or self.compute != "float32":
            return ""
        *kept, last = ["inputs"] * inputs + ["outputs"] + ["weights"] * (self.weights == "float16")
        words = f"{', '.join(kept)} and {last}" if kept else last
        return f"{self.name}: {words} are kept in 16 bits, the arithmetic is float32: there is none in float16 here"


def _precision(name: str, io: str, weights: str, compute: str, **limits: float) -> Precision:
    return Precision(name=name, io=io, weights=weights, compute=compute, **limits)


PRECISIONS = {
    one.name: one
    for one in (
        _precision("32.32", "float32", "float32", "float32", least_top1=1.0, largest_error=1e-3, tie=1e-4),
        _precision("16.32", "float16", "float32", "float16", least_top1=1.0, largest_error=2e-2, tie=2e-3),
        _precision("16.16", "float16", "float16", "float16", least_top1=1.0, largest_error=2e-2, tie=2e-3),
        _precision("bf16", "float32", "bfloat16", "bfloat16", least_top1=0.75, largest_error=1e-1, tie=1.6e-2),
        _precision("int8", "float32", "int8", "int8", least_top1=0.95, largest_error=5e-1, tie=1e-4),
    )
}
ALIASES = {"fp32": "32.32", "float32": "32.32", "fp16": "16.16", "bfloat16": "bf16"}


def spelled_out(name: str) -> str:
    """The name of a precision; `fp32` and its like are read as well.

    >>> spelled_out("fp32"), spelled_out("int8")
    ('32.32', 'int8')
    """
    return ALIASES.get(name, name)


def has_float16() -> bool:
    """Whether this processor computes in float16, as torch's kernels see it."""
    import torch

    return bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())
