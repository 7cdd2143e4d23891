"""Registry of the inference engines. An engine's framework is imported only when the engine is loaded."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Literal

from tessera.device import CPU
from tessera.errors import MissingExtra, Refused, TesseraError, suggest_similar
from tessera.inference.engines.engine import EngineRequest, Session
from tessera.launch.fresh import FreshProcess, load_object

ANY_TORCH_DEVICE = "any device of torch"
NOT_IN_TORCH = ("gpu", "tensorrt", "dml", "coreml")  # kinds of devices of other engines, which torch does not have
FLOAT_PRECISIONS = ("32.32", "16.32", "16.16")
SessionBuilder = Callable[[EngineRequest], Session]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineEntry:
    """The traits of an engine, readable without importing its framework.

    - `build`: the function that builds a session, as `module:function`, of type `BuildSession`.
    - `precisions`: supported precisions, names from `precision.PRECISIONS`.
    - `packages` and `extra`: the packages that the engine imports, and the extra of Tessera that installs them.
    - `files`: whether the engine runs ONNX files (otherwise only torch modules).
    - `hints`: whether the engine supports `--hint` and `--streams`.
    - `float16`: whether the engine computes in float16 on processors that support it.
    - `operator_times`: the method of `--by-operator`: hooks in torch, the engine's own profiler, or empty if it is
      not supported.
    - `slow_start`: whether building a session takes long; tuning tries such engines last.
    - `devices`: kinds of accelerators that the engine supports; `ANY_TORCH_DEVICE` for all of torch's.
    - `check_device`: the function that raises an error if a device does not exist here, as `module:function`.
    - `requires_accelerator`: whether the engine does not run on the CPU.
    - `tuning_order`: rank in the order in which tuning tries engines, lowest first.
    """

    title: str
    build: str
    precisions: tuple[str, ...]
    packages: tuple[str, ...] = ("torch",)
    extra: str = ""
    files: bool = False
    hints: bool = False
    float16: bool = True
    operator_times: Literal["hooks", "engine", ""] = ""
    slow_start: bool = False
    devices: tuple[str, ...] = ()
    check_device: str = "tessera.device.names:check_one_available"
    requires_accelerator: bool = False
    tuning_order: int = 100

    def find_missing(self) -> MissingExtra | None:
        """Return the error for a package that the engine requires and that is not installed; None if it can run."""
        return next((MissingExtra(name, self.extra) for name in self.packages if find_spec(name) is None), None)

    def supports_device(self, choice: str) -> bool:
        """Return whether the engine supports the kind of a device; the device need not exist here."""
        if choice == CPU:
            return not self.requires_accelerator
        kind = choice.partition(":")[0]
        return kind in self.devices or (ANY_TORCH_DEVICE in self.devices and kind not in NOT_IN_TORCH)

    def check(self, *, is_file: bool, precision: str, hint: str, streams: int, device: str = CPU) -> None:
        """Raise an error for an ONNX file, precision, hint, number of streams or device that is not supported."""
        if not self.supports_device(device):
            alternatives = format_matching_engines(lambda entry: entry.supports_device(device))
            raise Refused(f"{self.title} does not run on --device {device}", do=f"use --engine {alternatives}")
        if is_file and not self.files:
            alternatives = format_matching_engines(lambda entry: entry.files)
            raise Refused(f"{self.title} runs torch modules, not ONNX files", do=f"use --engine {alternatives}")
        if precision not in self.precisions:
            alternatives = format_matching_engines(lambda entry: precision in entry.precisions)
            raise Refused(f"{self.title} does not compute in {precision}", do=f"use --engine {alternatives}")
        if not self.hints and (hint != "latency" or streams != 1):
            alternatives = format_matching_engines(lambda entry: entry.hints)
            raise Refused(f"{self.title} does not support --hint and --streams", do=f"use --engine {alternatives}")


ENGINES = {
    "torch-eager": EngineEntry(
        title="PyTorch, eager",
        build="tessera.inference.engines.pytorch:build_eager",
        precisions=(*FLOAT_PRECISIONS, "bf16"),
        operator_times="hooks",
        devices=(ANY_TORCH_DEVICE,),
        tuning_order=4,
    ),
    "torch-channels-last": EngineEntry(
        title="PyTorch, channels last",
        build="tessera.inference.engines.pytorch:build_channels_last",
        precisions=(*FLOAT_PRECISIONS, "bf16"),
        operator_times="hooks",
        devices=(ANY_TORCH_DEVICE,),
        tuning_order=3,
    ),
    "torch-compile": EngineEntry(
        title="torch.compile, frozen",
        build="tessera.inference.engines.pytorch:build_compiled",
        precisions=(*FLOAT_PRECISIONS, "bf16"),
        slow_start=True,
        devices=(ANY_TORCH_DEVICE,),
    ),
    "torch-graph": EngineEntry(
        title="PyTorch, captured graph",
        build="tessera.inference.engines.pytorch:build_graph",
        precisions=(*FLOAT_PRECISIONS, "bf16"),
        devices=(ANY_TORCH_DEVICE,),
        requires_accelerator=True,
        tuning_order=0,
    ),
    "onnxruntime": EngineEntry(
        title="ONNX Runtime",
        build="tessera.inference.engines.onnxruntime:build_session",
        precisions=(*FLOAT_PRECISIONS, "int8"),
        packages=("onnx", "onnxruntime"),
        extra="onnxruntime",
        files=True,
        float16=False,
        operator_times="engine",
        devices=("cuda", "tensorrt", "dml", "coreml"),
        check_device="tessera.inference.engines.onnxruntime:check_device",
        tuning_order=1,
    ),
    "openvino": EngineEntry(
        title="OpenVINO",
        build="tessera.inference.engines.openvino:build_session",
        precisions=(*FLOAT_PRECISIONS, "bf16", "int8"),
        packages=("openvino", "onnx"),
        extra="openvino",
        files=True,
        hints=True,
        operator_times="engine",
        devices=("gpu", "npu"),
        check_device="tessera.inference.engines.openvino:check_device",
        tuning_order=2,
    ),
}


def format_matching_engines(matches: Callable[[EngineEntry], bool]) -> str:
    """Return the names of the engines for which `matches` is true, as text such as "onnxruntime or openvino"."""
    return " or ".join(name for name, entry in ENGINES.items() if matches(entry))


def get_engine_entry(name: str) -> EngineEntry:
    """Return the entry of an engine; the error for an unknown name suggests similar ones."""
    if name not in ENGINES:
        raise TesseraError("unknown engine", got=name, allowed=ENGINES, do=suggest_similar(name, ENGINES))
    return ENGINES[name]


@cache
def load_engine(name: str) -> SessionBuilder:
    """Import an engine's framework and return the function that builds its sessions.

    Raises:
        MissingExtra: a package of the engine is not installed.
    """
    entry = get_engine_entry(name)
    if missing := entry.find_missing():
        raise missing
    build: SessionBuilder = load_object(entry.build)
    return build


def check_engine_device(name: str, device: str) -> None:
    """Raise an error if a device does not exist here for an engine."""
    if device != CPU:
        with FreshProcess() as process:  # asking the driver must not initialise a device here: replicas are forked
            process.call(get_engine_entry(name).check_device, device)
