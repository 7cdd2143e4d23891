"""A phase: the part of a network whose weights are in working memory together. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """Consecutive calls of a network and the weights that they use.

    `modules` are the layers in it, in the order of their calls; `tensors` the names of its weights. `bytes` is what
    its weights take in the store, and what one load of it moves; `working_bytes` what they take while they are
    computed with (more than `bytes` where 16-bit weights are widened). `flops` are those of one pass of one batch of
    the shape that was given, None where none was. `inputs` and `outputs` name the activations that come in from
    earlier phases and are needed by later ones. A `resident` phase is loaded once and stays.
    """

    index: int
    name: str
    modules: tuple[str, ...]
    tensors: tuple[str, ...]
    bytes: int
    working_bytes: int
    flops: int | None
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    resident: bool
