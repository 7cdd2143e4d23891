"""The workload of a case: its network, mini-batches and file of weights, as a phased model and in plain torch."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from tessera.launch.worker import Worker
from tessera.models import MODELS, build, build_example_inputs, build_layers, get_image_size
from tessera.models.weights import read_weights
from tessera.phased.cases import CHAIN, is_checkpoint_folder
from tessera.phased.chain import MatrixChain
from tessera.phased.choices import NETWORKS, SCHEDULES, STORES
from tessera.phased.model import PhasedModel
from tessera.phased.paging.checkpoints import build_checkpoint_model, read_checkpoint_table
from tessera.phased.paging.meta_copy import copy_to_meta
from tessera.phased.paging.sample_inputs import build_sample_inputs
from tessera.phased.rewriting import load_checkpoint
from tessera.phased.store.encoding import ENCODINGS, decode_into, encode, is_encodable
from tessera.phased.store.weights_file import read_tensor_table
from tessera.phased.weights import write_temporary_weights
from tessera.results.record import Case

DISTINCT_BATCHES = 4  # a longer step repeats these mini-batches, because hundreds would fill the memory
COMPUTE_DTYPES = {"float64": torch.float64}  # other dtypes only in storage
DEFAULT_BUDGET_DIVISOR = 4  # the default budget is the size of the weights divided by this


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A network by name, the shape of a mini-batch, the number of mini-batches of a step, and the stored dtype.

    Without a dtype, the file `weights` determines how the weights are stored. A network whose function returns inputs
    beside it has no `input_shape`: these inputs (`example`) are every mini-batch. The name of a checkpoint folder is
    its path; the network computes in the dtype of its configuration, with inputs that follow from it.
    """

    name: str
    input_shape: tuple[int, ...] | None
    batches: int
    dtype: str | None
    weights: str | None = None
    num_layers: int = 0
    example: Any = None

    @classmethod
    def from_case(cls, case: Case) -> Workload:
        """Build the workload of a case."""
        params: Any = case.params
        name = NETWORKS.get(case.name, case.name)
        size = params["dsize"] if case.name == CHAIN else params.get("image_size", 0)
        shape = (params["batch_size"], *((size, size) if case.name == CHAIN else (3, size, size)))
        if is_checkpoint_folder(case.name):
            example: Any = build_sample_inputs(build_checkpoint_model(Path(case.name), None), params["batch_size"])
        else:
            example = None if name == CHAIN else build_example_inputs(name)
        return cls(
            name=name,
            input_shape=shape if example is None else None,
            example=example,
            batches=params["batches_per_step"],
            dtype=params.get("dtype"),
            weights=params.get("weights"),
            num_layers=params.get("num_layers", 0),
        )

    @property
    def matrix_size(self) -> int:
        """Rows of the chain's matrices."""
        assert self.input_shape is not None
        return self.input_shape[-1]

    @property
    def items_per_step(self) -> int:
        """Number of matrices, images or samples in one step."""
        if self.input_shape is not None:
            return self.input_shape[0] * self.batches
        samples = [
            len(value) for value in pytree.tree_leaves(self.example) if isinstance(value, Tensor) and value.dim()
        ]
        return self.batches * (samples[0] if samples else 1)

    @property
    def is_folder(self) -> bool:
        """Whether the network is a checkpoint folder."""
        return is_checkpoint_folder(self.name)

    @property
    def compute_dtype(self) -> torch.dtype:
        """The dtype of inputs and arithmetic."""
        if self.is_folder:
            dtypes = {parameter.dtype for parameter in self.build_skeleton().parameters()}
            return next((dtype for dtype in dtypes if dtype.is_floating_point), torch.float32)
        if self.dtype is None:
            stored_dtypes = {tensor.dtype for tensor in read_tensor_table(Path(self.weights or "")).values()}
            floating = {dtype for dtype in stored_dtypes if dtype.is_floating_point}
            return torch.float64 if floating == {torch.float64} else torch.float32
        return COMPUTE_DTYPES.get(self.dtype, torch.float32)

    def build_inputs(self) -> list[Any]:
        """Return the mini-batches of a step."""
        if self.input_shape is None:
            return [self._convert(self.example)] * self.batches
        generator = torch.Generator().manual_seed(0)
        count = min(DISTINCT_BATCHES, self.batches)
        drawn = [torch.randn(self.input_shape, generator=generator).to(self.compute_dtype) for _ in range(count)]
        return [drawn[number % count] for number in range(self.batches)]

    def _convert(self, inputs: Any) -> Any:
        """Return inputs with floating-point tensors in the dtype of the arithmetic."""
        return pytree.tree_map(
            lambda value: (
                value.to(self.compute_dtype) if isinstance(value, Tensor) and value.is_floating_point() else value
            ),
            inputs,
        )

    def list_phase_starts(self) -> list[str] | None:
        """Return the modules at which phases begin: every layer of the chain; None (automatic) for other networks."""
        return [f"layers.{number}" for number in range(self.num_layers)] if self.name == CHAIN else None

    def build_skeleton(self) -> nn.Module:
        """Return the network on the meta device, in the dtype that it is computed in."""
        if self.is_folder:
            return build_checkpoint_model(Path(self.name), None)
        if self.name != CHAIN:  # .to("meta") would untie weights and drop the values of non-persistent buffers
            return copy_to_meta(build_layers(self.name).eval(), self.compute_dtype)
        with torch.device("meta"):
            return MatrixChain(self.matrix_size, self.num_layers).to(self.compute_dtype)

    def build_plain_network(self) -> nn.Module:
        """Return the network for plain torch, with all weights in memory and rounded to the stored dtype."""
        if self.is_folder:
            return load_checkpoint(Path(self.name), self.build_skeleton())
        if self.name == CHAIN:
            network = self.build_skeleton().to_empty(device="cpu")
            network.load_state_dict({name: self._draw_layer(name) for name in network.state_dict()})
        elif self.weights is None:
            network = build(self.name)
        else:  # PhasedModel has checked that no weight is missing; batch-norm counters are not needed
            network = build_layers(self.name).to(self.compute_dtype).eval()
            if any(weight.is_meta for weight in network.parameters()):
                network.to_empty(device="cpu")
            network.load_state_dict(read_weights(Path(self.weights)), strict=False)
        if self.dtype is not None:
            for (
                value
            ) in network.state_dict().values():  # non-persistent buffers are not stored, so they are not rounded
                if self.dtype in ENCODINGS and is_encodable(value.dtype, value.shape):
                    decode_into(encode(value, self.dtype)[0], self.dtype, value)
                elif value.is_floating_point() and self.dtype not in ENCODINGS:
                    value.copy_(value.to(getattr(torch, self.dtype)))
        return network.to(self.compute_dtype)

    @contextmanager
    def open_weights_file(self) -> Iterator[Path]:
        """Yield the path of the weights: the file that the case names, or an unnamed file removed with the process."""
        if self.weights is not None or self.is_folder:
            yield Path(self.weights or self.name)
            return
        # the chain is written one layer at a time, because it may be larger than the memory
        values = self._draw_layer if self.name == CHAIN else None
        model = self.build_skeleton() if self.name == CHAIN else build(self.name)
        with write_temporary_weights(model, values, dtype=self.dtype) as path:
            yield path

    def _draw_layer(self, name: str) -> Tensor:
        """Return the random weight of a chain layer: seeded by its name, scaled so that deep chains do not overflow."""
        size = self.matrix_size
        generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
        drawn: Tensor = torch.randn(size, size, generator=generator) * size**-0.5
        return drawn


