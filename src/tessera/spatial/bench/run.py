"""The function that runs one halo case on a rank."""

from __future__ import annotations

from contextlib import closing

from tessera.errors import TesseraError
from tessera.launch.worker import RunContext
from tessera.measure.environment import describe_environment
from tessera.measure.samples import Sampling
from tessera.results.metrics import make_time_metrics
from tessera.results.record import Case, Record
from tessera.spatial.bench.compute import measure_compute
from tessera.spatial.bench.exchange import measure_exchange
from tessera.spatial.bench.network import run_network
from tessera.spatial.bench.prediction import predict_case
from tessera.spatial.bench.validation import run_validation
from tessera.spatial.cases import NETWORK
from tessera.spatial.problem import HaloProblem, NetworkProblem
from tessera.transport.registry import open_transport

VERSION = "1"
MEASUREMENTS = {"exchange": measure_exchange, "compute": measure_compute}


def run_case(context: RunContext, case: Case, sampling: Sampling) -> Record:
    """Run a case on this rank. All ranks call it and return the same record, with the samples of all ranks."""
    worker = context.worker
    problem = NetworkProblem.of(case.params) if case.name == NETWORK else HaloProblem.of(case.params)
    if worker.size != problem.parts:
        raise TesseraError(
            "the number of ranks must equal the number of image parts",
            got=f"{worker.size} ranks",
            allowed=str(problem.parts),
        )
    with closing(open_transport(str(case.params["transport"]), worker)) as transport:
        if isinstance(problem, NetworkProblem):
            return run_network(worker, case, problem, transport, sampling)
        if case.name == "validate":
            return run_validation(worker, case, problem, transport)
        measurement = MEASUREMENTS[case.name](worker, case, problem, transport, sampling)
    environment = describe_environment()
    layout = "channels_last" if measurement.channels_last else "contiguous"
    return Record(
        case=case,
        version=VERSION,
        launches=(measurement.samples,),
        metrics=make_time_metrics(measurement.samples) | dict(measurement.metrics),
        predicted=predict_case(case, problem, transport.traits, environment),
        environment=environment,
        chosen={"transport": transport.name, "layout": layout, **measurement.chosen},
        notes=measurement.notes,
    )
