"""This host as it was calibrated: what weights cross on their way in, and what is computed meanwhile."""

from __future__ import annotations

from tessera.machine.hosts import load_host
from tessera.measure.environment import environment, host_fingerprint

# By the store and whether it is read past the page cache; weights that are mapped cross nothing.
LINKS = {("disk", True): "streaming", ("disk", False): "streaming_warm", ("host", False): "copy"}
# FLOPs that a host computes while one byte comes over a link, where it was not calibrated.
USUAL = {"streaming": 50.0, "streaming_warm": 16.0, "copy": 16.0}


def balance(store: str, *, cold: bool, dtype: str, cores: int) -> float:
    """FLOPs of a dtype that so many cores compute while one byte is loaded.

    Mapping pages takes at most as long as reading them from the page cache.
    """
    link = LINKS.get((store, cold), "streaming_warm")
    host = load_host(host_fingerprint(environment()))
    if host is None or link not in host.links or dtype not in host.flops:
        return USUAL[link]
    return host.rate(dtype, workers=cores) / host.bandwidth(link)
