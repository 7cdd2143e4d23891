"""Benchmark one operator through its class: default inputs, other inputs, and another backend."""

from tessera.measure.samples import Sampling
from tessera.operators import Add

sampling = Sampling(budget=0.1)

add = Add(sampling=sampling)
add.run_benchmark()
add.print_benchmark_results()

add_float64 = Add(inputs={"dtype": "float64"}, sampling=sampling)
print(add_float64.inputs)
add_float64.run_benchmark()
add_float64.print_benchmark_results()

add_numpy = Add(backend="numpy", sampling=sampling)  # NumPy has no gradients: forward pass only
add_numpy.run_benchmark()
add_numpy.print_benchmark_results()
