"""Single operators: what each costs, on every backend. `from tessera.operators import Add` gives one as a class."""

from __future__ import annotations

import typing


def __getattr__(name: str) -> typing.Any:
    """`Add`, `Conv2d`, … and `run_all_<category>_operations_benchmarks`, made when they are asked for."""
    if name[:1].isupper() or name.startswith("run_all_"):
        from tessera.operators import api

        found = api.benchmark_class(name) or api.category_runner(name)
        if found is not None:
            return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    from tessera.operators import api

    return sorted([*globals(), *api.class_names(), *api.runner_names()])
