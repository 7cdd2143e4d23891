"""Operators as a model calls them: each distinct call of a forward pass is a case of its own.

A case holds the operator, the shapes and all other arguments, so that it can be run again without the model, and
`calls`, how often the model makes it. Checked against the same call in double precision.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tessera.errors import Refused, TesseraError
from tessera.models import image_size_of
from tessera.operators.cases import DTYPES, PASSES
from tessera.operators.ready import Ready
from tessera.results.record import Case, Record

if TYPE_CHECKING:
    from tessera.operators.backends.backend import Prepared
    from tessera.operators.sources.torch_call import TorchCall

CHANNELS = 3
WHOLE = "whole"  # the name of the case that is the model itself
UNSET = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")
STATISTICS = ("running_mean", "running_var")  # arguments of a model's normalisations that have no gradient


def cases(
    model: str,
    *,
    batch_size: int = 1,
    image_size: int | None = None,
    passes: Sequence[str] = ("forward",),
    dtype: Sequence[str] = ("float32",),
    seed: int = 0,
) -> list[Case]:
    """The distinct operator calls of a model, by its name or `module:callable`, on square images."""
    image_size = image_size_of(model) if image_size is None else image_size
    import torch

    from tessera.models import lay_out
    from tessera.operators.sources.capture import capture

    for what, got, allowed in (("pass", passes, PASSES), ("dtype", dtype, DTYPES)):
        for value in got:
            if value not in allowed:
                raise TesseraError(f"unknown {what}", got=value, allowed=allowed)
    if image_size < 1 or batch_size < 1:
        raise TesseraError("an image and a batch have a size", got=(image_size, batch_size), allowed="1 or more")
    module = lay_out(model).eval()
    shape = (batch_size, CHANNELS, image_size, image_size)
    known = {"backend": "torch", "source": "model", "model": model, "batch_size": batch_size, "image_size": image_size}
    return [
        Case(
            feature="ops",
            name=call.name,
            params={
                **known,
                "pass": which,
                "dtype": kind,
                "seed": seed,
                "arguments": call.arguments,
                "keywords": call.keywords,
                "calls": call.calls,
            },
        )
        for kind in dtype
        for call in capture(module, shape, getattr(torch, kind))
        for which in passes
    ]


def whole(calls: Sequence[Case]) -> list[Case]:
    """The forward pass of the model itself, for each dtype of its calls: what their sum is held against."""
    found = {}
    for case in calls:
        if case.params["pass"] == "forward":
            params = {**case.params, "arguments": [], "keywords": {}, "calls": 1}
            found[case.params["dtype"]] = Case(feature="ops", name=WHOLE, params=params)
    return list(found.values())


def is_whole(case: Case) -> bool:
    """Whether a case is the model itself, rather than a call of it."""
    return case.name == WHOLE and case.params.get("source") == "model"


def ready(case: Case) -> Ready:
    """The case's call on random tensors, checked. What it writes in place is put back before each sample."""
    if is_whole(case):
        return _whole(case)
    from tessera.operators.attempt import attempting
    from tessera.operators.sources import torch_call

    which, dtype = str(case.params["pass"]), str(case.params["dtype"])
    with attempting(f"{case.name} does not run", got=which):
        call = _call(case)
        wide, kept = call.widened(), [tensor.clone() for tensor in call.written]
        found = call.prepare(which, dtype)
        note = _check(call, wide, found, which=which, dtype=dtype)

    def restore() -> None:
        for tensor, values in zip(call.written, kept, strict=True):
            tensor.copy_(values)

    flops, moved = torch_call.flops(found.call), torch_call.moved(call, found, which)
    restore()
    return Ready(
        call=found.call,
        dtype=dtype,
        flops=flops,
        moved=moved,
        before=restore if kept else None,
        notes=(note,),
    )


def _whole(case: Case) -> Ready:
    import torch

    from tessera.models import build
    from tessera.operators.attempt import attempting
    from tessera.operators.sources import torch_call

    params, dtype = case.params, str(case.params["dtype"])
    seed, kind = int(params["seed"]), getattr(torch, dtype)
    shape = (int(params["batch_size"]), CHANNELS, int(params["image_size"]), int(params["image_size"]))
    with attempting(f"{params['model']} does not run", got=f"{shape[0]} images of {shape[2]}x{shape[3]}"):
        module = build(str(params["model"]), seed=seed).to(kind)
        image = torch.rand(shape, generator=torch.Generator().manual_seed(seed)).to(kind)

        def call() -> Any:
            with torch.no_grad():
                return module(image)

        flops = torch_call.flops(call)
    note = "not checked: it is the model itself, that its calls are held against"
    return Ready(call=call, dtype=dtype, flops=flops, moved=0.0, notes=(note,))


