"""A device computes phases: with weights as they lie in working memory, one mini-batch after the other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from tessera.errors import TesseraError, first_line
from tessera.models.structure import mapped
from tessera.phased.events import Timeline
from tessera.phased.memory.activations import Activations, Values
from tessera.phased.memory.working import Weights, WorkingMemory
from tessera.phased.network.programs import Program


class Device:
    """Computes with programs of its own. `number` is its place among the devices."""

    def __init__(self, number: int, programs: Sequence[Program], memory: WorkingMemory, timeline: Timeline) -> None:
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
        """Pass mini-batches through a phase whose weights are there: in a buffer, or for good (None).

        `weights` are given if somebody else has made them ready already.
        """
        with self._memory.in_use(), self._timeline.timed(self.number, phase, "compute"), torch.no_grad():
            program = self._programs[phase]
            program.set_weights(self._memory.weights(phase, buffer) if weights is None else weights)
            for batch in batches:
                activations.put(batch, self._run(phase, program, activations.take(batch)))

    def _run(self, phase: int, program: Program, values: Values) -> Values:
        try:
            found = program.run(values)
        except TesseraError:
            raise
        except Exception as error:  # what the calls of a user's network raise is up to them
            raise TesseraError(f"phase {phase} does not run on this input: {first_line(error)}") from error
        for name in program.border.outputs:
            found[name] = mapped(found[name], self._out_of_working_memory)
        return found

    def _out_of_working_memory(self, value: Any) -> Any:
        """What leaves a phase must not lie where the next load overwrites it, as a part of a weight would."""
        return value.clone() if isinstance(value, Tensor) and self._memory.holds(value) else value
