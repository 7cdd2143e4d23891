"""How a fused operator is written down: its steps, and the ways in which it can be had fused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from tessera.operators.operator import Call, Input, Operator
from tessera.operators.work import per_output

TWO_STEPS = per_output(2.0)
# behind a long sum, a value near zero lies on the other side of ReLU's kink in single precision than in double
KINKED = 10.0
SOFTMAX_REF = "(lambda y: np.exp(y - special.logsumexp(y, -1, keepdims=True)))"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fusion:
    """`kept` is the same steps with intermediate results in place or in buffers that exist; `library` is one kernel
    of torch's own, where there is one. `buffers` are made before anything is timed."""

    kept: str
    library: str = ""
    buffers: Mapping[str, str] = field(default_factory=dict)


def fused(
    name: str,
    torch: str,
    reference: str,
    sizes: dict[str, Mapping[str, Input]],
    fusion: Fusion,
    flops: Callable[[Call], float] = TWO_STEPS,
    gradient_tolerance: float = 1.0,
) -> tuple[Operator, Fusion]:
    """An operator of the category `fused`, whose own expression is the unfused one."""
    operator = Operator(
        name=name,
        category="fused",
        torch=torch,
        reference=reference,
        sizes=sizes,
        flops=flops,
        gradient_tolerance=gradient_tolerance,
    )
    return operator, fusion
