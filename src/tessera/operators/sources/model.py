"""Cases from the operator calls of a model: each distinct operator call of a forward pass is one case.

A case holds the operator, the shapes and all other arguments, so that it runs without the model, and `calls`, the
number of times that the model makes this call. Results are compared with the same call in double precision.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tessera.errors import Refused, TesseraError
from tessera.models import get_image_size
from tessera.operators.cases import DTYPES, PASSES
from tessera.operators.preparation import PreparedPass
from tessera.results.record import Case, Record

if TYPE_CHECKING:
    from tessera.operators.backends.backend import PreparedOperator
    from tessera.operators.sources.torch_call import TorchCall

IMAGE_CHANNELS = 3
WHOLE_MODEL_NAME = "whole"  # name of the case that runs the whole model
PROFILE_KEY = "profile"  # in the details of that case: the share of each operator in the time, by torch's profiler
MAX_REFUSED_SHARE = 0.1  # refused calls with a larger share of the time make the command fail
UNINITIALISED_OPERATORS = ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided")
RUNNING_STATISTICS = ("running_mean", "running_var")  # arguments of normalisation operators that receive no gradient


def cases(
    model: str,
    *,
    batch_size: int = 1,
    image_size: int | None = None,
    passes: Sequence[str] = ("forward",),
    dtype: Sequence[str] = ("float32",),
    seed: int = 0,
) -> list[Case]:
    """Return a case for each distinct operator call of a model (a name or `module:callable`) on square images."""
    image_size = get_image_size(model) if image_size is None else image_size
    import torch

    from tessera.models import build_layers
    from tessera.operators.sources.capture import capture_calls

    for what, got, allowed in (("pass", passes, PASSES), ("dtype", dtype, DTYPES)):
        for value in got:
            if value not in allowed:
                raise TesseraError(f"unknown {what}", got=value, allowed=allowed)
    if image_size < 1 or batch_size < 1:
        raise TesseraError(
            "--image-size and --batch-size must be positive", got=(image_size, batch_size), allowed="1 or more"
        )
    module = build_layers(model).eval()
    shape = (batch_size, IMAGE_CHANNELS, image_size, image_size)
    shared_params = {
        "backend": "torch",
        "source": "model",
        "model": model,
        "batch_size": batch_size,
        "image_size": image_size,
    }
    return [
        Case(
            feature="ops",
            name=call.name,
            params={
                **shared_params,
                "pass": pass_name,
                "dtype": kind,
                "seed": seed,
                "arguments": call.arguments,
                "keywords": call.keywords,
                "calls": call.calls,
            },
        )
        for kind in dtype
        for call in capture_calls(module, shape, getattr(torch, kind))
        for pass_name in passes
    ]


def make_whole_model_cases(calls: Sequence[Case]) -> list[Case]:
    """Return cases that run the whole forward pass, one per dtype in `calls`, to compare with the sum of the calls."""
    whole_cases = {}
    for case in calls:
        if case.params["pass"] == "forward":
            params = {**case.params, "arguments": [], "keywords": {}, "calls": 1}
            whole_cases[case.params["dtype"]] = Case(feature="ops", name=WHOLE_MODEL_NAME, params=params)
    return list(whole_cases.values())


def is_whole_model(case: Case) -> bool:
    """Return whether a case runs the whole model rather than one operator call."""
    return case.name == WHOLE_MODEL_NAME and case.params.get("source") == "model"


def prepare_case(case: Case) -> PreparedPass:
    """Prepare and check the call of a case on random tensors.

    Inputs that an in-place call overwrites are restored before each timing sample.
    """
    if is_whole_model(case):
        return _prepare_whole_model(case)
    from tessera.operators.refusal import refusing_errors
    from tessera.operators.sources import torch_call

    pass_name, dtype = str(case.params["pass"]), str(case.params["dtype"])
    with refusing_errors(f"{case.name} does not run", got=pass_name):
        call = _build_call(case)
        wide, originals = call.widen(), [tensor.clone() for tensor in call.written]
        prepared = call.prepare(pass_name, dtype)
        note = _check_results(call, wide, prepared, pass_name=pass_name, dtype=dtype)

    def restore() -> None:
        for tensor, values in zip(call.written, originals, strict=True):
            tensor.copy_(values)

    flops, moved = torch_call.count_flops(prepared.call), torch_call.count_moved_bytes(call, prepared, pass_name)
    restore()
    return PreparedPass(
        call=prepared.call, dtype=dtype, flops=flops, moved=moved, before=restore if originals else None, notes=(note,)
    )


def _prepare_whole_model(case: Case) -> PreparedPass:
    import torch

    from tessera.models import build
    from tessera.operators.refusal import refusing_errors
    from tessera.operators.sources import torch_call

    params, dtype = case.params, str(case.params["dtype"])
    seed, kind = int(params["seed"]), getattr(torch, dtype)
    shape = (int(params["batch_size"]), IMAGE_CHANNELS, int(params["image_size"]), int(params["image_size"]))
    with refusing_errors(f"{params['model']} does not run", got=f"{shape[0]} images of {shape[2]}x{shape[3]}"):
        module = build(str(params["model"]), seed=seed).to(kind)
        image = torch.rand(shape, generator=torch.Generator().manual_seed(seed)).to(kind)

        def call() -> Any:
            with torch.no_grad():
                return module(image)

        flops = torch_call.count_flops(call)
        details = {PROFILE_KEY: torch_call.profile_shares(call)}
    note = "not checked: the whole model is the baseline of its calls"
    return PreparedPass(call=call, dtype=dtype, flops=flops, moved=0.0, notes=(note,), details=details)


def _check_results(call: TorchCall, wide: TorchCall, prepared: PreparedOperator, *, pass_name: str, dtype: str) -> str:
    """Compare a pass with its result in double precision, and return a note about the comparison."""
    from tessera.operators.sources.double_precision import check_against_double
    from tessera.operators.sources.torch_call import is_random

    if is_random(call) or call.name.split(".")[1] in UNINITIALISED_OPERATORS:
        return "not checked: the output is random or uninitialised"
    if dtype == "float64":
        return "not checked: there is no wider dtype"
    return "checked against the same call in double precision" + check_against_double(
        wide, prepared, pass_name=pass_name, dtype=dtype
    )


def _build_call(case: Case) -> TorchCall:
    """Build the call of a case; a backward pass differentiates with respect to all floating-point tensors."""
    import torch

    from tessera.operators.sources.arguments import from_json
    from tessera.operators.sources.torch_call import TorchCall

    overload = _find_overload(case.name)
    schema, backward = overload._schema, case.params["pass"] != "forward"
    if backward and schema.is_mutable:
        raise Refused(
            f"{case.name} overwrites an input, so it has no backward pass", got=case.params["pass"], allowed="forward"
        )
    generator = torch.Generator().manual_seed(int(case.params["seed"]))
    keywords = case.params["keywords"]
    args, values = from_json([case.params["arguments"], list(keywords.values())], generator)
    kwargs = dict(zip(keywords, values, strict=True))
    named_arguments = {argument.name: value for argument, value in zip(schema.arguments, args, strict=False)} | kwargs
    changed = [a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    call = TorchCall(
        name=case.name,
        function=overload,
        args=tuple(args),
        kwargs=kwargs,
        written=tuple(named_arguments[name] for name in changed if isinstance(named_arguments.get(name), torch.Tensor)),
    )
    if backward:
        constant = [id(named_arguments.get(name)) for name in RUNNING_STATISTICS]
        for tensor in call.list_tensors().values():
            floats = tensor.is_floating_point() or tensor.is_complex()
            tensor.requires_grad_(floats and id(tensor) not in constant)
    return call


def _find_overload(name: str) -> Any:
    """Return the torch operator with a name such as `aten.convolution` or `aten.add.Tensor`."""
    import torch

    namespace, operator, *overload = name.split(".")
    try:
        return getattr(getattr(getattr(torch.ops, namespace), operator), overload[0] if overload else "default")
    except AttributeError:
        raise Refused(
            "the installed torch does not have this operator", got=name, do="import the module that registers it"
        ) from None


def describe_arguments(case: Case) -> str:
    """Format the arguments of a case for a table; a tensor is shown as its shape."""
    return ", ".join(map(_format_argument, case.params["arguments"]))


def _format_argument(argument: Any) -> str:
    if isinstance(argument, dict):
        if "tensor" in argument:
            return "x".join(map(str, argument["tensor"])) or "scalar"
        return str(next(iter(argument.values())))
    return f"[{', '.join(map(_format_argument, argument))}]" if isinstance(argument, list) else str(argument)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorShare:
    """One operator's share of a model's time: number of calls, total seconds, fraction of the time of all operators."""

    name: str
    calls: int
    seconds: float
    share: float


def compute_shares(records: Iterable[Record], pass_name: str = "forward") -> list[OperatorShare]:
    """Return each operator's share of a model's time (time x calls), the largest first.

    The shares are fractions of the total operator time, which excludes Python overhead between operators.
    """
    calls: dict[str, int] = {}
    seconds: dict[str, float] = {}
    for record in records:
        params = record.case.params
        counts = record.status == "ok" and params.get("source") == "model" and params["pass"] == pass_name
        if counts and not is_whole_model(record.case):
            name, times = record.case.name, int(params["calls"])
            calls[name] = calls.get(name, 0) + times
            seconds[name] = seconds.get(name, 0.0) + times * record.metrics["time"].value
    total = sum(seconds.values())
    shares = [OperatorShare(name=name, calls=calls[name], seconds=s, share=s / total) for name, s in seconds.items()]
    return sorted(shares, key=lambda share: share.seconds, reverse=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedCalls:
    """The calls of a network that were not measured: their number, and their share of its time by torch's profiler."""

    dtype: str
    calls: int
    total_calls: int
    shares: dict[str, float]

    @property
    def share(self) -> float:
        return sum(self.shares.values())


