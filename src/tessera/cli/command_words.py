"""Words that users type before they have read the help: `help ops`, `infer resnet50`, `halo` without a benchmark.

`correct_words` replaces them by the words of the command line that they plainly mean, and returns a note that says so.
"""

from __future__ import annotations

from collections.abc import Sequence

# Commands that take a network as their first word -> the option that names it.
MODEL_OPTIONS = {"infer": "--model", "phases": "--model"}
# `tessera halo` without any word: a size and a number of ranks at which an exchange takes measurable time.
HALO_EXAMPLE = (
    *("exchange", "--image-size", "1024", "--in-channels", "16"),
    *("--num-spatial-parts", "2", "--slice-method", "vertical"),
)


def correct_words(words: Sequence[str]) -> tuple[list[str], str]:
    """Return the words of a command line with plain mistakes corrected, and a note on the correction.

    >>> correct_words(["help", "ops"])
    (['ops', '--help'], '')
    >>> correct_words(["infer", "resnet50", "--quick"])
    (['infer', '--model', 'resnet50', '--quick'], 'tessera infer --model resnet50 --quick')
    >>> correct_words(["ops", "add"])
    (['ops', 'add'], '')
    """
    corrected = list(words)
    match corrected:
        case ["help"]:
            return ["--help"], ""
        case ["help", *topic]:
            return [*topic, "--help"], ""
        case ["halo"]:
            corrected = ["halo", *HALO_EXAMPLE]
        case [("infer" | "phases") as command, model, *rest] if not model.startswith("-"):
            corrected = [command, MODEL_OPTIONS[command], model, *rest]
    if corrected == list(words):
        return corrected, ""
    return corrected, " ".join(["tessera", *corrected])
