"""`parallelize`: an ordinary torch CNN as one that runs on this rank's tile of the image."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from tessera.errors import TesseraError, did_you_mean
from tessera.geometry import Mesh, Partition
from tessera.models.structure import mapped, members
from tessera.spatial.network.altered import refuse_altered
from tessera.spatial.network.gradients import take_over_weights, with_summed_gradients
from tessera.spatial.network.move import Parts, Repartition, laid_out
from tessera.spatial.network.program import Program, program_of
from tessera.spatial.network.steps import Value
from tessera.spatial.network.trace import entered, trace
from tessera.spatial.placed import OVERLAPS, Overlap, Placed, Settings
from tessera.transport.distributed import world
from tessera.transport.half_sum import HalfSum
from tessera.transport.transport import Transport

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def parallelize(
    model: nn.Module,
    mesh: Mesh | str,
    *,
    image_size: int | Sequence[int],
    transport: Transport | None = None,
    overlap: Overlap = "auto",
    channels_last: bool = False,
    gather_at: str | None = None,
    fp16_allreduce: bool = False,
) -> ParallelModel:
    """Cut a network over the ranks of a mesh: every rank calls this with the same model, and then the result alike.

    The output, the gradients and the running statistics are those of the uncut model, to the rounding of the dtype.
    All ranks get rank 0's weights. Without a `transport`, torch.distributed carries the data; it has to be initialised.

    `gather_at` names a module (such as "layer4") from which on whole images are divided over the ranks, because tiles
    would get too small. `fp16_allreduce` sends the weights' gradients as float16: half the bytes of float32, but only
    three digits of each gradient, nothing below 6e-8 and nothing above 65504.
    """
    if isinstance(mesh, str):
        try:
            mesh = Mesh.parse(mesh)
        except ValueError as error:
            raise TesseraError(str(error)) from None
    if overlap not in OVERLAPS:
        raise TesseraError("unknown overlap", got=overlap, allowed=OVERLAPS)
    transport = transport or world(mesh.size)
    if transport.size != mesh.size:
        raise TesseraError(f"a mesh of {mesh.rows}x{mesh.cols} has {mesh.size} ranks", got=f"{transport.size} ranks")
    size = (image_size, image_size) if isinstance(image_size, int) else tuple(image_size)
    if any(not box for box in Partition.grid((1, *size), mesh).shards):
        raise TesseraError("more parts than pixels", got=f"{size} over {mesh.rows}x{mesh.cols}", do="use fewer ranks")
    settings = Settings(transport=transport, mesh=mesh, overlap=overlap, channels_last=channels_last)
    return ParallelModel(model, settings, size, gather_at=gather_at, fp16_allreduce=fp16_allreduce)


class ParallelModel(nn.Module):
    """A network that is cut over ranks; `parallelize` makes it.

    `parallel(parallel.scatter(image))` is this rank's part of the output, `parallel.gather` of that the whole output
    on every rank. A loss is computed either from the whole output, alike on every rank, or from each rank's own part
    as its share of a sum. Buffers are used again: run backward before the next forward.

    Parameters, buffers and state dicts are those of the uncut model, names included.
    """

    def __init__(
        self,
        model: nn.Module,
        settings: Settings,
        image_size: Sequence[int],
        *,
        gather_at: str | None = None,
        fp16_allreduce: bool = False,
    ) -> None:
        super().__init__()
        self.model, self.settings, self.image_size = model, settings, tuple(image_size)
        self._gather_at = gather_at
        self._add = HalfSum(settings.transport) if fp16_allreduce else settings.transport.all_reduce
        names = [name for name, _ in model.named_modules() if name]
        if gather_at is not None and gather_at not in names:
            raise TesseraError("gather_at names no module", got=gather_at, do=did_you_mean(gather_at, names))
        self._graphs: dict[tuple[bool, ...], fx.Graph] = {}
        self._programs: dict[tuple[object, ...], Program] = {}
        self._known_parts: dict[Placed, Parts] = {}
        self._from_root: dict[tuple[int, int], Repartition] = {}
        self._last: Program | None = None
        take_over_weights(model, settings.transport)
        self._graph()

    def forward(self, tile: Tensor) -> Any:
        """This rank's part of the output for its tile of the image."""
        program = self._last = self._program(tile)
        tile = laid_out(tile, self.settings.channels_last)
        weights: dict[str, Tensor] = {}
        if torch.is_grad_enabled():
            own = dict(self.model.named_parameters())
            weights = {name: own[name] for name in program.summed if own[name].requires_grad}
        if not weights:
            return program(tile)
        shared = with_summed_gradients(weights, self._add)
        return torch.func.functional_call(program, {f"model.{name}": w for name, w in shared.items()}, (tile,))

    def scatter(self, image: Tensor | None, root: int | None = None) -> Tensor:
        """This rank's tile of an image that every rank has, or with `root` that rank alone; others then give None."""
        if root is not None:
            return self._scatter_from(root, image)
        if image is None:
            raise TesseraError("no image to scatter", do="say with root=… which rank has it")
        self._check("an image", image.shape[2:], self.image_size)
        return self._parts(self._tiles(image.shape[0])).cut(image)

    def gather(self, output: Any) -> Any:
        """The whole of what the last call gave, or of tensors in its structure and sizes, on every rank."""
        if self._last is None:
            raise TesseraError("there is no output yet", do="call the model first")
        parts, values = members(output, Tensor), members(self._last.outputs, Value)
        if len(parts) != len(values):
            raise TesseraError("not the output of the last call", got=f"{len(parts)} tensors", allowed=f"{len(values)}")
        whole = iter([self._whole(part, value) for part, value in zip(parts, values, strict=True)])
        return mapped(output, lambda entry: next(whole) if isinstance(entry, Tensor) else entry)

    def _whole(self, part: Tensor, value: Value) -> Tensor:
        if value.placed is None or value.has("whole"):
            return part
        return self._parts(value.placed).collect(part)

    def _parts(self, placed: Placed) -> Parts:
        """Kept, because an exchange of its own belongs to each."""
        if placed not in self._known_parts:
            self._known_parts[placed] = Parts(placed, self.settings)
        return self._known_parts[placed]

    def _scatter_from(self, root: int, image: Tensor | None) -> Tensor:
        transport = self.settings.transport
        if not 0 <= root < transport.size:
            raise TesseraError("no rank has this number", got=root, allowed=f"0 to {transport.size - 1}")
        about = torch.zeros(5, dtype=torch.int64)
        wrong: TesseraError | None = None
        if transport.rank == root:
            try:
                about = torch.tensor([True, *self._about(image, root)], dtype=torch.int64)
            except TesseraError as error:  # raised when the others, which wait for the image, know of it
                wrong = error
        transport.all_reduce(about)
        is_there, samples, channels, dtype, needs_grad = about.tolist()
        if not is_there:
            raise wrong or TesseraError(f"rank {root} has no image that can be scattered", do="see what it says")
        if transport.rank != root or image is None:
            empty = (0, channels, *(0 for _ in self.image_size))
            image = torch.empty(empty, dtype=DTYPES[dtype], requires_grad=bool(needs_grad))
        if (root, samples) not in self._from_root:
            there = Partition.at((samples, *self.image_size), transport.size, root)
            self._from_root[root, samples] = Repartition(there, self._tiles(samples).partition, self.settings)
        return self._from_root[root, samples](image)

    def _about(self, image: Tensor | None, root: int) -> tuple[int, ...]:
        """What the others have to know of an image that one rank has: samples, channels, dtype, if it needs grad."""
        if image is None:
            raise TesseraError(f"rank {root} has the image, and gave none")
        self._check("an image", image.shape[2:], self.image_size)
        if image.dtype not in DTYPES:
            raise TesseraError("an image is made of floating point numbers", got=image.dtype, allowed=DTYPES)
        return image.shape[0], image.shape[1], DTYPES.index(image.dtype), image.requires_grad

    def _tiles(self, samples: int) -> Placed:
        return Placed.of("tiles", self.settings.mesh, (samples, *self.image_size))

    def _graph(self) -> fx.Graph:
        """The graph in the present mode of training; modes without a difference share one."""
        refuse_altered(self.model)
        mode = tuple(module.training for module in self.model.modules())
        if mode not in self._graphs:
            self.settings.transport.barrier()
            graph = trace(self.model)
            self.settings.transport.barrier()
            if self._gather_at is not None and not any(self._gather_at in entered(node) for node in graph.nodes):
                raise TesseraError("gather_at names a module that is not called", got=self._gather_at)
            self._graphs[mode] = next((g for g in self._graphs.values() if str(g) == str(graph)), graph)
        return self._graphs[mode]

    def _program(self, tile: Tensor) -> Program:
        if tile.dim() != 2 + len(self.image_size):
            raise TesseraError("a tile has samples, channels and pixels", got=tuple(tile.shape))
        box = self._tiles(tile.shape[0]).box(self.settings.transport.rank)
        self._check("this rank's tile", tile.shape[2:], box.shape[1:])
        graph = self._graph()
        key = (graph, tile.shape[:2], tile.dtype)
        if key not in self._programs:
            shape = (*tile.shape[:2], *self.image_size)
            self._programs[key] = program_of(
                self.model, graph, shape, tile.dtype, self.settings, gather_at=self._gather_at
            )
        return self._programs[key]

    def _check(self, what: str, size: Sequence[int], wanted: Sequence[int]) -> None:
        if tuple(size) != tuple(wanted):
            do = "`scatter` cuts an image of the size that was given to parallelize"
            raise TesseraError(f"{what} has another size", got=tuple(size), allowed=str(tuple(wanted)), do=do)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self.model.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return self.model.load_state_dict(*args, **kwargs)

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, nn.Parameter]]:
        return self.model.named_parameters(*args, **kwargs)

    def named_buffers(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Tensor]]:
        return self.model.named_buffers(*args, **kwargs)
