"""One operator as a class: default inputs, inputs of one's own, and another backend."""

from tessera.measure.samples import Sampling
from tessera.operators import Add

brief = Sampling(budget=0.1)

add = Add(sampling=brief)
add.run_benchmark()
add.print_benchmark_results()

wide = Add(inputs={"dtype": "float64"}, sampling=brief)
print(wide.inputs)
wide.run_benchmark()
wide.print_benchmark_results()

plain = Add(backend="numpy", sampling=brief)  # which has no gradients: forward alone
plain.run_benchmark()
plain.print_benchmark_results()
