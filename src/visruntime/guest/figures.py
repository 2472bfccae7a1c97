"""A backend of matplotlib that shows figures on the host.

`plt.show()` displays what is open and closes it, and so does the end of a run.
"""

from __future__ import annotations

import sys

from matplotlib._pylab_helpers import Gcf
from matplotlib.backend_bases import FigureManagerBase
from matplotlib.backends.backend_agg import (
    FigureCanvasAgg as FigureCanvas,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["FigureCanvas", "FigureManager", "show", "take"]

FigureManager: Any = FigureManagerBase


def take() -> list[object]:
    """Close every figure that pyplot has open and return them, the oldest first."""
    figures: list[object] = [manager.canvas.figure for manager in Gcf.get_all_fig_managers()]
    Gcf.destroy_all()
    return figures


def show(*_: object, **__: object) -> None:
    """Display every figure that pyplot has open, and close it."""
    package: Any = sys.modules[__package__ or ""]
    for figure in take():
        package.session.display(figure)
