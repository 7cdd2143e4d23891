"""Define your own operators: `tessera ops --operators own_operators.py swiglu`, or run this file to measure one."""

from tessera.operators.operator import Input, Operator, count_per_output, make_sizes

OPERATORS = (
    Operator(
        name="swiglu",
        category="activation",
        torch="F.silu(gate) * data",
        reference="gate / (1 + np.exp(-gate)) * data",
        sizes=make_sizes(lambda n: {"gate": Input(shape=(n, n)), "data": Input(shape=(n, n))}, 64, 1024, 4096),
        flops=count_per_output(3),
    ),
)

if __name__ == "__main__":
    import tessera
    from tessera.operators import catalogue

    catalogue.use_operator_file(__file__)  # registers the operators in this process and in workers
    cases = tessera.cases("ops", names=["swiglu"], size=["small", "medium"], passes=["both"])
    for record in tessera.run(cases, launches=1, budget=0.1, store=":memory:", quiet=True):
        print(f"{record.case.key}: {record.metrics['time'].value * 1e6:.1f} µs")
