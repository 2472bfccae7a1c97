"""Write data/sales.csv: 2,000 orders of an invented outdoor shop, the same on every machine.

Some rows are as untidy as real exports are: a missing price, a return, a date in another
format. Run it from anywhere; the test suite checks that the committed file is its output.
"""

from __future__ import annotations

import csv
import io
import math
import random
from datetime import date, timedelta
from pathlib import Path

ROWS = 2000
FIRST_DAY = date(2025, 1, 1)
DAYS = 546
SEED = 20250101
HEADER = ("order", "date", "region", "category", "product", "units", "unit_price", "discount")
REGIONS = {"North": 5, "South": 4, "East": 3, "West": 4}
CATALOGUE = {
    "Tents": {"Dome 2": 189.0, "Dome 4": 279.0, "Tunnel 3": 349.0},
    "Packs": {"Day 20": 59.0, "Trek 45": 129.0, "Trek 65": 169.0},
    "Boots": {"Trail": 99.0, "Ridge": 149.0, "Summit": 219.0},
    "Stoves": {"Gas One": 39.0, "Multi Fuel": 119.0},
}
WEIGHTS = {"Tents": 3, "Packs": 4, "Boots": 5, "Stoves": 3}
SUMMER_SHARE = {"Tents": 0.9, "Packs": 0.4, "Boots": 0.15, "Stoves": 0.5}
RETURN_RATE, MISSING_PRICE_RATE, OTHER_DATE_RATE = 0.03, 0.006, 0.01


def season(day: date, category: str) -> float:
    """Return how much more of *category* sells on *day* than in the middle of the year's swing."""
    phase = 2 * math.pi * (day.timetuple().tm_yday - 172) / 365
    return 1 + SUMMER_SHARE[category] * math.cos(phase)


def rows() -> list[tuple[str, ...]]:
    """Return all orders, oldest first."""
    random_source = random.Random(SEED)  # noqa: S311 - data for a chart, nothing to guess
    drawn: list[tuple[date, str, str, str, str, str, str, str]] = []
    while len(drawn) < ROWS:
        offset = random_source.randrange(DAYS)
        day = FIRST_DAY + timedelta(days=offset)
        category = random_source.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        growth = 0.6 + 0.4 * offset / DAYS
        if random_source.random() * 1.9 > season(day, category) * growth:
            continue
        product = random_source.choice(list(CATALOGUE[category]))
        region = random_source.choices(list(REGIONS), list(REGIONS.values()))[0]
        units = random_source.choices((1, 2, 3, 6), (70, 18, 8, 4))[0]
        if random_source.random() < RETURN_RATE:
            units = -units
        price = f"{CATALOGUE[category][product]:.2f}"
        if random_source.random() < MISSING_PRICE_RATE:
            price = ""
        written = day.isoformat()
        if random_source.random() < OTHER_DATE_RATE:
            written = day.strftime("%d.%m.%Y")
        discount = random_source.choices(("0", "5", "10", "20"), (75, 12, 9, 4))[0]
        drawn.append((day, written, region, category, product, str(units), price, discount))
    drawn.sort(key=lambda row: row[0])
    return [(f"S{number:05}", *row[1:]) for number, row in enumerate(drawn, start=10001)]


def content() -> str:
    """Return the text of the CSV file."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(HEADER)
    writer.writerows(rows())
    return text.getvalue()


if __name__ == "__main__":
    Path(__file__).with_name("data").joinpath("sales.csv").write_text(content())
