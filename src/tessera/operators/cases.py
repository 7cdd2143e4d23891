"""The axes of operator cases (backend, size, dtype, …), and their expansion into cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from tessera.axes import Axes, Axis, group_options, parse_int
from tessera.device import CPU, parse_device
from tessera.device.timer import AUTO, InFlight
from tessera.errors import TesseraError
from tessera.operators.backends import BACKENDS, get_backend_entry
from tessera.operators.catalogue import find_operators
from tessera.operators.catalogue.fused import list_fusions
from tessera.operators.operator import SIZES, Operator
from tessera.operators.skews import ALL_SKEWS
from tessera.results.record import Case

PASSES = ("forward", "backward", "both")
DTYPES = ("float32", "float64", "bfloat16", "float16")
FUSION_METHODS = ("compile", "library")
# metrics of operator records
METRIC_NAMES = (
    "time", "floor", "p25", "p90", "p99", "mad", "cpu_time", "page_faults", "disturbed", "gflops", "bandwidth", "work",
    "roofline", "launch_overhead", "allocated", "peak_allocated", "peak_resident", "unfused", "kept", "gain",
    "gain_low", "gain_high", "allocator_share",
)  # fmt: skip
# sources of cases
SOURCE_CATALOGUE, SOURCE_OPINFO, SOURCE_MODEL, SOURCE_SUITE, SOURCE_TABLE = (
    "the catalogue",
    "--source opinfo",
    "--from-model",
    "--suite",
    "--table",
)
ALL_SIZES = "all"  # value of the axis `size` that selects every size of the source
GROUP_INPUTS = "backend and inputs"


def parse_in_flight(text: str) -> InFlight:
    """Parse a number of calls in flight, or `auto`."""
    return AUTO if text == AUTO else parse_int(text)


def check_in_flight(value: InFlight) -> None:
    """Raise an error for a value that is neither `auto` nor a positive number."""
    if value != AUTO and not (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        raise TesseraError("--in-flight", got=value, allowed="auto, or 1 or more")


_declare_axis = partial(Axis, several=True)
AXES = Axes(
    "ops",
    group_options(
        GROUP_INPUTS,
        _declare_axis(
            name="backend",
            choices=tuple(BACKENDS),
            default="torch",
            applies_to=(SOURCE_CATALOGUE, SOURCE_TABLE),
            help="frameworks that run the operators",
        ),
        _declare_axis(
            name="size",
            choices=(*SIZES, ALL_SIZES),
            default=("small", "medium"),
            applies_to=(SOURCE_CATALOGUE, SOURCE_OPINFO),
            help="sizes of the inputs",
        ),
        _declare_axis(
            name="pass",
            choices=PASSES,
            default=("forward", "backward"),
            applies_to=(SOURCE_CATALOGUE, SOURCE_OPINFO, SOURCE_MODEL, SOURCE_TABLE),
            help="passes to time",
        ),
        _declare_axis(
            name="dtype",
            choices=DTYPES,
            default="float32",
            applies_to=(SOURCE_CATALOGUE, SOURCE_OPINFO, SOURCE_MODEL, SOURCE_TABLE),
            help="element types of the inputs",
        ),
        _declare_axis(
            name="skew",
            choices=("", *ALL_SKEWS),
            default="",
            in_key="unless_default",
            applies_to=(SOURCE_CATALOGUE,),
            help="unusual values or layouts of the inputs",
        ),
        _declare_axis(
            name="cache",
            choices=("hot", "cold"),
            default="hot",
            in_key="unless_default",
            applies_to=(SOURCE_CATALOGUE,),
            help="state of the processor's caches before a call",
        ),
        _declare_axis(
            name="device",
            parse=parse_device,
            check=parse_device,
            default=CPU,
            in_key="unless_default",
            applies_to=(SOURCE_CATALOGUE,),
            help="devices that compute: cpu, or torch's accelerator (cuda:0, xpu, mps, …), on torch and compile",
        ),
        _declare_axis(
            name="in_flight",
            parse=parse_in_flight,
            check=check_in_flight,
            default=AUTO,
            in_key="unless_default",
            metavar="N,…",
            applies_to=(SOURCE_CATALOGUE,),
            help="calls launched between two marks of an accelerator; 1 times each call alone, on an idle device",
        ),
        _declare_axis(
            name="fusion",
            choices=FUSION_METHODS,
            default=FUSION_METHODS,
            applies_to=(SOURCE_CATALOGUE,),
            help="fused kernels that an operator of the category `fused` is compared with, forward, on torch",
        ),
    ),
)


def cases(
    names: Sequence[str] = (),
    *,
    category: Sequence[str] = (),
    passes: Sequence[str] = (),
    inputs: Mapping[str, Any] | None = None,
    seed: int = 0,
    **axes: Sequence[str],
) -> list[Case]:
    """Return the cases of every matching operator: one case per combination of axis values.

    The keywords in `axes` are names of `AXES`, except that `pass` is spelled `passes`. An operator or a backend without
    gradients has a forward pass only. An operator of the category `fused` has one forward case per value of
    `fusion` if all backends support that comparison; with an empty `fusion` its unfused steps are timed. `inputs`
    replaces shapes and arguments of the operator by name. The value of an input may be a list of shapes, one per case;
    lists of several inputs have the same length.

    >>> [case.key for case in cases(["add"], size=["small"], passes=["forward"])]
    ['ops/add[backend=torch,dtype=float32,pass=forward,seed=0,size=small]']
    """
    if isinstance(names, str) or isinstance(category, str):
        raise TesseraError("names and categories of operators must be lists", got=names or category)
    variants = split_shape_lists(inputs or {})
    if len(variants) > 1:
        given = {"category": category, "passes": passes, "seed": seed, **axes}
        several = [case for variant in variants for case in cases(names, inputs=variant, **given)]  # type: ignore[arg-type]
        return list({case.key: case for case in several}.values())
    inputs = variants[0]
    values = {**axes, **({"pass": passes} if passes else {})}
    fusion = values.pop("fusion", AXES["fusion"].default_values)
    AXES.check_values(values | ({"fusion": fusion} if fusion else {}))
    if seed < 0:
        raise TesseraError("invalid seed", got=seed, allowed="0 or more")
    chosen = {axis.name: values.get(axis.name) or axis.default_values for axis in AXES.without("fusion")}
    chosen["size"] = SIZES if ALL_SIZES in chosen["size"] else chosen["size"]
    changes = {}
    if inputs:
        changes["inputs"] = {name: list(v) if isinstance(v, tuple) else v for name, v in inputs.items()}
    chosen["device"] = list(dict.fromkeys(map(parse_device, chosen["device"])))
    _check_devices(chosen)
    expanded = [
        params | changes | {"seed": seed}
        for params in AXES.without("fusion").expand(chosen)
        if params["device"] == CPU or get_backend_entry(params["backend"]).uses_devices
    ]
    selected = []
    for operator in find_operators(names, category):
        for size in chosen["size"]:
            operator.get_inputs(size, inputs)  # raises an error for an unknown input
        allowed = {backend: _select_passes(operator, backend, chosen["pass"]) for backend in chosen["backend"]}
        for params in expanded:
            if params["pass"] in allowed[params["backend"]]:
                choices = fusion if params["device"] == CPU else ()
                for fused in _select_fusions(operator, chosen["backend"], params["pass"], choices):
                    full = {**AXES.omit_defaults(params), **fused}
                    if params["device"] == CPU:
                        full.pop("in_flight", None)
                    selected.append(Case(feature="ops", name=operator.name, params=full))
    return list({case.key: case for case in selected}.values())


def split_shape_lists(inputs: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one mapping per element of lists of shapes.

    >>> split_shape_lists({"lhs": [[1, 2], [3, 4]], "rhs": [5, 6]})
    [{'lhs': [1, 2], 'rhs': [5, 6]}, {'lhs': [3, 4], 'rhs': [5, 6]}]
    """
    lists = {name: value for name, value in inputs.items() if _is_list_of_shapes(value)}
    lengths = {len(value) for value in lists.values()}
    if len(lengths) > 1:
        counts = ", ".join(f"{name}: {len(value)}" for name, value in lists.items())
        raise TesseraError("lists of shapes must have the same length", got=counts)
    count = lengths.pop() if lengths else 1
    return [{name: value[n] if name in lists else value for name, value in inputs.items()} for n in range(count)]


