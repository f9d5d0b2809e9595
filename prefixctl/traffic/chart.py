"""Hit rate against capacity as a self-contained SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import ceil, log10
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 720, 420
LEFT, RIGHT, TOP, BOTTOM = 64, 150, 40, 56
COLOURS = (
    "#1f5fa8", "#c4501b", "#2b8a3e", "#7b3fa0", "#a8841f", "#5c6670", "#b02a5b", "#127a7a",
    "#8a5a2b", "#444444",
)  # fmt: skip
STEPS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2)
MOST_LINES = 6
LABEL_WIDTH = 48


def draw_frontier(title: str, curves: Mapping[str, Sequence[tuple[int, float]]]) -> str:
    """A chart with one line for each policy.

    Args:
        title: What it shows.
        curves: For each policy the points (capacity in blocks, hit rate from 0 to 1).

    Returns:
        The SVG document.
    """
    capacities = sorted({capacity for curve in curves.values() for capacity, _ in curve})
    highest = max((rate for curve in curves.values() for _, rate in curve), default=0.0)
    step = next((step for step in STEPS if highest <= step * MOST_LINES), STEPS[-1])
    lines = max(ceil(highest / step - 1e-9), 1)
    top = step * lines
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="system-ui, sans-serif" font-size="12" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="24" font-size="15" fill="#222">{escape(title)}</text>',
        *_axes(capacities, step, lines),
    ]
    for index, (name, curve) in enumerate(curves.items()):
        parts += _curve(index, name, curve, capacities, top)
    return "\n".join([*parts, "</svg>", ""])


def _x(capacity: int, capacities: Sequence[int]) -> float:
    low, high = log10(max(capacities[0], 1)), log10(max(capacities[-1], 1))
    part = (log10(max(capacity, 1)) - low) / (high - low) if high > low else 0.5
    return LEFT + part * (WIDTH - LEFT - RIGHT)


def _y(rate: float, top: float) -> float:
    return HEIGHT - BOTTOM - rate / top * (HEIGHT - TOP - BOTTOM)


def _axes(capacities: Sequence[int], step: float, lines: int) -> list[str]:
    parts = []
    for line in range(lines + 1):
        rate = step * line
        y = _y(rate, step * lines)
        parts.append(
            f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#e3e3e3"/>'
            f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="#555">{rate:.3f}</text>'
        )
    labelled = -float(LABEL_WIDTH)
    for capacity in capacities:
        x = _x(capacity, capacities)
        parts.append(f'<path d="M{x:.1f} {HEIGHT - BOTTOM}v5" stroke="#888"/>')
        if x - labelled < LABEL_WIDTH:
            continue
        labelled = x
        parts.append(
            f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 19}" text-anchor="middle" '
            f'fill="#555">{capacity:,}</text>'
        )
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(
        f'<text x="{middle:.0f}" y="{HEIGHT - 12}" text-anchor="middle" fill="#222">'
        "capacity in blocks, logarithmic; hit rate upwards</text>"
    )
    return parts


def _curve(
    index: int,
    name: str,
    curve: Sequence[tuple[int, float]],
    capacities: Sequence[int],
    top: float,
) -> list[str]:
    colour = COLOURS[index % len(COLOURS)]
    points = [(_x(capacity, capacities), _y(rate, top)) for capacity, rate in sorted(curve)]
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    legend = TOP + 16 + 20 * index
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in points)
    return [
        f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2"/>{dots}',
        f'<path d="M{WIDTH - RIGHT + 14} {legend}h18" stroke="{colour}" stroke-width="3"/>'
        f'<text x="{WIDTH - RIGHT + 38}" y="{legend + 4}" fill="#222">{escape(name)}</text>',
    ]
