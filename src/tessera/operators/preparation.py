"""Prepare a case for timing: draw inputs, build the operator on its backend, check outputs and gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tessera.errors import Refused
from tessera.measure.memory_limits import get_available_bytes
from tessera.operators import backends, sources
from tessera.operators.arrays import Array
from tessera.operators.backends.backend import OperatorRequest, PreparedOperator
from tessera.operators.catalogue import find_operators
from tessera.operators.check import (
    OUTPUT_NOTES,
    OutputKind,
    check_gradients,
    check_outputs,
    classify_output,
    compute_reference_outputs,
)
from tessera.operators.draws import Draw
from tessera.operators.inputs import make_arrays, widen_inputs
from tessera.operators.operator import Input, Operator, OperatorCall
from tessera.operators.refusal import refusing_errors
from tessera.operators.skews import NON_DIFFERENTIABLE_SKEWS, apply_shape_skew, check_not_overwritten
from tessera.results.record import Case

# upper bound of memory as a multiple of the inputs: the inputs, float64 copies for the reference, and gradients
INPUT_COPIES = 6


def find_version(case: Case) -> str:
    """Return the benchmark version of the operator of a case (version hook)."""
    return find_operators([case.name])[0].version


def prepare_operator(case: Case) -> tuple[OperatorRequest, PreparedOperator]:
    """Build the operator of a case on its backend, and compare its outputs and gradients with the reference."""
    name = str(case.params["backend"])
    expression = backends.get_expression(name, case.name)
    with refusing_errors(f"{case.name} does not run on {name}"):
        request = build_request(case)
        if skip_gradient_check(case):
            prepare_checked(build_request(case.without("skew")), name, expression)
            return request, prepare_checked(request, name, expression, gradients=False)
        return request, prepare_checked(request, name, expression)


def skip_gradient_check(case: Case) -> bool:
    """Return whether finite differences fail for a case because its skew has non-differentiable values.

    The gradients of such a case are checked on inputs without the skew.
    """
    return case.params["pass"] != "forward" and case.params.get("skew") in NON_DIFFERENTIABLE_SKEWS


def prepare_checked(
    request: OperatorRequest, backend: str, expression: str, *, gradients: bool = True
) -> PreparedOperator:
    """Build an expression on a backend and check its outputs and, unless `gradients=False`, its gradients."""
    operator = request.operator
    with refusing_errors(f"the reference of {operator.name} does not run"):
        wanted = compute_reference_outputs(operator, request.arrays, request.attributes)
    names = widen_inputs(request.arrays, request.attributes)  # copy before an in-place operator overwrites the inputs
    prepared = backends.load_backend(backend).prepare(request, expression)
    check_outputs(operator, prepared.outputs, wanted, dtype=request.dtype, names=names)
    # gradients of random outputs cannot be checked with finite differences
    if gradients and prepared.output_gradients and operator.check == "values":
        check_gradients(request, prepared)
    return prepared


def resolve_inputs(case: Case) -> tuple[Operator, dict[str, Input], dict[str, Any]]:
    """Return the operator of a case, its inputs and its attributes, with the overrides of the case applied."""
    operator = find_operators([case.name])[0]
    overrides = case.params.get("inputs")
    inputs = apply_shape_skew(
        operator.get_inputs(str(case.params["size"]), overrides), str(case.params.get("skew", ""))
    )
    if initializer := case.params.get("initializer"):
        draw = Draw(initializer)
        inputs = {name: replace(entry, draw=draw) if entry.kind == "float" else entry for name, entry in inputs.items()}
    shapes = {name: entry.shape for name, entry in inputs.items()}
    return operator, inputs, operator.get_attributes(shapes, overrides)


def build_request(case: Case) -> OperatorRequest:
    """Draw the inputs and resolve the arguments of a case; raise `Refused` if they do not fit into memory."""
    operator, inputs, attributes = resolve_inputs(case)
    pass_name, dtype, seed = (case.params[name] for name in ("pass", "dtype", "seed"))
    check_not_overwritten(operator, str(case.params.get("skew", "")))
    if dtype not in operator.dtypes:
        raise Refused(f"{case.name} does not support the dtype", got=dtype, allowed=operator.dtypes)
    needed, free = INPUT_COPIES * sum(entry.nbytes for entry in inputs.values()), get_available_bytes()
    if needed > free:
        gibi = [f"{value / 2**30:.1f} GiB" for value in (needed, free)]
        raise Refused("the inputs do not fit into the free memory", got=gibi[0], allowed=f"up to {gibi[1]}")
    return OperatorRequest(
        operator=operator,
        inputs=inputs,
        arrays=make_arrays(inputs, dtype=dtype, seed=seed, skew=str(case.params.get("skew", ""))),
        attributes=attributes,
        dtype=dtype,
        pass_name=pass_name,
        seed=seed,
        device=str(case.params.get("device", "cpu")),
    )


NO_RATES_NOTE = "no rates: FLOPs and bytes are not known for these shapes"
UNSKEWED_GRADIENTS_NOTE = "gradients checked without the skew: its values have no finite differences"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedPass:
    """A pass of a case that is checked and ready for timing, with the FLOPs and bytes of one call.

    `before`, if set, must be called before each sample to restore overwritten inputs. `output`, `notes` and `details`
    are copied to the record.
    """

    call: Callable[[], Any]
    dtype: str
    flops: float
    moved: float
    version: str = "1"
    before: Callable[[], Any] | None = None
    output: OutputKind | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def prepare_pass(case: Case) -> PreparedPass:
    """Prepare the pass of a case; the operator comes from the catalogue or from another source, such as OpInfo."""
    source = sources.find_source(case)
    if source is not None:
        return sources.prepare_case(source, case)
    request, prepared = prepare_operator(case)
    operator = request.operator
    flops, moved, output, notes = _count_pass_work(request, prepared)
    return PreparedPass(
        call=prepared.call,
        dtype=request.dtype,
        flops=flops,
        moved=moved,
        version=operator.version,
        output=output,
        notes=(*notes, UNSKEWED_GRADIENTS_NOTE) if skip_gradient_check(case) else notes,
    )


def _count_pass_work(
    request: OperatorRequest, prepared: PreparedOperator
) -> tuple[float, float, OutputKind | None, tuple[str, ...]]:
    """Return FLOPs, bytes, output kind (view or copy) and notes of a pass; zeros if the work cannot be counted."""
    try:
        flops, moved = count_request_work(request, prepared.outputs)
    except (ValueError, LookupError, ZeroDivisionError, StopIteration):
        return 0.0, 0.0, None, (NO_RATES_NOTE,)
    output = classify_output(request.operator, flops, moved, shared=prepared.shared)
    return flops, moved, output, (OUTPUT_NOTES[output],) if output else ()


def count_request_work(request: OperatorRequest, outputs: Sequence[Array]) -> tuple[float, float]:
    """Count the FLOPs and bytes of a pass; 16-bit values count two bytes, although NumPy stores them as float32."""
    narrow = request.dtype in ("bfloat16", "float16")

    def count_bytes(array: Array) -> int:
        return int(array.nbytes) // 2 if narrow and array.dtype.kind == "f" else int(array.nbytes)

    call = OperatorCall(
        shapes={name: entry.shape for name, entry in request.inputs.items()},
        attributes=request.attributes,
        outputs=tuple(out.shape for out in outputs),
        read={name: count_bytes(array) for name, array in request.arrays.items()},
        written=tuple(count_bytes(out) for out in outputs),
    )
    return request.operator.count_work(call, request.pass_name)
