"""Measure images per second of a network in two engines, each on a pinned replica."""

import tessera

if __name__ == "__main__":
    for engine in ("torch-eager", "torch-channels-last"):
        record = tessera.infer("resnet18", image_size=64, engine=engine, batch_size=4, budget=1.0, target=0.05)
        rate, latency = record.metrics["throughput"], record.metrics["latency_p50"]
        print(f"{engine}: {rate.value:.1f} images/s, {latency.value * 1e3:.1f} ms for a batch of 4")