def open_model(worker: Worker, case: Case, workload: Workload, path: Path, **changes: Any) -> PhasedModel:
    """Open the model of a case from a file of weights; `changes` override the arguments of `PhasedModel`."""
    params = case.params
    limit = params.get("memory_limit")
    options: dict[str, Any] = {
        "schedule": params["schedule"],
        "devices": params["devices"],
        "threads": params.get("threads", 1),
        "store": params.get("store", "disk"),
        "cold": params.get("cold", False),
        "pin": bool(worker.cpus) or worker.spawn == "inline",
        "budget": params.get("budget") or (None if limit else get_default_budget(workload, params, path)),
        "memory_limit": limit,
        "phases": workload.list_phase_starts(),
        "keep": case.name != CHAIN,  # the chain measures streaming, so all of its phases are streamed
    } | changes
    if workload.is_folder:
        return PhasedModel.from_pretrained(path, **options)
    return PhasedModel(workload.build_skeleton(), path=path, input_shape=workload.input_shape, **options)


def warm_up(case: Case) -> None:
    """Run a tiny chain with the schedule of the case, so that one-time allocations of libraries are not measured."""
    params = case.params
    options = {name: params[name] for name in ("schedule", "devices", "store") if name in params}
    shape = (1, 8, 8)
    with PhasedModel(MatrixChain(8, 2), input_shape=shape, **options) as tiny:
        tiny(torch.zeros(shape))


def get_default_budget(workload: Workload, params: Mapping[str, Any], path: Path) -> int:
    """Return a quarter of the size of the weights, or the minimum of the schedule if that is larger."""
    skeleton = workload.build_skeleton()
    wanted = skeleton.state_dict(keep_vars=True)
    tensors = read_checkpoint_table(path, skeleton)
    used = {(tensor.start, tensor.stop): tensor.nbytes for name, tensor in tensors.items() if name in wanted}
    everything = sum(used.values())
    least = PhasedModel.compute_min_budget(
        skeleton,
        schedule=params["schedule"],
        devices=params["devices"],
        path=path,
        prefetch=True,
    )
    return max(least, everything // DEFAULT_BUDGET_DIVISOR)


def build_model_inputs(name: str) -> Any:
    """Return inputs for a network of the catalogue, or those that `module:callable` returns, which may be None."""
    if name in MODELS:
        size = get_image_size(name)
        return torch.randn(1, 3, size, size)
    return build_example_inputs(NETWORKS.get(name, name))


def describe_storage(params: Mapping[str, Any]) -> str:
    """Return a description of the storage that holds the weights when a pass begins, as records state it."""
    if SCHEDULES[params["schedule"]].holds_all_weights:
        return "in memory"
    return STORES[str(params["store"])].describe(cold=bool(params.get("cold")))
