"""The frame of a feature's section: what the newest run found, part by part, and all of its records at the end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tessera.report.blocks import Block, Card, Cards, Section, Text
from tessera.report.generic import record_table, split_params
from tessera.report.runs import RunView


def newest_section(
    title: str, intro: str, runs: Sequence[RunView], *, cards: Sequence[Card], parts: Iterable[Section | None]
) -> Section:
    """Cards and parts are those of the newest run, the last; a part that has nothing to show is None.

    The other runs stand beside it in the comparison.
    """
    newest = runs[-1]
    blocks: list[Block] = []
    if len(runs) > 1:
        blocks.append(Text(f"Of {len(runs)} runs, the newest is shown: `{newest.name}`."))
    if cards:
        blocks.append(Cards(cards))
    blocks += [part for part in parts if part]
    if newest.records:
        varying, _ = split_params([record.case for record in newest.records])
        blocks.append(Section("All records", "", [record_table([newest], varying)]))
    return Section(title, intro, blocks)
