"""Operators of one's own: `tessera ops --operators own_operators.py swiglu`, or run this file to see one measured."""

from tessera.operators.operator import Input, Operator, by_size
from tessera.operators.work import per_output

OPERATORS = (
    Operator(
        name="swiglu",
        category="activation",
        torch="F.silu(gate) * data",
        reference="gate / (1 + np.exp(-gate)) * data",
        sizes=by_size(lambda n: {"gate": Input(shape=(n, n)), "data": Input(shape=(n, n))}, 64, 1024, 4096),
        flops=per_output(3),
    ),
)

if __name__ == "__main__":
    from tessera.launch import LaunchConfig, Workers
    from tessera.measure.samples import Sampling
    from tessera.operators import catalogue
    from tessera.operators.cases import cases

    catalogue.use(__file__)  # here and in workers
    with Workers(LaunchConfig()) as workers:
        for case in cases(["swiglu"], size=["small", "medium"], passes=["both"]):
            (record,) = workers.run("tessera.operators.bench:run_case", case, Sampling(budget=0.1))
            print(f"{case.key}: {record.metrics['time'].value * 1e6:.1f} µs")
