"""Split tensors and `torch.compile`: operations on split tensors are never compiled.

The rules of split tensors send messages, and each rank computes a different part, so a graph that was captured on one
rank is not valid on other ranks, or in the next call. Code around split tensors may be compiled; torch breaks the graph
where split tensors begin.
"""

from __future__ import annotations

import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import nn
from torch._C._dynamo import eval_frame

Function = TypeVar("Function", bound=Callable[..., Any])
_lock = threading.Lock()
_active: list[Any] = []  # the stance that the first of all running networks has set, and one entry for each other


def run_eagerly(function: Function) -> Function:
    """Decorator: exclude a function, and all functions that it calls, from compilation, without overhead per call."""
    assert isinstance(function, types.FunctionType)
    skip = eval_frame._FrameAction.SKIP
    eval_frame.set_code_exec_strategy(function.__code__, eval_frame._FrameExecStrategy(skip, skip))
    function._torchdynamo_disable = True  # type: ignore[attr-defined]
    return function


@contextmanager
def ignore_compilation() -> Iterator[None]:
    """Run compiled modules and functions as plain Python. The setting holds for all threads."""
    if "torch._dynamo" not in sys.modules:  # nothing has been compiled
        yield
        return
    with _lock:
        if not _active:
            stance = torch.compiler.set_stance("force_eager")
            stance.__enter__()
            _active.append(stance)
        else:
            _active.append(None)
    try:
        yield
    finally:
        with _lock:
            if len(_active) == 1:
                _active[0].__exit__(None, None, None)
            _active.pop()


def warn_of_compiled_modules(model: nn.Module) -> None:
    """Warn of the first module that the user compiled: it runs without compilation on split tensors."""
    if "torch._dynamo" not in sys.modules:
        return
    from torch._dynamo import OptimizedModule

    for name, module in model.named_modules():
        if isinstance(module, OptimizedModule) or module._compiled_call_impl is not None:
            warnings.warn(
                f"torch.compile has no effect on {name or 'the model'} inside of a parallel network: "
                "operations on split tensors are not compiled",
                stacklevel=3,
            )
            return
