"""Benchmark your own functions: `tessera run own_benchmarks.py`, or run this file to use them from Python."""

import tessera


@tessera.benchmark(size=[1_000, 100_000])
def sort_list(size):
    data = list(range(size, 0, -1))  # set-up, not timed
    return lambda: sorted(data)  # timed


if __name__ == "__main__":
    result = tessera.run(sort_list, launches=2, budget=0.1, store=":memory:", quiet=True)
    for record in result:
        print(f"sort_list of {record.case.params['size']}: {record.metrics['time'].value * 1e6:.1f} µs")
