"""One halo case on one rank of those that run it together: what a worker runs."""

from __future__ import annotations

from contextlib import closing

from tessera.errors import TesseraError
from tessera.launch.worker import Worker
from tessera.measure.environment import environment
from tessera.measure.samples import Sampling
from tessera.results.figures import time_metrics
from tessera.results.record import Case, Record
from tessera.spatial.bench.compute import measure_compute
from tessera.spatial.bench.exchange import measure_exchange
from tessera.spatial.bench.prediction import predictions
from tessera.spatial.bench.problem import Problem
from tessera.spatial.validation.record import validated
from tessera.transport.choose import open_transport

VERSION = "1"
MEASURED = {"exchange": measure_exchange, "compute": measure_compute}


def run_case(worker: Worker, case: Case, sampling: Sampling) -> Record:
    """Every rank calls it alike and gets the same record, with the samples of all ranks in it."""
    problem = Problem.of(case.params)
    if worker.size != problem.parts:
        raise TesseraError(
            "every part of the image needs a rank", got=f"{worker.size} ranks", allowed=str(problem.parts)
        )
    with closing(open_transport(str(case.params["transport"]), worker)) as transport:
        if case.name == "validate":
            return validated(worker, case, problem, transport)
        found = MEASURED[case.name](worker, case, problem, transport, sampling)
    seen = environment()
    layout = "channels_last" if found.channels_last else "contiguous"
    return Record(
        case=case,
        version=VERSION,
        launches=(found.samples,),
        metrics=time_metrics(found.samples) | dict(found.metrics),
        predicted=predictions(case, problem, transport.name, seen),
        environment=seen,
        conditions={"transport": transport.name, "layout": layout},
        notes=found.notes,
    )
