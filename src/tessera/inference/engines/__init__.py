"""The engines that networks run in, by name; none is imported before it is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec

from tessera.errors import MissingExtra, Refused, TesseraError, did_you_mean
from tessera.inference.engines.engine import Engine
from tessera.launch.fresh import resolve

FLOATS = ("32.32", "16.32", "16.16")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An engine as it can be listed without importing its framework.

    `implementation` is `module:class`, `packages` what it imports, `extra` what brings them. `files` says whether it
    can run an ONNX file (an engine of torch needs a module), `hints` whether it has hints and streams, `float16`
    whether it computes in float16 where the processor can.
    """

    title: str
    implementation: str
    precisions: tuple[str, ...]
    packages: tuple[str, ...] = ("torch",)
    extra: str = ""
    files: bool = False
    hints: bool = False
    float16: bool = True

    def missing(self) -> str:
        """Why the engine cannot run here, with what brings it; empty where it can."""
        absent = [package for package in self.packages if find_spec(package) is None]
        return str(MissingExtra(absent[0], self.extra)) if absent else ""

    def check(self, *, precision: str, hint: str, streams: int) -> None:
        """Refuse what means nothing to this engine."""
        if precision not in self.precisions:
            able = [name for name, entry in ENGINES.items() if precision in entry.precisions]
            raise Refused(f"{self.title} does not compute in {precision}", do=f"it is in {', '.join(able)}")
        if not self.hints and (hint != "latency" or streams != 1):
            able = [name for name, entry in ENGINES.items() if entry.hints]
            raise Refused(f"{self.title} has neither hints nor streams", do=f"they are in {', '.join(able)}")


ENGINES = {
    "torch-eager": Entry(
        title="PyTorch, eager",
        implementation="tessera.inference.engines.torch_eager:TorchEager",
        precisions=(*FLOATS, "bf16"),
    ),
    "torch-channels-last": Entry(
        title="PyTorch, channels last",
        implementation="tessera.inference.engines.torch_channels_last:TorchChannelsLast",
        precisions=(*FLOATS, "bf16"),
    ),
    "torch-compile": Entry(
        title="torch.compile, frozen",
        implementation="tessera.inference.engines.torch_compile:TorchCompile",
        precisions=(*FLOATS, "bf16"),
    ),
    "onnxruntime": Entry(
        title="ONNX Runtime",
        implementation="tessera.inference.engines.onnxruntime:OnnxRuntime",
        precisions=(*FLOATS, "int8"),
        packages=("onnx", "onnxruntime"),
        extra="onnxruntime",
        files=True,
        float16=False,
    ),
    "openvino": Entry(
        title="OpenVINO",
        implementation="tessera.inference.engines.openvino:OpenVino",
        precisions=(*FLOATS, "bf16", "int8"),
        packages=("openvino", "onnx"),
        extra="openvino",
        files=True,
        hints=True,
    ),
}


def available(name: str) -> str | None:
    """None where an engine can run, else the reason with the extra that brings it."""
    return entry(name).missing() or None


def entry(name: str) -> Entry:
    """An engine by name; the nearest names for one that does not exist."""
    if name not in ENGINES:
        raise TesseraError("unknown engine", got=name, allowed=ENGINES, do=did_you_mean(name, ENGINES))
    return ENGINES[name]


@cache
def engine(name: str) -> Engine:
    """An engine ready to work in this process; one that is not installed names what brings it."""
    found = entry(name)
    for package in found.packages:
        if find_spec(package) is None:
            raise MissingExtra(package, found.extra)
    made: Engine = resolve(found.implementation)()
    return made
