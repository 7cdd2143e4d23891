"""From a case to something that can be timed: inputs made, backend asked, outputs and gradients checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tessera.errors import Refused
from tessera.measure.room import available
from tessera.operators import backends
from tessera.operators.attempt import attempting
from tessera.operators.backends.backend import Prepared, Request
from tessera.operators.catalogue import find
from tessera.operators.check import check_gradients, check_outputs, reference_outputs
from tessera.operators.draws import Draw
from tessera.operators.inputs import make_arrays, wide_names
from tessera.operators.operator import Input, Operator
from tessera.operators.skews import ON_KINKS, check_kept, reshaped
from tessera.results.record import Case

COPIES = 6  # of the inputs that a case holds at worst: themselves, in float64 for the reference, their gradients


def callable_of(case: Case) -> Callable[[], Any]:
    """The case's pass on its inputs, checked and ready to be called."""
    if "fusion" in case.params:
        return _fused(case)
    return prepare(case)[1].call


def unchecked_callable_of(case: Case) -> Callable[[], Any]:
    """The same without the check, for launches after a first that was found right."""
    if "fusion" in case.params:
        return _fused(case)
    request = request_of(case)
    name = str(case.params["backend"])
    return backends.backend(name).prepare(request, backends.expression(name, case.name)).call


def _fused(case: Case) -> Callable[[], Any]:
    from tessera.operators.fusion import programs

    return programs(request_of(case), str(case.params["fusion"]))["fused"]


def prepare(case: Case) -> tuple[Request, Prepared]:
    """Make the case's operator ready on its backend, and hold what it gives against the reference."""
    name = str(case.params["backend"])
    expression = backends.expression(name, case.name)
    with attempting(f"{case.name} does not run on {name}"):
        request = request_of(case)
        if undifferentiated(case):
            checked(request_of(without_skew(case)), name, expression)
            return request, checked(request, name, expression, gradients=False)
        return request, checked(request, name, expression)


def undifferentiated(case: Case) -> bool:
    """Whether the gradients of a case are checked without its skew: along its values nothing can be differenced."""
    return case.params["pass"] != "forward" and case.params.get("skew") in ON_KINKS


def without_skew(case: Case) -> Case:
    return replace(case, params={name: value for name, value in case.params.items() if name != "skew"})


def checked(request: Request, backend: str, expression: str, *, gradients: bool = True) -> Prepared:
    """An expression made ready on a backend, after its outputs and gradients were found right."""
    operator = request.operator
    wanted = reference_outputs(operator, request.arrays, request.attributes)
    names = wide_names(request.arrays, request.attributes)  # before an operator in place changes the arrays
    prepared = backends.backend(backend).prepare(request, expression)
    check_outputs(operator, prepared.outputs, wanted, dtype=request.dtype, names=names)
    # random outputs cannot be held against gradients
    if gradients and prepared.output_gradients and operator.check == "values":
        check_gradients(request, prepared)
    return prepared


def inputs_of(case: Case) -> tuple[Operator, dict[str, Input], dict[str, Any]]:
    """The operator of a case, and its inputs and other arguments as the case wants them."""
    operator = find([case.name])[0]
    given = case.params.get("inputs")
    inputs = reshaped(operator.inputs(str(case.params["size"]), given), str(case.params.get("skew", "")))
    if initializer := case.params.get("initializer"):
        inputs = {n: replace(one, draw=Draw(initializer)) if one.kind == "float" else one for n, one in inputs.items()}
    return operator, inputs, operator.attributes_for({name: one.shape for name, one in inputs.items()}, given)


def request_of(case: Case) -> Request:
    """The inputs and arguments that a case stands for; inputs that cannot fit into memory are refused."""
    operator, inputs, attributes = inputs_of(case)
    which, dtype, seed = (case.params[name] for name in ("pass", "dtype", "seed"))
    check_kept(operator, str(case.params.get("skew", "")))
    if dtype not in operator.dtypes:
        raise Refused(f"{case.name} has no such dtype", got=dtype, allowed=operator.dtypes)
    needed, free = COPIES * sum(one.nbytes for one in inputs.values()), available()
    if needed > free:
        gibi = [f"{value / 2**30:.1f} GiB" for value in (needed, free)]
        raise Refused("the inputs are too large for memory", got=gibi[0], allowed=f"up to {gibi[1]}")
    return Request(
        operator=operator,
        inputs=inputs,
        arrays=make_arrays(inputs, dtype=dtype, seed=seed, skew=str(case.params.get("skew", ""))),
        attributes=attributes,
        dtype=dtype,
        which=which,
        seed=seed,
    )
