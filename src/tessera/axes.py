"""Declarations of command-line options and of case parameters (axes), each declared once as data.

An `Option` is one option of a command: spelling, allowed values, default and help text. An `Axis` is an option that is
also a parameter of the cases of a feature. It has one or more values; `Axes.expand` combines the values of all axes
into cases. Everything else is derived from these declarations: command-line options and `--sweep`
(`tessera.cli.options`), validation, case keys (`Axes.omit_defaults`) and the options tables of the docs
(`tessera.cli.options_table`).

>>> axes = Axes("demo", (Axis(name="size", parse=parse_int, default=8), Axis(name="mode", choices=("a", "b"))))
>>> values = axes.read_values({"mode": "a"}, sweeps=["size=1,2"])
>>> list(axes.expand(values))
[{'size': 1, 'mode': 'a'}, {'size': 2, 'mode': 'a'}]
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from typing import Any, Literal, TypeVar

from tessera.errors import TesseraError, suggest_similar

Action = Literal["store", "flag", "on_off", "append", "const"]
InKey = Literal["always", "unless_default", "never"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option of a command.

    `name` is the attribute of the parsed arguments; `option` is the spelling if it differs from `--name`. `help` is a
    noun phrase; choices and default are appended to it. `default_text` describes a default that is not a plain value.
    `applies_to` names the benchmarks (or sources, modes, …) that read the option; empty means all.

    `parse` converts text to one value. An option with `several` takes a comma-separated list; `parse_list`, if set,
    parses the whole list. `action` is "store" for a value, "flag" for True, "on_off" for `--name` and `--no-name`,
    "append" for an option that can be repeated, "const" for `const`. Options with equal `exclusive` are mutually
    exclusive. `positional` is the placeholder of a positional argument. A `hidden` option is not listed by help.
    """

    name: str
    help: str = ""
    option: str = ""
    aliases: tuple[str, ...] = ()
    parse: Callable[[str], Any] = str
    default: Any = None
    default_text: str = ""
    choices: Collection[Any] = ()
    minimum: int | None = None
    check: Callable[[Any], object] | None = None
    metavar: str = ""
    group: str = ""
    action: Action = "store"
    const: Any = None
    several: bool = False
    parse_list: Callable[[str], list[Any]] | None = None
    applies_to: tuple[str, ...] = ()
    exclusive: str = ""
    positional: str = ""
    hidden: bool = False

    @property
    def flag(self) -> str:
        """Return the spelling of the option on the command line.

        >>> Option(name="image_size").flag
        '--image-size'
        """
        return self.option or f"--{self.name.replace('_', '-')}"

    @property
    def dest(self) -> str:
        """Return the attribute of the parsed arguments."""
        return self.name

    @property
    def value_name(self) -> str:
        """Return the placeholder of the value in help texts."""
        plain = self.metavar or ("N" if self.parse is parse_int else SIZE_NAMES.get(self.parse, "NAME"))
        return f"{plain},…" if self.several and not self.metavar else plain

    @property
    def default_label(self) -> str:
        """Return the text of the default in help texts; empty if there is no default.

        >>> Option(name="size", default=("small", "medium"), several=True).default_label
        'small,medium'
        """
        if self.default_text or self.default is None or self.action == "const":
            return self.default_text
        if isinstance(self.default, bool):
            return {"on_off": ("off", "on"), "store": ("false", "true")}.get(self.action, ("", ""))[self.default]
        return ",".join(map(str, self.default)) if isinstance(self.default, tuple | list) else str(self.default)

    @property
    def values_label(self) -> str:
        """Return the text of the allowed values in help texts; empty if any value of the type is allowed."""
        return ", ".join(str(choice) for choice in self.choices if choice != "" and not isinstance(choice, bool))

    @property
    def help_line(self) -> str:
        """Return the complete help text: description, allowed values, default.

        >>> Option(name="dtype", help="element type", choices=("float32", "int8"), default="float32").help_line
        'element type: float32, int8 (default: float32)'
        """
        allowed = f": {self.values_label}" if self.values_label else ""
        default = f" (default: {self.default_label})" if self.default_label else ""
        return f"{self.help}{allowed}{default}"

    def parse_values(self, text: str) -> list[Any]:
        """Parse a list of values, separated by commas, or by semicolons if values contain commas.

        >>> Option(name="size", parse=parse_int).parse_values("1, 2"), Option(name="pad").parse_values("0,1;2,3")
        ([1, 2], ['0,1', '2,3'])
        """
        if self.parse_list is not None and ";" not in text:
            return self.parse_list(text)
        return [self.parse_one(part) for part in split_list(text, ";" if ";" in text else ",")]

    def parse_one(self, text: str) -> Any:
        """Parse one value; a choice may be written in lower or upper case.

        >>> Option(name="layout", choices=("HEIGHT", "auto")).parse_one("height")
        'HEIGHT'
        """
        value = self.parse(text)
        if not isinstance(value, str) or not self.choices or value in self.choices:
            return value
        matches = [choice for choice in self.choices if str(choice).lower() == value.lower()]
        return matches[0] if len(matches) == 1 else value

    def check_value(self, value: Any) -> None:
        """Raise an error for a value that is not allowed."""
        if self.choices and value not in self.choices:
            allowed = [str(choice) for choice in self.choices if choice != ""]
            label = self.flag.lstrip("-").replace("-", " ")
            raise TesseraError(f"unknown {label}", got=value, allowed=allowed, do=suggest_similar(str(value), allowed))
        if self.minimum is not None and (
            isinstance(value, bool) or not isinstance(value, int | float) or value < self.minimum
        ):
            raise TesseraError(self.flag, got=value, allowed=f"{self.minimum} or more")
        if self.check is not None:
            self.check(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis(Option):
    """An option that is also a case parameter; `name` is the name of the parameter.

    `default` is one value or a tuple of values; None means that the default depends on other axes. `defaults` replaces
    `default` for single benchmarks. `in_key` is the condition under which the parameter is part of the case and its
    key. An axis with `ignored_elsewhere` is accepted, with a note, by benchmarks that it does not apply to.
    """

    defaults: Mapping[str, Any] = field(default_factory=dict)
    in_key: InKey = "always"
    ignored_elsewhere: bool = False

    @property
    def dest(self) -> str:
        """Return the attribute of the parsed arguments, such as `weight_store` for `--weight-store`."""
        return self.flag.lstrip("-").replace("-", "_")

    @property
    def default_values(self) -> tuple[Any, ...]:
        """Return the default values of the axis; empty if they depend on other axes."""
        return () if self.default is None else self.default if isinstance(self.default, tuple) else (self.default,)

    def for_benchmark(self, benchmark: str) -> Axis:
        """Return the axis with the default that it has for a benchmark."""
        if benchmark not in self.defaults:
            return self
        return replace(self, default=self.defaults[benchmark], default_text="", defaults={})


OptionT = TypeVar("OptionT", bound=Option)


def group_options(group: str, *options: OptionT, **common: Any) -> tuple[OptionT, ...]:
    """Return the options, all of them in one group of the help text and with the `common` fields."""
    return tuple(replace(option, group=group, **common) for option in options)


@dataclass(frozen=True, slots=True)
class Axes:
    """The axes of the cases of one feature, in the order in which cases are expanded."""

    feature: str
    axes: tuple[Axis, ...]

    def __iter__(self) -> Iterator[Axis]:
        return iter(self.axes)

    def __contains__(self, name: object) -> bool:
        return any(axis.name == name for axis in self.axes)

    def __getitem__(self, name: str) -> Axis:
        """Return the axis of this name, or raise an error that suggests a similar one."""
        for axis in self.axes:
            if axis.name == name:
                return axis
        names = [axis.name for axis in self.axes]
        raise TesseraError(f"unknown axis of {self.feature}", got=name, allowed=names, do=suggest_similar(name, names))

    def select(self, benchmark: str) -> Axes:
        """Return the axes that apply to a benchmark, with the defaults for that benchmark."""
        return Axes(
            self.feature, tuple(axis.for_benchmark(benchmark) for axis in self.axes if is_applicable(axis, benchmark))
        )

    def without(self, *names: str) -> Axes:
        """Return the axes except those called `names`."""
        return Axes(self.feature, tuple(axis for axis in self.axes if axis.name not in names))

    def get_options(self, benchmark: str) -> list[Axis]:
        """Return the axes that a benchmark accepts as options: axes that apply to it, and axes that it ignores."""
        return [
            axis.for_benchmark(benchmark)
            for axis in self.axes
            if is_applicable(axis, benchmark) or axis.ignored_elsewhere
        ]

    def read_values(self, arguments: Mapping[str, Any], sweeps: Sequence[str] = ()) -> dict[str, list[Any]]:
        """Return the values of every axis that the user set with its option or with `--sweep`, by axis name."""
        given = [(axis, value) for axis in self.axes if (value := arguments.get(axis.dest)) is not None]
        values = {axis.name: list(value) if axis.several else [value] for axis, value in given}
        for item in sweeps:
            axis, swept = self.parse_sweep(item)
            if axis.name in values:
                raise TesseraError(f"{axis.flag} is given twice, by its option and by --sweep or by two sweeps")
            values[axis.name] = swept
        return values

    def parse_sweep(self, item: str) -> tuple[Axis, list[Any]]:
        """Parse the value of one `--sweep`: `OPTION=A,B`, or `OPTION=A;B` if values contain commas."""
        name, equals, text = item.partition("=")
        options = {axis.flag.removeprefix("--"): axis for axis in self.axes}
        axis = options.get(name.strip().removeprefix("--").replace("_", "-"))
        if not equals or axis is None:
            raise TesseraError(
                "invalid --sweep",
                got=item,
                allowed="OPTION=A,B with an option of the cases",
                do=suggest_similar(name, options),
            )
        if not text.strip(" ,;"):
            raise TesseraError("--sweep has no values", got=item, allowed="OPTION=A,B")
        return axis, axis.parse_values(text)

    def check_values(self, values: Mapping[str, Sequence[Any]]) -> None:
        """Raise an error for an unknown axis, an axis without values, or a value that is not allowed."""
        for name, axis_values in values.items():
            axis = self[name]
            if isinstance(axis_values, str) or not isinstance(axis_values, Sequence):
                raise TesseraError(f"{name} must be a list of values", got=axis_values)
            if not axis_values:
                allowed = axis.values_label or None
                raise TesseraError(f"{axis.flag} has no values", allowed=allowed, do="give one or more, or omit it")
            for value in axis_values:
                axis.check_value(value)

    def check_applicable(self, names: Iterable[str], benchmarks: Sequence[str]) -> None:
        """Raise an error for an axis that applies to none of the benchmarks."""
        check_applicable([self[name] for name in names], benchmarks)

    def drop_ignored(self, values: dict[str, list[Any]], benchmark: str) -> list[str]:
        """Remove from `values` the axes that a benchmark accepts but ignores; return a note for each removed axis."""
        ignored = [axis for axis in self.axes if axis.name in values and axis.ignored_elsewhere]
        notes = []
        for axis in ignored:
            if not is_applicable(axis, benchmark):
                del values[axis.name]
                notes.append(f"{axis.flag} has no effect on {benchmark}")
        return notes

    def expand(self, values: Mapping[str, Sequence[Any]]) -> Iterator[dict[str, Any]]:
        """Yield every combination of axis values as case parameters; axes without values and default are left out."""
        chosen = {axis.name: values.get(axis.name) or axis.default_values for axis in self.axes}
        chosen = {name: axis_values for name, axis_values in chosen.items() if axis_values}
        for combination in itertools.product(*chosen.values()):
            yield dict(zip(chosen, combination, strict=True))

    def omit_defaults(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters that are part of a case; `Axis.in_key` says which axes are left out."""
        key_params = dict(params)
        for axis in self.axes:
            is_default = key_params.get(axis.name) in axis.default_values
            if axis.in_key == "never" or (axis.in_key == "unless_default" and is_default):
                key_params.pop(axis.name, None)
        return key_params


def declare_axis(default: Any = None, *, default_factory: Callable[[], Any] | None = None, **axis: Any) -> Any:
    """Declare a field of a dataclass as an axis; the keywords `axis` are the fields of the `Axis`.

    >>> @dataclass(frozen=True)
    ... class Settings:
    ...     batch_size: int = declare_axis(1, help="images per batch", minimum=1, in_key="always")
    ...     seed: int = declare_axis(0, help="seed of random weights")
    >>> [axis.help_line for axis in collect_axes(Settings)], collect_params(Settings(seed=3))
    (['images per batch (default: 1)', 'seed of random weights (default: 0)'], {'batch_size': 1, 'seed': 3})
    """
    metadata = {"axis": {"in_key": "unless_default"} | axis}
    if default_factory is not None:
        return field(default_factory=default_factory, metadata=metadata)
    return field(default=default, metadata=metadata)


def collect_axes(*classes: type[Any]) -> tuple[Axis, ...]:
    """Return the axes that are declared as fields of dataclasses with `declare_axis`."""
    for each in classes:
        if each not in _AXES_BY_CLASS:
            _AXES_BY_CLASS[each] = tuple(
                _make_axis(declared) for declared in fields(each) if "axis" in declared.metadata
            )
    return tuple(axis for each in classes for axis in _AXES_BY_CLASS[each])


_AXES_BY_CLASS: dict[type[Any], tuple[Axis, ...]] = {}


def _make_axis(declared: Field[Any]) -> Axis:
    default = None if declared.default is MISSING else declared.default
    parse = parse_bool if isinstance(default, bool) else parse_int if isinstance(default, int) else str
    return Axis(**({"name": declared.name, "default": default, "parse": parse} | declared.metadata["axis"]))


def check_fields(instance: Any) -> None:
    """Raise an error for a field with a type other than its default's, or with a value that its axis does not allow.

    Values may come from files, so types are checked too: `batch_size = "8"` is an error.
    """
    names = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}
    for axis in collect_axes(type(instance)):
        value, wanted = getattr(instance, axis.name), type(axis.default)
        if wanted in names and type(value) not in ((int, float) if wanted is float else (wanted,)):
            raise TesseraError(f"wrong type for {axis.flag}", got=value, allowed=names[wanted])
        axis.check_value(value)


def collect_params(instance: Any) -> dict[str, Any]:
    """Return the case parameters of a dataclass instance (see `Axis.in_key`)."""
    axes = collect_axes(type(instance))
    return Axes("", axes).omit_defaults({axis.name: getattr(instance, axis.name) for axis in axes})


def is_applicable(option: Option, benchmark: str) -> bool:
    """Return whether a benchmark reads an option."""
    return not option.applies_to or benchmark in option.applies_to


def check_applicable(options: Iterable[Option], selected: Sequence[str]) -> None:
    """Raise an error for an option that applies to none of the selected benchmarks, modes or sources.

    >>> check_applicable([Option(name="batch_size", applies_to=("--from-model",))], ["the catalogue"])
    Traceback (most recent call last):
    tessera.errors.TesseraError: --batch-size applies only to --from-model: got 'the catalogue'
    """
    for option in options:
        if not any(is_applicable(option, name) for name in selected):
            allowed = " and ".join(option.applies_to)
            label = option.positional or option.flag
            raise TesseraError(f"{label} applies only to {allowed}", got=" and ".join(selected))


def split_list(text: str, separator: str = ",") -> list[str]:
    """Split text at a separator into words without surrounding spaces; empty words are dropped.

    >>> split_list("a, b,")
    ['a', 'b']
    """
    return [part.strip() for part in text.split(separator) if part.strip()]


def parse_int(text: str) -> int:
    """Parse a whole number."""
    try:
        return int(text)
    except ValueError:
        raise TesseraError("not a whole number", got=text) from None


def parse_bool(text: str) -> bool:
    """Parse `true` or `false`."""
    if text not in ("true", "false"):
        raise TesseraError("not true or false", got=text, allowed="true, false")
    return text == "true"


def parse_fraction(text: str) -> float:
    """Parse a fraction between 0 and 1 (both exclusive), written as a number or in per cent.

    >>> parse_fraction("3%"), parse_fraction("0.03")
    (0.03, 0.03)
    """
    try:
        value = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1:
        raise TesseraError("not a fraction", got=text, allowed="for example 3% or 0.03, above 0 and below 1")
    return value


def parse_size(text: str) -> list[int]:
    """Parse a height and a width; a single number means both.

    >>> parse_size("64"), parse_size("64x128")
    ([64, 64], [64, 128])
    """
    parts = text.lower().split("x")
    if len(parts) > 2 or not all(part.strip().isdecimal() for part in parts):
        raise TesseraError("not a size", got=text, allowed="a number, or HEIGHTxWIDTH")
    return [int(parts[0]), int(parts[-1])]


def parse_dims(text: str) -> int | list[int]:
    """Parse a size of each dim of an image or a volume; a single number means all dims.

    >>> parse_dims("64"), parse_dims("64x128"), parse_dims("16x64x128")
    (64, [64, 128], [16, 64, 128])
    """
    parts = text.lower().split("x")
    if len(parts) > 3 or not all(part.strip().isdecimal() for part in parts):
        raise TesseraError("not a size", got=text, allowed="a number, HEIGHTxWIDTH, or DEPTHxHEIGHTxWIDTH")
    return int(parts[0]) if len(parts) == 1 else [int(part) for part in parts]


SIZE_NAMES: dict[Any, str] = {parse_size: "N|HxW", parse_dims: "N|HxW|DxHxW"}


def shorten_pair(pair: Sequence[int]) -> int | list[int]:
    """Return a pair in the form of case parameters: one number if both are equal, otherwise a list.

    >>> shorten_pair([3, 3]), shorten_pair((3, 5))
    (3, [3, 5])
    """
    first, second = pair
    return first if first == second else [first, second]