def _is_list_of_shapes(value: Any) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(one, list | tuple) for one in value)


def _check_devices(chosen: Mapping[str, Sequence[Any]]) -> None:
    """Raise an error for values of `device`, `in_flight`, `backend` and `cache` that exclude each other."""
    accelerators = [name for name in chosen["device"] if name != CPU]
    if not accelerators and list(chosen["in_flight"]) != [AUTO]:
        raise TesseraError("--in-flight requires an accelerator", got=",".join(chosen["device"]), do="add --device")
    if CPU not in chosen["device"]:
        for backend in chosen["backend"]:
            if not get_backend_entry(backend).uses_devices:
                able = [name for name, entry in BACKENDS.items() if entry.uses_devices]
                raise TesseraError(
                    f"the backend does not support --device {accelerators[0]}", got=backend, allowed=able
                )
    if "cold" in chosen["cache"] and any(number not in (AUTO, 1) for number in chosen["in_flight"]):
        raise TesseraError("--in-flight above 1 does not support --cache cold", got=chosen["in_flight"])


def _select_passes(operator: Operator, backend: str, passes: Sequence[str]) -> Sequence[str]:
    """Return the requested passes that a backend supports for an operator; if it supports none, all of them.

    Unsupported passes are refused later, with a reason in the record.
    """
    if operator.differentiable and get_backend_entry(backend).differentiates:
        return passes
    return [name for name in passes if name == "forward"] or passes


def _select_fusions(
    operator: Operator, backends: Sequence[str], pass_name: str, fusion: Sequence[str]
) -> Sequence[Mapping[str, str]]:
    """Return the `fusion` parameter of each case; one empty mapping if the cases do not compare fusions."""
    possible = list_fusions(operator.name) if operator.category == "fused" else ()
    comparable = all(get_backend_entry(name).measures_fusion for name in backends)
    if not possible or not comparable or not fusion or pass_name != "forward":
        return ({},)
    return [{"fusion": name} for name in possible if name in fusion]
