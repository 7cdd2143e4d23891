"""Registry of the backends (frameworks that run operators). A framework is imported when its backend is loaded."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec

from tessera.errors import MissingExtra, Refused, TesseraError
from tessera.launch.fresh import load_object
from tessera.operators.backends.backend import Backend
from tessera.results.record import Case


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendEntry:
    """Description of a backend, available without importing its framework.

    `implementation` and `expressions` are `module:name`: the class of the backend, and a function that returns the
    expressions (Python source of each operator in this framework). `package` is the framework's package and `needs`
    lists further packages; the pip extra `extra` installs all of them. `prefix` starts the names of the backend's
    metrics (`PT_Add_Forward_Time`). `own_python` is the Python version of a framework that requires a separate
    interpreter, with the packages pinned in `data/NAME.txt`.

    Traits: `differentiates` is true if the backend has backward passes, `compiles` if torch.compile compiles the
    operator first, `measures_fusion` if fused operators are compared with their unfused steps on this backend,
    `uses_devices` if the backend computes on torch's accelerators.
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
    compiles: bool = False
    measures_fusion: bool = False
    uses_devices: bool = False


BACKENDS = {
    "torch": BackendEntry(
        title="PyTorch, eager",
        prefix="PT",
        implementation="tessera.operators.backends.torch_backend:TorchBackend",
        expressions="tessera.operators.catalogue:list_torch_expressions",
        package="torch",
        measures_fusion=True,
        uses_devices=True,
    ),
    "compile": BackendEntry(
        title="torch.compile",
        prefix="PTC",
        implementation="tessera.operators.backends.compile_backend:CompileBackend",
        expressions="tessera.operators.catalogue:list_compilable_expressions",
        package="torch",
        compiles=True,
        uses_devices=True,
    ),
    "jax": BackendEntry(
        title="JAX",
        prefix="JAX",
        implementation="tessera.operators.backends.jax_backend:JaxBackend",
        expressions="tessera.operators.backends.jax_expressions:list_jax_expressions",
        package="jax",
        extra="jax",
    ),
    "numpy": BackendEntry(
        title="NumPy",
        prefix="NP",
        implementation="tessera.operators.backends.numpy_backend:NumpyBackend",
        expressions="tessera.operators.catalogue:list_numpy_expressions",
        package="numpy",
        differentiates=False,
    ),
    "onnxruntime": BackendEntry(
        title="ONNX Runtime",
        prefix="ORT",
        implementation="tessera.operators.backends.onnxruntime_backend:OnnxRuntimeBackend",
        expressions="tessera.operators.backends.onnx_expressions:list_onnx_expressions",
        package="onnxruntime",
        needs=("onnx",),
        extra="onnxruntime",
        differentiates=False,
    ),
    "openvino": BackendEntry(
        title="OpenVINO",
        prefix="OV",
        implementation="tessera.operators.backends.openvino_backend:OpenvinoBackend",
        expressions="tessera.operators.backends.openvino_expressions:list_openvino_expressions",
        package="openvino",
        needs=("onnx",),
        extra="openvino",
        differentiates=False,
    ),
    "mxnet": BackendEntry(
        title="MXNet",
        prefix="MX",
        implementation="tessera.operators.backends.mxnet_backend:MxnetBackend",
        expressions="tessera.operators.backends.mxnet_expressions:list_mxnet_expressions",
        package="mxnet",
        own_python="3.11",
    ),
}


def get_backend_entry(name: str) -> BackendEntry:
    """Return the description of a backend; raise an error for an unknown name."""
    if name not in BACKENDS:
        raise TesseraError("unknown backend", got=name, allowed=BACKENDS)
    return BACKENDS[name]


@cache
def load_expressions(name: str) -> Mapping[str, str]:
    """Return the expressions (Python source) of all operators that a backend supports, by operator name."""
    expressions: Mapping[str, str] = load_object(get_backend_entry(name).expressions)()
    return expressions


def get_expression(name: str, operator: str) -> str:
    """Return a backend's expression (Python source) of an operator; raise an error if the backend lacks it."""
    if operator not in load_expressions(name):
        others = [backend for backend in BACKENDS if operator in load_expressions(backend)]
        raise Refused(
            f"{get_backend_entry(name).title} does not support the operator {operator}",
            do=f"use a backend that supports it: {', '.join(others)}",
        )
    return load_expressions(name)[operator]


def find_case_interpreter(case: Case) -> str:
    """Return the path of the separate Python interpreter of a case's backend, or an empty string if it has none."""
    return find_own_python(str(case.params["backend"]))


def find_own_python(name: str) -> str:
    """Return the path of a backend's separate Python interpreter, or an empty string if it has none.

    Raise an error if the backend requires a separate interpreter that is not set up.
    """
    from tessera.operators.backends.setup import get_own_python

    return str(get_own_python(name)) if get_backend_entry(name).own_python else ""


def check_usable(name: str) -> None:
    """Raise an error if a backend cannot run.

    The error names the pip extra to install, or the command that sets up the backend's interpreter.
    """
    entry = get_backend_entry(name)
    missing = [package for package in (entry.package, *entry.needs) if find_spec(package) is None]
    if not missing:
        return
    if entry.extra:
        raise MissingExtra(missing[0], entry.extra)
    if not entry.own_python:
        raise TesseraError(
            f"{missing[0]} is not installed in this Python", got=sys.executable, do=f"install {missing[0]} there"
        )
    from tessera.operators.backends.setup import get_own_python

    get_own_python(name)


@cache
def load_backend(name: str) -> Backend:
    """Import a backend in this interpreter; raise an error if it cannot run here."""
    check_usable(name)
    entry = get_backend_entry(name)
    if find_spec(entry.package) is None:
        raise TesseraError(
            f"{entry.title} requires a separate Python interpreter", do="start workers as processes, not inline"
        )
    backend: Backend = load_object(entry.implementation)()
    return backend
