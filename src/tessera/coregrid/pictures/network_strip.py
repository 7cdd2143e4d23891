"""Drawings of a planned network: a strip of its layers, and the memory of a core over the layers."""

from __future__ import annotations

from tessera.coregrid.formats import Layout
from tessera.coregrid.network_tables import count_cores, describe_layout
from tessera.coregrid.networks.plan import NetworkPlan, NetworkPlanStep
from tessera.coregrid.planning.plan import MIB
from tessera.report.figures import format_seconds
from tessera.report.svg import build_svg, draw_rect, draw_text, get_series_colour

ROW_HEIGHT, BAR_HEIGHT, TOP = 15.0, 11.0, 74.0
NAME_LEFT, LAYOUT_LEFT, CORES_LEFT, MEMORY_LEFT, TIME_LEFT, BOUND_LEFT = 16.0, 210.0, 300.0, 420.0, 590.0, 850.0
CORES_WIDTH, MEMORY_WIDTH, TIME_WIDTH = 80.0, 110.0, 180.0
STRIP_WIDTH = 960.0
MAX_NAME_LENGTH = 28
LAYOUT_SERIES = {"HEIGHT": 0, "BLOCK": 1, "WIDTH": 2, "global": 3}
MAP_LEFT, MAP_TOP, MAP_WIDTH, MAP_HEIGHT = 70.0, 74.0, 860.0, 260.0


def draw_network(plan: NetworkPlan, *, standalone: bool = True) -> str:
    """Draw the layers of a network as SVG, one row each: layout, cores in use, memory of a core, time, bound by."""
    longest = max(step.total for step in plan.steps)
    drawn = [
        draw_text(NAME_LEFT, 24, f"{plan.network.name}, batch {plan.network.batch}", font_size=15, font_weight=650),
        draw_text(
            NAME_LEFT,
            42,
            f"{plan.machine.name}: {format_seconds(plan.seconds)}, {plan.images_per_second:,.0f} images/s predicted",
            fill="var(--muted)",
        ),
    ]
    for left, heading in (
        (NAME_LEFT, "layer"),
        (LAYOUT_LEFT, "layout"),
        (CORES_LEFT, f"cores of {plan.machine.workers.size}"),
        (MEMORY_LEFT, f"MiB of {plan.machine.local_memory / MIB:.2f}"),
        (TIME_LEFT, "time"),
        (BOUND_LEFT, "bound by"),
    ):
        drawn.append(draw_text(left, TOP - 8, heading, font_weight=650, font_size=11))
    for number, step in enumerate(plan.steps):
        drawn += _draw_step(plan, step, TOP + number * ROW_HEIGHT, longest)
    height = TOP + len(plan.steps) * ROW_HEIGHT
    drawn.append(_draw_layout_legend(height + 22))
    label = f"layers of {plan.network.name}"
    return build_svg("".join(drawn), STRIP_WIDTH, height + 40, label, standalone=standalone)


def _draw_step(plan: NetworkPlan, step: NetworkPlanStep, y: float, longest: float) -> list[str]:
    layout, cores = describe_layout(step), count_cores(step)
    colour = _get_layout_colour(step)
    base = y + BAR_HEIGHT - 2
    name = step.name if len(step.name) <= MAX_NAME_LENGTH else "…" + step.name[1 - MAX_NAME_LENGTH :]
    drawn = [
        draw_text(NAME_LEFT, base, name, font_size=10),
        draw_rect(LAYOUT_LEFT, y, 8, BAR_HEIGHT, layout, fill=colour, fill_opacity=0.8),
        draw_text(LAYOUT_LEFT + 12, base, layout.partition(" in ")[0], font_size=10),
    ]
    for left, width, share, words in (
        (CORES_LEFT, CORES_WIDTH, cores / plan.machine.workers.size, str(cores) if cores else ""),
        (MEMORY_LEFT, MEMORY_WIDTH, step.memory / plan.machine.local_memory, f"{step.memory / MIB:.2f}"),
    ):
        drawn.append(draw_rect(left, y, width, BAR_HEIGHT, "", fill="currentColor", fill_opacity=0.06))
        if share > 0:
            drawn.append(draw_rect(left, y, max(width * share, 0.5), BAR_HEIGHT, words, fill=colour, fill_opacity=0.6))
        drawn.append(draw_text(left + width + 4, base, words, font_size=10, fill="var(--muted)"))
    x = TIME_LEFT
    for seconds, opacity, words in (
        (step.seconds, 0.7, "kernels"),
        (step.moving, 0.35, "moves"),
        (step.launching, 0.15, "launches"),
    ):
        wide = seconds / longest * TIME_WIDTH
        if wide > 0:
            drawn.append(
                draw_rect(
                    x, y, wide, BAR_HEIGHT, f"{words}: {format_seconds(seconds)}", fill=colour, fill_opacity=opacity
                )
            )
        x += wide
    drawn.append(draw_text(x + 4, base, format_seconds(step.total), font_size=10, fill="var(--muted)"))
    drawn.append(draw_text(BOUND_LEFT, base, step.bound, font_size=10))
    return drawn


