"""The frameworks that operators run on, by name; none is imported before it is asked for."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec

from tessera.errors import MissingExtra, Refused, TesseraError
from tessera.launch.fresh import resolve
from tessera.operators.backends.backend import Backend
from tessera.results.record import Case


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A backend as it can be listed without importing its framework.

    `implementation` and `expressions` are `module:name`: the class of the backend, and a function that gives how it
    writes each operator that it has. `package` is what it imports, beside what it `needs`; `extra` brings both.
    `prefix` starts the lines of its results (`PT_Add_Forward_Time`). A framework that cannot live beside the others
    has an interpreter of its own, of the version `own_python` of Python, made from the pinned packages in
    `data/NAME.txt`. One that does not differentiate has forward passes only.
    """

    title: str
    prefix: str
    implementation: str
    expressions: str
    package: str
    extra: str = ""
    own_python: str = ""
    needs: tuple[str, ...] = ()
    differentiates: bool = True


BACKENDS = {
    "torch": Entry(
        title="PyTorch, eager",
        prefix="PT",
        implementation="tessera.operators.backends.torch_backend:TorchBackend",
        expressions="tessera.operators.catalogue:torch_expressions",
        package="torch",
    ),
    "compile": Entry(
        title="torch.compile",
        prefix="PTC",
        implementation="tessera.operators.backends.compile_backend:CompileBackend",
        expressions="tessera.operators.catalogue:torch_expressions",
        package="torch",
    ),
    "jax": Entry(
        title="JAX",
        prefix="JAX",
        implementation="tessera.operators.backends.jax_backend:JaxBackend",
        expressions="tessera.operators.backends.jax_expressions:jax_expressions",
        package="jax",
        extra="jax",
    ),
    "numpy": Entry(
        title="NumPy",
        prefix="NP",
        implementation="tessera.operators.backends.numpy_backend:NumpyBackend",
        expressions="tessera.operators.catalogue:numpy_expressions",
        package="numpy",
        differentiates=False,
    ),
    "onnxruntime": Entry(
        title="ONNX Runtime",
        prefix="ORT",
        implementation="tessera.operators.backends.onnxruntime_backend:OnnxRuntimeBackend",
        expressions="tessera.operators.backends.onnx_expressions:onnx_expressions",
        package="onnxruntime",
        needs=("onnx",),
        extra="onnxruntime",
        differentiates=False,
    ),
    "openvino": Entry(
        title="OpenVINO",
        prefix="OV",
        implementation="tessera.operators.backends.openvino_backend:OpenvinoBackend",
        expressions="tessera.operators.backends.openvino_expressions:openvino_expressions",
        package="openvino",
        extra="openvino",
        differentiates=False,
    ),
    "mxnet": Entry(
        title="MXNet",
        prefix="MX",
        implementation="tessera.operators.backends.mxnet_backend:MxnetBackend",
        expressions="tessera.operators.backends.mxnet_expressions:mxnet_expressions",
        package="mxnet",
        own_python="3.11",
    ),
}


def entry(name: str) -> Entry:
    if name not in BACKENDS:
        raise TesseraError("unknown backend", got=name, allowed=BACKENDS)
    return BACKENDS[name]


@cache
def expressions(name: str) -> Mapping[str, str]:
    """How a backend writes each operator that it has, by the operator's name."""
    found: Mapping[str, str] = resolve(entry(name).expressions)()
    return found


def expression(name: str, operator: str) -> str:
    """How a backend writes an operator; one that it lacks is refused."""
    if operator not in expressions(name):
        having = [other for other in BACKENDS if operator in expressions(other)]
        raise Refused(f"{entry(name).title} has no {operator}", do=f"it is in {', '.join(having)}")
    return expressions(name)[operator]


def interpreter(case: Case) -> str:
    """The Python that a case's backend needs where it has one of its own; else empty."""
    return python_of(str(case.params["backend"]))


def python_of(name: str) -> str:
    """The Python of a backend that has one of its own, which has to be set up; else empty."""
    from tessera.operators.backends.setup import own_python

    return str(own_python(name)) if entry(name).own_python else ""


def check_usable(name: str) -> None:
    """Refuse a backend that cannot run, and say what brings it: an extra, or setting its interpreter up."""
    found = entry(name)
    missing = [package for package in (found.package, *found.needs) if find_spec(package) is None]
    if not missing:
        return
    if found.extra:
        raise MissingExtra(missing[0], found.extra)
    if not found.own_python:
        raise TesseraError(f"{missing[0]} is not installed", got=sys.executable, do="install it there")
    from tessera.operators.backends.setup import own_python

    own_python(name)


@cache
def backend(name: str) -> Backend:
    """A backend ready to work in this interpreter; one that is not installed names what brings it."""
    check_usable(name)
    found = entry(name)
    if find_spec(found.package) is None:
        raise TesseraError(f"{found.title} runs in an interpreter of its own", do="launch it in processes, not inline")
    made: Backend = resolve(found.implementation)()
    return made
