"""A device, which computes phases with weights in working memory, one mini-batch after the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from tessera.errors import TesseraError, get_first_line
from tessera.models.structure import map_structure
from tessera.phased.events import EventTimeline
from tessera.phased.memory.activations import Activations, Values
from tessera.phased.memory.working import Weights, WorkingMemory
from tessera.phased.network.programs import PhaseProgram


class PhaseDevice:
    """A device that computes phases with its own copy of the phase programs; `number` counts devices from 0."""

    def __init__(
        self, number: int, programs: Sequence[PhaseProgram], memory: WorkingMemory, timeline: EventTimeline
    ) -> None:
        self.number, self._programs = number, programs
        self._memory, self._timeline = memory, timeline

    def compute(
        self,
        phase: int,
        buffer: int | None,
        activations: Activations,
        batches: Iterable[int],
        weights: Weights | None = None,
    ) -> None:
        """Compute a phase for some mini-batches, with weights from a buffer or resident weights (`buffer` is None).

        `weights` are the widened weights of the phase, if another device has already widened them.
        """
        with self._memory.hold(), self._timeline.record_span(self.number, phase, "compute"), torch.no_grad():
            program = self._programs[phase]
            program.set_weights(self._memory.get_weights(phase, buffer) if weights is None else weights)
            for batch in batches:
                activations.put(batch, self._run_program(phase, program, activations.take(batch)))

    def _run_program(self, phase: int, program: PhaseProgram, values: Values) -> Values:
        try:
            outputs = program.run(values)
        except TesseraError:
            raise
        except Exception as error:  # a user's network may raise anything
            raise TesseraError(f"phase {phase} does not run on this input: {get_first_line(error)}") from error
        for name in program.boundary.outputs:
            outputs[name] = map_structure(outputs[name], self._copy_from_working_memory)
        return outputs

    def _copy_from_working_memory(self, value: Any) -> Any:
        """Copy an output that is a view of working memory (e.g. of a weight), because the next load overwrites it."""
        return value.clone() if isinstance(value, Tensor) and self._memory.contains(value) else value
