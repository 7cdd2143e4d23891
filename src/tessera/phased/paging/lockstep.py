"""Run several mini-batches through the phases of a network in lockstep, each as a call in its own thread.

A thread stops where its mini-batch reads a weight of a different phase, and continues when that phase is active. All
mini-batches therefore pass through a phase before the next phase is loaded, whatever Python code the network runs.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import torch

from tessera.affinity import set_affinity
from tessera.launch.placement import Cpus
from tessera.phased.events import Event, EventKind, EventTimeline
from tessera.phased.paging.pager import PagedPhase, Pager

START: None = None  # a mini-batch that has not read a weight yet


class PassAborted(BaseException):
    """Raised in the threads of mini-batches when another mini-batch failed, or the pass was interrupted."""


class _Lane:
    """One mini-batch: the phase that it computes or waits for, and its result."""

    def __init__(self, number: int, call: Callable[[], Any]) -> None:
        self.number, self.call = number, call
        self.phase: PagedPhase | None = START
        self.wanted: PagedPhase | None = START
        self.device = 0
        self.waiting, self.running, self.done = True, False, False
        self.entered = 0.0
        self.result: Any = None
        self.error: BaseException | None = None
        self.hold: AbstractContextManager[None] | None = None


class Lockstep:
    """Runs calls of a network in lockstep.

    At most `parallel` calls compute at the same time. With `by_phase`, phase i is computed on device i modulo the
    number of devices, and different phases at the same time (all weights are in memory). Otherwise all running calls
    are in the same phase, and with `alternate` the devices alternate from phase to phase. `cpus` has the cores of each
    device; empty to let threads run on any core.
    """

    def __init__(
        self,
        pager: Pager,
        timeline: EventTimeline,
        *,
        devices: int,
        threads: int,
        parallel: int,
        by_phase: bool = False,
        alternate: bool = False,
        cpus: Sequence[Cpus] = (),
    ) -> None:
        self.pager, self._timeline = pager, timeline
        self._devices, self._threads, self._parallel = devices, threads, parallel
        self._by_phase, self._alternate, self._cpus = by_phase, alternate, cpus
        self._changed = threading.Condition()
        self._own = threading.local()
        self._lanes: list[_Lane] = []
        self.threads: list[threading.Thread] = []  # of the mini-batches that run now
        self._aborted = False
        self._turn = -1

    def run(self, calls: Sequence[Callable[[], Any]], pager: Pager) -> list[Any]:
        """Run all calls, and return their results; the error of the first call that failed is raised."""
        self.pager, self._aborted = pager, False
        self._lanes = [_Lane(number, call) for number, call in enumerate(calls)]
        pager.leave()
        pager.coordinator = self
        context = _capture_modes()
        threads = [
            threading.Thread(
                target=contextvars.copy_context().run,
                args=(self._run_lane, lane, context),
                name=f"tessera-batch-{lane.number}",
            )
            for lane in self._lanes
        ]
        self.threads = threads
        try:
            for thread in threads:
                thread.daemon = True
                thread.start()
            with self._changed:
                self._grant()
                self._changed.wait_for(lambda: all(lane.done for lane in self._lanes))
        except BaseException:
            self._abort()
            raise
        finally:
            for thread in threads:
                if thread.ident is not None:
                    thread.join()
            self.threads = []
            pager.leave()
            pager.coordinator = None
        errors = [lane.error for lane in self._lanes if lane.error is not None]
        results = [lane.result for lane in self._lanes]
        self._lanes = []
        if errors:
            raise next((error for error in errors if not isinstance(error, PassAborted)), errors[0])
        return results

    def includes_this_thread(self) -> bool:
        return getattr(self._own, "lane", None) is not None

    def arrive(self, phase: PagedPhase) -> None:
        lane: _Lane = self._own.lane
        if self._aborted:
            raise PassAborted
        if lane.phase is phase and (self._by_phase or self.pager.active is phase):
            return
        self._record_compute(lane)
        requested = time.perf_counter()
        with self._changed:
            lane.running, lane.waiting, lane.wanted = False, True, phase
            self._grant()
            self._changed.wait_for(lambda: lane.running or self._aborted)
            if self._aborted:
                raise PassAborted
        self._move_to_device(lane)
        granted = time.perf_counter()
        if self._by_phase:
            lane.hold = self.pager.hold()
            lane.hold.__enter__()
        else:
            self.pager.enter(phase)
        lane.phase, lane.entered = phase, time.perf_counter()
        if self._alternate:
            for kind, start, stop in (("wait", requested, granted), ("hand-over", granted, granted)):
                self._add_event(lane, kind, start, stop)  # type: ignore[arg-type]

    def _grant(self) -> None:
        """Let waiting mini-batches continue, as far as phases and devices permit."""
        while (lane := self._choose_lane()) is not None:
            if lane.wanted is not None and not self._by_phase and lane.wanted is not self._round:
                self._round = lane.wanted
                self._turn += 1
            lane.device = self._choose_device(lane)
            if not self._by_phase:
                self.pager.device = 0 if self._parallel > 1 else lane.device
            lane.waiting, lane.running = False, True
            self._changed.notify_all()

    _round: PagedPhase | None = None

    def _choose_lane(self) -> _Lane | None:
        running = [lane for lane in self._lanes if lane.running]
        waiting = [lane for lane in self._lanes if lane.waiting]
        if not waiting or len(running) >= self._parallel:
            return None
        if self._by_phase:
            busy = {lane.device for lane in running if lane.wanted is not None}
            free = [lane for lane in waiting if lane.wanted is None or lane.wanted.index % self._devices not in busy]
            return free[0] if free else None
        same = [lane for lane in waiting if lane.wanted is START or lane.wanted is self._round]
        if same:
            return same[0]
        return None if running else waiting[0]

    def _choose_device(self, lane: _Lane) -> int:
        if self._by_phase:
            return 0 if lane.wanted is None else lane.wanted.index % self._devices
        if self._alternate:
            return max(0, self._turn) % self._devices
        busy = {other.device for other in self._lanes if other.running}
        return next((number for number in range(self._parallel) if number not in busy), 0)

    def _run_lane(self, lane: _Lane, context: Callable[[ExitStack], None]) -> None:
        self._own.lane = lane
        torch.set_num_threads(self._threads)
        try:
            with ExitStack() as modes:
                context(modes)
                with self._changed:
                    self._changed.wait_for(lambda: lane.running or self._aborted)
                    if self._aborted:
                        raise PassAborted
                self._move_to_device(lane)
                lane.result = lane.call()
        except BaseException as error:
            lane.error = error
            self._abort()
        finally:
            lane.call = _do_nothing
            self._record_compute(lane)
            with self._changed:
                lane.running, lane.waiting, lane.done = False, False, True
                if not self._aborted:
                    self._grant()
                self._changed.notify_all()

    def _abort(self) -> None:
        with self._changed:
            self._aborted = True
            self._changed.notify_all()

    def _move_to_device(self, lane: _Lane) -> None:
        if self._cpus and self._threads == 1:
            set_affinity(self._cpus[lane.device % len(self._cpus)])

    def _record_compute(self, lane: _Lane) -> None:
        if lane.phase is not None:
            self._add_event(lane, "compute", lane.entered, time.perf_counter())
            lane.phase = START
        if lane.hold is not None:
            lane.hold.__exit__(None, None, None)
            lane.hold = None

    def _add_event(self, lane: _Lane, kind: EventKind, start: float, stop: float) -> None:
        phase = lane.phase
        assert phase is not None
        self._timeline.add(Event(device=lane.device, phase=phase.index, kind=kind, start=start, stop=stop))


def _do_nothing() -> None:
    return None


def _capture_modes() -> Callable[[ExitStack], None]:
    """Return a function that enters the modes of this thread (no_grad, inference mode, autocast) in another thread."""
    grad, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    autocast, dtype = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")

    def enter(modes: ExitStack) -> None:
        if inference:
            modes.enter_context(torch.inference_mode())
        modes.enter_context(torch.set_grad_enabled(grad))
        if autocast:
            modes.enter_context(torch.autocast("cpu", dtype))

    return enter
