"""The directory that `--profile` writes: a page with the timelines, a trace for Chrome and Perfetto, and JSON."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tessera.errors import TesseraError
from tessera.files import replace_text
from tessera.phased.profile.chrome import chrome_trace
from tessera.phased.profile.page import profile_page
from tessera.phased.profile.pass_profile import PassProfile
from tessera.results import strict_json
from tessera.results.record import Record

FOLDER = "phases-profile"
PAGE, TRACE, DATA = "timeline.html", "trace.json", "profile.json"
PROFILE = "profile"  # what a record calls it among its conditions


def profile_of(record: Record) -> PassProfile | None:
    """The pass that a record carries; None where it has none, or one of another release."""
    data = record.conditions.get(PROFILE)
    if not isinstance(data, Mapping):
        return None
    try:
        return PassProfile.from_json(data)
    except (KeyError, TypeError, ValueError):
        return None


@contextmanager
def prepared(parent: Path) -> Iterator[Path]:
    """The folder of a profile, made and seen to be writable before anything is measured.

    What was made goes again at the end if nothing was written into it.
    """
    folder = parent / FOLDER
    made: list[Path] = []
    try:
        try:
            made = [place for place in (folder, *folder.parents) if not place.exists()]
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise _unwritable(folder, error, "give another place with --profile-dir") from None
        yield folder
    finally:
        with suppress(OSError):  # the first that is not empty stays, and all above it
            for place in made:
                place.rmdir()


def write_profile(profiles: Mapping[str, PassProfile], folder: Path) -> list[Path]:
    """Write the three files, each whole or not at all; gives their paths."""
    texts = {
        PAGE: profile_page(profiles),
        TRACE: strict_json.dumps(chrome_trace(profiles)),
        DATA: strict_json.dumps({case: _in_full(profile) for case, profile in profiles.items()}, indent=1),
    }
    for name, text in texts.items():
        try:
            replace_text(folder / name, text)
        except OSError as error:
            raise _unwritable(folder / name, error, "the results are stored; make room and profile again") from None
    return [folder / name for name in texts]


def _in_full(profile: PassProfile) -> dict[str, Any]:
    """A pass with names for everything, for programs that are not ours."""
    return {
        "seconds": profile.seconds,
        "ideal": profile.ideal,
        "efficiency": profile.efficiency,
        "hidden": profile.hidden,
        "idle": {str(device): profile.idle(device) for device in profile.devices},
        "phases": [_phase(profile, number) for number in range(len(profile.parts))],
        "events": [
            {
                "device": event.device,
                "phase": event.phase,
                "kind": event.kind,
                "start": event.start,
                "stop": event.stop,
                "bytes": event.bytes,
            }
            for event in profile.events
        ],
    }


def _phase(profile: PassProfile, number: int) -> dict[str, Any]:
    part, seen = profile.parts[number], profile.figures(number)
    return {
        "name": part.name,
        "bytes": part.bytes,
        "flops": part.flops,
        "load alone": part.load,
        "compute alone": part.compute,
        "ideal": part.ideal,
        "load": seen.load,
        "compute": seen.compute,
        "hidden": seen.hidden,
        "hand-over": seen.hand_over,
    }


def _unwritable(path: Path, error: OSError, do: str) -> TesseraError:
    return TesseraError(f"cannot write the profile: {error.strerror or error}", got=str(path), do=do)