def find_refused_calls(records: Sequence[Record]) -> list[RefusedCalls]:
    """Return the forward calls without a time, one entry per dtype in which the whole network was measured."""
    found = []
    for whole in records:
        if not is_whole_model(whole.case) or whole.status != "ok":
            continue
        dtype, profile = whole.case.params["dtype"], whole.details.get(PROFILE_KEY, {})
        calls = [
            record
            for record in records
            if record.case.params.get("source") == "model"
            and not is_whole_model(record.case)
            and (record.case.params["dtype"], record.case.params["pass"]) == (dtype, "forward")
        ]
        refused = [record for record in calls if record.status != "ok"]
        names = dict.fromkeys(record.case.name for record in refused)
        found.append(
            RefusedCalls(
                dtype=dtype,
                calls=sum(int(record.case.params["calls"]) for record in refused),
                total_calls=sum(int(record.case.params["calls"]) for record in calls),
                shares={name: float(profile.get(_get_profiler_name(name), 0.0)) for name in names},
            )
        )
    return found


def _get_profiler_name(name: str) -> str:
    """Return the profiler's name of a torch operator.

    >>> _get_profiler_name("aten.add.Tensor")
    'aten::add'
    """
    namespace, operator, *_ = name.split(".")
    return f"{namespace}::{operator}"


def describe_difference(records: Sequence[Record]) -> list[str]:
    """Compare the summed time of the calls with the time of the whole model; return lines for each dtype with both."""
    lines = []
    refused = {one.dtype: one for one in find_refused_calls(records) if one.calls}
    for record in records:
        if is_whole_model(record.case) and record.status == "ok":
            dtype, took = record.case.params["dtype"], record.metrics["time"].value
            added = sum(
                share.seconds for share in compute_shares(r for r in records if r.case.params.get("dtype") == dtype)
            )
            if missing := refused.get(dtype):
                names = ", ".join(f"{name} {share:.1%}" for name, share in missing.shares.items())
                lines.append(
                    f"{dtype}: {missing.calls} of {missing.total_calls} calls were not measured; by torch's profiler "
                    f"they take {missing.share:.1%} of the model's time: {names}"
                )
            outside = took - added - took * (missing.share if missing else 0.0)
            lines.append(
                f"{dtype}: the calls add up to {added * 1e3:.4g} ms, the whole model takes {took * 1e3:.4g} ms: "
                f"{outside / took:+.1%} of it is outside the calls (Python between them, and caches: a call "
                "that is measured alone finds its own data there)"
            )
    return lines
