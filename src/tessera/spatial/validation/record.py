"""A validation as a record: one line per rank, and the largest errors of all of them."""

from __future__ import annotations

import random
from collections.abc import Sequence

from tessera.errors import Refused
from tessera.launch.worker import Worker
from tessera.measure.environment import environment
from tessera.measure.room import available
from tessera.results.record import Case, Metric, Record
from tessera.spatial.bench.problem import Problem
from tessera.spatial.bench.rounds import gathered
from tessera.spatial.validation.validate import TOLERANCE, Verdict, validate
from tessera.transport.transport import Transport

WORKSPACE = 10.0  # times the uncut image and output that a rank holds: both, gradients, squares, wider copies
SHARE = 0.5  # of the memory that is free


def validated(worker: Worker, case: Case, problem: Problem, transport: Transport) -> Record:
    """Validate on all ranks; the record is `failed` if one of them found a fault."""
    _refuse_too_large(worker, problem)
    layout = str(case.params["layout"])
    verdict = validate(
        problem,
        transport,
        overlaps=case.params["overlap"],
        layouts=("contiguous", "channels_last") if layout == "auto" else (layout,),
        rounds=int(case.params["rounds"]),
        seed=worker.sync.agree(random.randrange(1 << 40)),
    )
    return record_of(case, gathered(worker, verdict), transport.name)


def record_of(case: Case, verdicts: Sequence[Verdict], transport: str) -> Record:
    """The ranks' verdicts as one record."""
    lines = tuple(str(verdict) for verdict in verdicts)
    wrong = [str(verdict) for verdict in verdicts if not verdict.passed]
    names = dict.fromkeys(name for verdict in verdicts for name in verdict.errors)
    errors = {name: max(verdict.errors.get(name, 0.0) for verdict in verdicts) for name in names}
    return Record(
        case=case,
        status="failed" if wrong else "ok",
        reason="; ".join(wrong),
        metrics={
            **{f"error_{name.replace(' ', '_')}": Metric(value, "", "lower") for name, value in errors.items()},
            "tolerance": Metric(TOLERANCE[str(case.params["dtype"])]),
            "failed_ranks": Metric(len(wrong), "", "lower"),
        },
        environment=environment(),
        conditions={"transport": transport},
        notes=lines,
    )


def _refuse_too_large(worker: Worker, problem: Problem) -> None:
    needed = WORKSPACE * problem.footprint * worker.size
    if worker.sync.agree(needed > SHARE * available()):
        raise Refused(
            f"every rank computes the uncut image to compare with, which takes {needed / 2**30:.1f} GiB",
            do="validate a smaller image",
        )
