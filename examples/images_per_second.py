"""Images per second of a network in two engines, each on a pinned replica, held against torch before it is timed."""

from tessera.inference.bench import measure
from tessera.measure.samples import Sampling

if __name__ == "__main__":
    for engine in ("torch-eager", "torch-channels-last"):
        record = measure(
            Sampling(budget=1.0, target=0.05), model="resnet18", image_size=64, engine=engine, batch_size=4
        )
        rate, latency = record.metrics["throughput"], record.metrics["latency_p50"]
        print(f"{engine}: {rate.value:.1f} images/s, {latency.value * 1e3:.1f} ms for a batch of 4")
