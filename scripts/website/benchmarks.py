"""A page and a plot of what scripts/bench.py has measured."""

from __future__ import annotations

import html
import math
from typing import Any

__all__ = ["markdown", "plot"]

_HEAD = """\
# Benchmarks

What visruntime costs, made by `scripts/generate_documents.py` from the figures that
`scripts/bench.py` wrote; a check fails when this page is not what the figures say.

A machine drifts by a factor of two or three, so times alone say little. Each row has a baseline
that was measured in the same run, one after the other in changing order, and its figure is the
median of the ratios of {rounds} rounds. A ratio of 1 is as fast as the baseline; less is faster.
Goals are ratios too, and those that are not met are shown like the others.

Measured on {date} with visruntime {version}, CPython {python}, uid {uid}, Linux {kernel} on
{architecture}, {processors} processors, with nothing else running. To measure on your machine:
`uv run python scripts/bench.py --json FILE`.

![Ratios and goals of all rows on a logarithmic scale; the table has the same figures.]({plot})

| | Ours / baseline | Ratio | Goal | |
|---|---|---|---|---|
"""

_TIMES = """
## Times and peers

Milliseconds of both sides in that run (mebibytes in row 11), and what others took for the same, as
their ratio to the baseline (in row 16, what one more jail takes).

| | Ours | Baseline | Others |
|---|---|---|---|
"""

_WIDTH = 360
_LEFT, _RIGHT = 16, 344
_TOP, _ROW = 64, 34
_LEAST, _MOST = 1 / 64, 8.0
"""Ends of the scale; what lies beyond is an error, so that nothing is drawn at a wrong place."""
_SHOWN = 56
"""Characters of a row's description that fit above its line."""


def _met(row: dict[str, Any]) -> bool:
    return bool(row["ratio"] <= row["goal"])


def markdown(figures: dict[str, Any]) -> str:
    """Return the page for what bench.py wrote."""
    machine = figures["machine"]
    text = _HEAD.format(
        **(machine | {"kernel": machine["kernel"].partition("-")[0]}),
        plot="../figures/benchmarks.svg",
        rounds=figures["rounds"],
        version=figures["visruntime"],
        date=figures["date"],
    )
    for row in figures["rows"]:
        verdict = "met" if _met(row) else "**not met**"
        ratios = f"{row['ratio']:.2f} | {row['goal']:g}"
        text += f"| {row['number']} | {row['what']} | {ratios} | {verdict} |\n"
    met = sum(map(_met, figures["rows"]))
    text += f"\n{met} of {len(figures['rows'])} goals are met.\n{_TIMES}"
    for row in figures["rows"]:
        peers = ", ".join(f"{name} {value:.2f}" for name, value in row["peers"].items())
        times = f"{row['ours_ms']:.2f} | {row['baseline_ms']:.2f}"
        text += f"| {row['number']} | {times} | {peers} |\n"
    for number, reason in figures["not_measured"].items():
        text += f"\nRow {number} was not measured: {reason}.\n"
    return text


def _x(ratio: float) -> float:
    if not _LEAST <= ratio <= _MOST:
        raise ValueError(f"a ratio of {ratio} is beyond the scale of the plot")
    part = math.log(ratio / _LEAST) / math.log(_MOST / _LEAST)
    return round(_LEFT + part * (_RIGHT - _LEFT), 1)


def plot(figures: dict[str, Any]) -> str:
    """Return the ratios as a drawing that can be read on a phone: a line for each row."""
    rows = figures["rows"]
    bottom = _TOP + _ROW * len(rows)
    height = bottom + 26
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="540"',
        '     role="img" font-family="system-ui, sans-serif" font-size="11" fill="#1c2526">',
        "  <title>Ratios to the baseline, and goals</title>",
        f'  <rect width="{_WIDTH}" height="{height}" rx="8" fill="#fbfbf9"/>',
        '  <circle cx="20" cy="18" r="4.5" fill="#0b6e6e"/><text x="30" y="22">goal met</text>',
        '  <path d="M94 12l6 6-6 6-6-6z" fill="#b4511c"/><text x="106" y="22">not met</text>',
        '  <path d="M166 11v14" stroke="#1c2526" stroke-width="2"/><text x="173" y="22">goal</text>',
        '  <text x="344" y="22" text-anchor="end" fill="#4a5759">left is faster</text>',
    ]
    for mark in (1 / 32, 1 / 8, 1 / 2, 1, 2, 4):
        name = f"1/{round(1 / mark)}" if mark < 1 else f"{mark:g}"
        strong = ' stroke-width="1.5"' if mark == 1 else ' stroke-dasharray="2 4"'
        at = _x(mark)
        parts += [
            f'  <path d="M{at} {_TOP - 14}V{bottom}" stroke="#9aa5a6"{strong}/>',
            f'  <text x="{at}" y="{_TOP - 20}" text-anchor="middle" fill="#4a5759">{name}</text>',
            f'  <text x="{at}" y="{bottom + 15}" text-anchor="middle" fill="#4a5759">{name}</text>',
        ]
    for place, row in enumerate(rows):
        y = _TOP + _ROW * place + 2
        at, goal = _x(row["ratio"]), _x(row["goal"])
        line = y + 15
        what = f"{row['number']}  {row['what']}"
        if len(what) > _SHOWN:
            what = what[: _SHOWN - 1].rstrip() + "…"
        figure = (
            f'<circle cx="{at}" cy="{line}" r="4.5" fill="#0b6e6e"/>'
            if _met(row)
            else f'<path d="M{at} {line - 6}l6 6-6 6-6-6z" fill="#b4511c"/>'
        )
        parts += [
            f'  <text x="{_LEFT}" y="{y + 6}" stroke="#fbfbf9" stroke-width="4"',
            f'        paint-order="stroke">{html.escape(what)}</text>',
            f'  <path d="M{_LEFT} {line}H{_RIGHT}" stroke="#e4e7e7"/>',
            f'  <path d="M{goal} {line - 7}v14" stroke="#1c2526" stroke-width="2"/>{figure}',
        ]
    return "\n".join([*parts, "</svg>", ""])
