"""Benchmarks of single operators on every backend. Each operator is a class: `from tessera.operators import Add`."""

from __future__ import annotations

import typing


def __getattr__(name: str) -> typing.Any:
    """Create classes (`Add`, `Conv2d`, …) and `run_all_<category>_operations_benchmarks` functions at first use."""
    if name[:1].isupper() or name.startswith("run_all_"):
        from tessera.operators import api

        value = api.get_benchmark_class(name) or api.get_category_runner(name)
        if value is not None:
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    from tessera.operators import api

    return sorted([*globals(), *api.list_class_names(), *api.list_runner_names()])
