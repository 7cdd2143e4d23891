"""Backend for torch.compile: an operator as one compiled graph, forward and backward."""

from __future__ import annotations

import torch
import torch._dynamo
import torch._functorch.config
import torch._inductor.config
from torch._dynamo.exc import TorchDynamoException

from tessera.errors import Refused
from tessera.operators.backends.backend import OperatorRequest, PreparedOperator
from tessera.operators.backends.torch_backend import EXPRESSION_NAMES, prepare_passes, run_setup, to_tensors
from tessera.operators.expression import compile_expression


class CompileBackend:
    """PyTorch through dynamo, AOTAutograd and inductor, with static shapes."""

    def __init__(self) -> None:
        # compile in this process: a case has only one or two kernels, and a pool of compilers would outlive the case
        torch._inductor.config.compile_threads = 1
        # the backward pass runs repeatedly on the same saved tensors, so it must not reuse their memory
        torch._functorch.config.donated_buffer = False

    def preload(self) -> None:
        # import the compiler here: torch.compile would import it in every launch
        import torch._inductor.compile_fx  # noqa: F401

    def prepare(self, request: OperatorRequest, expression: str) -> PreparedOperator:
        # discard the graphs of earlier cases in this process
        torch._dynamo.reset()
        torch.manual_seed(request.seed)
        tensors = to_tensors(request)
        names = {"__name__": __name__, **EXPRESSION_NAMES, **request.attributes}
        names |= run_setup(request, {**names, **tensors})
        compiled = torch.compile(compile_expression(expression, tuple(tensors), names), fullgraph=True, dynamic=False)
        values = tuple(tensors.values())
        try:
            return prepare_passes(request, tensors, lambda: compiled(*values))
        except TorchDynamoException as error:
            reason = _extract_reason(error)
            raise Refused(f"torch.compile cannot compile {request.operator.name} as one graph", do=reason) from None


def _extract_reason(error: Exception) -> str:
    """Return the line of a long error that states the cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.rstrip().endswith("raised:")]
    return lines[0] if lines else type(error).__name__