def _check(call: TorchCall, wide: TorchCall, found: Prepared, *, which: str, dtype: str) -> str:
    """Hold a pass against the same one in double precision, and say so."""
    from tessera.operators.sources.double_precision import check_against
    from tessera.operators.sources.torch_call import is_random

    if is_random(call) or call.name.split(".")[1] in UNSET:
        return "not checked: its numbers are random, or whatever was in memory"
    if dtype == "float64":
        return "not checked: no dtype is wider"
    return "checked against the same call in double precision" + check_against(wide, found, which=which, dtype=dtype)


def _call(case: Case) -> TorchCall:
    """The operator of a case with its arguments; a backward pass is by all of its floating-point tensors."""
    import torch

    from tessera.operators.sources.arguments import from_json
    from tessera.operators.sources.torch_call import TorchCall

    overload = _overload(case.name)
    schema, backward = overload._schema, case.params["pass"] != "forward"
    if backward and schema.is_mutable:
        raise Refused(f"{case.name} works in place", got=case.params["pass"], allowed="forward")
    generator = torch.Generator().manual_seed(int(case.params["seed"]))
    keywords = case.params["keywords"]
    args, values = from_json([case.params["arguments"], list(keywords.values())], generator)
    kwargs = dict(zip(keywords, values, strict=True))
    given = {argument.name: value for argument, value in zip(schema.arguments, args, strict=False)} | kwargs
    changed = [a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    call = TorchCall(
        name=case.name,
        function=overload,
        args=tuple(args),
        kwargs=kwargs,
        written=tuple(given[name] for name in changed if isinstance(given.get(name), torch.Tensor)),
    )
    if backward:
        constant = [id(given.get(name)) for name in STATISTICS]
        for tensor in call.tensors().values():
            floats = tensor.is_floating_point() or tensor.is_complex()
            tensor.requires_grad_(floats and id(tensor) not in constant)
    return call


def _overload(name: str) -> Any:
    """The operator of a name such as `aten.convolution` or `aten.add.Tensor`."""
    import torch

    namespace, operator, *overload = name.split(".")
    try:
        return getattr(getattr(getattr(torch.ops, namespace), operator), overload[0] if overload else "default")
    except AttributeError:
        raise Refused("this torch has no such operator", got=name, do="import what registers it") from None


def described(case: Case) -> str:
    """The arguments of a case in short, for tables: tensors as their shapes."""
    return ", ".join(map(_short, case.params["arguments"]))


def _short(argument: Any) -> str:
    if isinstance(argument, dict):
        if "tensor" in argument:
            return "x".join(map(str, argument["tensor"])) or "scalar"
        return str(next(iter(argument.values())))
    return f"[{', '.join(map(_short, argument))}]" if isinstance(argument, list) else str(argument)


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one operator takes of a model's pass: calls, seconds of all of them, and the part of the whole."""

    name: str
    calls: int
    seconds: float
    share: float


def shares(records: Iterable[Record], which: str = "forward") -> list[Share]:
    """Which operators a model's time goes to, the most expensive first: time x calls, summed by operator.

    The sum is that of the operators alone: what Python does between them is not in it.
    """
    calls: dict[str, int] = {}
    seconds: dict[str, float] = {}
    for record in records:
        params = record.case.params
        counts = record.status == "ok" and params.get("source") == "model" and params["pass"] == which
        if counts and not is_whole(record.case):
            name, times = record.case.name, int(params["calls"])
            calls[name] = calls.get(name, 0) + times
            seconds[name] = seconds.get(name, 0.0) + times * record.metrics["time"].value
    whole = sum(seconds.values())
    found = [Share(name=name, calls=calls[name], seconds=s, share=s / whole) for name, s in seconds.items()]
    return sorted(found, key=lambda share: share.seconds, reverse=True)


def difference(records: Sequence[Record]) -> list[str]:
    """The sum of the calls beside the whole, one line for each dtype of which both were measured."""
    lines = []
    for record in records:
        if is_whole(record.case) and record.status == "ok":
            dtype, took = record.case.params["dtype"], record.metrics["time"].value
            added = sum(share.seconds for share in shares(r for r in records if r.case.params.get("dtype") == dtype))
            lines.append(
                f"{dtype}: the calls add up to {added * 1e3:.4g} ms, the whole takes {took * 1e3:.4g} ms: "
                f"{(took - added) / took:+.1%} of it is not in the calls (Python between them; and caches, which one "
                "call alone finds as it left them itself)"
            )
    return lines
