"""torch.compile: the torch expression of an operator as one compiled graph, forward and backward."""

from __future__ import annotations

import torch
import torch._dynamo
import torch._functorch.config
import torch._inductor.config
from torch._dynamo.exc import TorchDynamoException

from tessera.errors import Refused
from tessera.operators.backends.backend import Prepared, Request
from tessera.operators.backends.torch_backend import NAMES, prepared, to_tensors
from tessera.operators.expression import function


class CompileBackend:
    """PyTorch through dynamo, AOTAutograd and inductor, with the shapes of the case built in."""

    def __init__(self) -> None:
        # one case needs one kernel or two: no pool of compilers that would outlive it
        torch._inductor.config.compile_threads = 1
        # the backward pass alone is run over and over on the same saved tensors: it must not write into them
        torch._functorch.config.donated_buffer = False

    def preload(self) -> None:
        # the compiler itself, which torch.compile would import in every launch
        import torch._inductor.compile_fx  # noqa: F401

    def prepare(self, request: Request, expression: str) -> Prepared:
        # what earlier cases compiled in this process is neither found again nor kept
        torch._dynamo.reset()
        torch.manual_seed(request.seed)
        tensors = to_tensors(request)
        names = {"__name__": __name__, **NAMES, **request.attributes}
        compiled = torch.compile(function(expression, tuple(tensors), names), fullgraph=True, dynamic=False)
        values = tuple(tensors.values())
        try:
            return prepared(request, tensors, lambda: compiled(*values))
        except TorchDynamoException as error:
            raise Refused(f"torch.compile has no whole graph of {request.operator.name}", do=_reason(error)) from None


def _reason(error: Exception) -> str:
    """The line of an error that goes on for pages that says what is wrong, not who noticed."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.rstrip().endswith("raised:")]
    return lines[0] if lines else type(error).__name__