def _get_layout_colour(step: NetworkPlanStep) -> str:
    layout = describe_layout(step)
    return get_series_colour(LAYOUT_SERIES["global" if "slices" in layout else layout])


def _draw_layout_legend(y: float) -> str:
    drawn, x = [], NAME_LEFT
    for layout, series in LAYOUT_SERIES.items():
        words = "through global memory" if layout == "global" else layout
        drawn.append(draw_rect(x, y - 10, 10, 10, "", fill=get_series_colour(series), fill_opacity=0.8))
        drawn.append(draw_text(x + 15, y - 1, words, font_size=11))
        x += 40 + len(words) * 7.0
    drawn.append(
        draw_text(x, y - 1, "time: kernels, moves (lighter), launches (lightest)", font_size=11, fill="var(--muted)")
    )
    return "".join(drawn)


def draw_lifetimes(plan: NetworkPlan, *, standalone: bool = True) -> str:
    """Draw the memory of a core over the layers as SVG: the buffers of each layer, and tensors that wait above them."""
    width, scale = MAP_WIDTH / len(plan.steps), MAP_HEIGHT / plan.machine.local_memory
    floor = MAP_TOP + MAP_HEIGHT
    drawn = [
        draw_text(16, 24, "memory of a core over the layers", font_size=15, font_weight=650),
        draw_text(
            16,
            42,
            "colours: outputs that wait for a later layer; grey: buffers of the layer that runs",
            fill="var(--muted)",
        ),
        draw_rect(MAP_LEFT, MAP_TOP, MAP_WIDTH, MAP_HEIGHT, "", fill="none", stroke="currentColor", stroke_opacity=0.4),
        draw_text(
            MAP_LEFT - 6, MAP_TOP + 8, f"{plan.machine.local_memory / MIB:.2f} MiB", text_anchor="end", font_size=11
        ),
        draw_text(MAP_LEFT - 6, floor, "0", text_anchor="end", font_size=11),
    ]
    waiting = list_waiting_tensors(plan)
    for number, step in enumerate(plan.steps):
        held = waiting[number]
        x, running = MAP_LEFT + number * width, step.memory - sum(held.values())
        y = floor
        for tensor, count in sorted(held.items()):
            tall = count * scale
            name = plan.network.layers[tensor].name
            look = {"fill": get_series_colour(tensor), "fill_opacity": 0.75}
            drawn.append(draw_rect(x, y - tall, width, tall, f"{name}: {count:,} bytes, during {step.name}", **look))
            y -= tall
        tall = max(running, 0) * scale
        words = f"{step.name}: {running:,} bytes"
        drawn.append(draw_rect(x, y - tall, max(width - 0.6, 0.4), tall, words, fill="currentColor", fill_opacity=0.25))
    for number in range(0, len(plan.steps), max(1, len(plan.steps) // 8)):
        drawn.append(draw_text(MAP_LEFT + number * width, floor + 14, plan.steps[number].name[-16:], font_size=10))
    return build_svg(
        "".join(drawn), MAP_LEFT + MAP_WIDTH + 40, floor + 28, "memory over the layers", standalone=standalone
    )


def list_waiting_tensors(plan: NetworkPlan) -> list[dict[int, int]]:
    """Return for every step the tensors on the cores that the step does not read, with their bytes per core."""
    last = plan.network.find_last_uses()
    places: dict[int, int] = {}
    waiting = []
    for step in plan.steps:
        for tensor in step.spilled:
            places.pop(tensor, None)
        inputs = plan.network.layers[step.number].inputs
        waiting.append({tensor: count for tensor, count in places.items() if tensor not in inputs})
        for index, tensor in enumerate(dict.fromkeys(inputs)):
            if tensor in places and (last[tensor] == step.number or step.option.sources[index] is None):
                del places[tensor]
        target = step.option.target
        if target is not None and last[step.number] > step.number:
            places[step.number] = plan.config.dtype.count_bytes(target.height, target.width, Layout.TILE)
    return waiting
