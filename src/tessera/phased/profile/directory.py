"""The directory that `--profile` writes: a page with timelines, a trace for Chrome and Perfetto, and JSON."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tessera.errors import TesseraError
from tessera.files import replace_text
from tessera.phased.profile.chrome import build_chrome_trace
from tessera.phased.profile.page import build_profile_page
from tessera.phased.profile.pass_profile import PassProfile
from tessera.results import strict_json

PROFILE_FOLDER = "phases-profile"
PAGE_FILE, TRACE_FILE, DATA_FILE = "timeline.html", "trace.json", "profile.json"


@contextmanager
def prepare_directory(parent: Path) -> Iterator[Path]:
    """Create the directory of a profile and check that it is writable, before anything is measured.

    Directories that were created are removed at the end if they are empty.
    """
    folder = parent / PROFILE_FOLDER
    created: list[Path] = []
    try:
        try:
            created = [path for path in (folder, *folder.parents) if not path.exists()]
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise _build_write_error(folder, error, "choose another directory with --profile-dir") from None
        yield folder
    finally:
        with suppress(OSError):  # a directory that is not empty is kept, and so are its parents
            for path in created:
                path.rmdir()


def write_profile(profiles: Mapping[str, PassProfile], folder: Path) -> list[Path]:
    """Write the three files, each complete or not at all, and return their paths."""
    texts = {
        PAGE_FILE: build_profile_page(profiles),
        TRACE_FILE: strict_json.dumps(build_chrome_trace(profiles)),
        DATA_FILE: strict_json.dumps({case: _profile_to_dict(profile) for case, profile in profiles.items()}, indent=1),
    }
    for name, text in texts.items():
        try:
            replace_text(folder / name, text)
        except OSError as error:
            raise _build_write_error(
                folder / name, error, "the results are stored; free some space and profile again"
            ) from None
    return [folder / name for name in texts]


def _profile_to_dict(profile: PassProfile) -> dict[str, Any]:
    """Return a pass as nested dicts with named values, for other programs."""
    return {
        "seconds": profile.seconds,
        "ideal": profile.ideal,
        "efficiency": profile.efficiency,
        "hidden": profile.hidden,
        "idle": {str(device): profile.get_idle_seconds(device) for device in profile.devices},
        "phases": [_phase_to_dict(profile, number) for number in range(len(profile.phases))],
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


def _phase_to_dict(profile: PassProfile, number: int) -> dict[str, Any]:
    cost, times = profile.phases[number], profile.get_phase_times(number)
    return {
        "name": cost.name,
        "bytes": cost.bytes,
        "flops": cost.flops,
        "load alone": cost.load,
        "compute alone": cost.compute,
        "ideal": cost.ideal,
        "load": times.load,
        "compute": times.compute,
        "hidden": times.hidden,
        "hand-over": times.hand_over,
    }


def _build_write_error(path: Path, error: OSError, do: str) -> TesseraError:
    return TesseraError(f"cannot write the profile: {error.strerror or error}", got=str(path), do=do)
