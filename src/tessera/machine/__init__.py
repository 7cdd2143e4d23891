"""Machine descriptions, from data files or from calibration of this host, and the cost model."""

from tessera.machine.catalogue import load_host, load_machine, load_machines, save_host
from tessera.machine.cost import compute_balance, compute_roofline_fraction, compute_time, transfer_time
from tessera.machine.machine import DTYPES, LINKS, OVERHEADS, Link, Machine, fit_link

__all__ = [
    "DTYPES",
    "LINKS",
    "OVERHEADS",
    "Link",
    "Machine",
    "compute_balance",
    "compute_roofline_fraction",
    "compute_time",
    "fit_link",
    "load_host",
    "load_machine",
    "load_machines",
    "save_host",
    "transfer_time",
]
