"""Execution of planned convolutions in the memories of a device. Every byte moved is counted."""
