"""`tessera.infer`: measure a whole network on replicas, with the options of the command `tessera infer`."""

from __future__ import annotations

from typing import Any

from tessera.inference.bench import measure_network
from tessera.measure.samples import Sampling
from tessera.results.record import Record


def infer(model: str = "resnet50", *, budget: float = 10.0, target: float = 0.02, **options: Any) -> Record:
    """Measure images per second and latency of a network; the outputs are compared with PyTorch first.

    `options` are the options of `tessera infer`, with underscores: `engine`, `batch_size`, `num_replicas`, …
    Sampling ends when the relative half-width of the throughput's confidence interval is `target`, or after `budget`
    seconds. A script must call this function under `if __name__ == "__main__":`, because replica processes import it.

        record = tessera.infer("resnet50", engine="openvino", batch_size=8, num_replicas=2)
        print(record.metrics["throughput"].value)
    """
    return measure_network(Sampling(budget=budget, target=target), model=model, **options)
