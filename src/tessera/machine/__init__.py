"""What a machine can do: described in a file, or measured on this host; and what work should cost on it."""

from tessera.machine.catalogue import load_machine, machines
from tessera.machine.cost import balance, compute_time, roofline_fraction, transfer_time
from tessera.machine.hosts import load_host, save_host
from tessera.machine.links import fit_link
from tessera.machine.machine import DTYPES, LINKS, Link, Machine

__all__ = [
    "DTYPES",
    "LINKS",
    "Link",
    "Machine",
    "balance",
    "compute_time",
    "fit_link",
    "load_host",
    "load_machine",
    "machines",
    "roofline_fraction",
    "save_host",
    "transfer_time",
]
