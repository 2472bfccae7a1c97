"""Known ways out of a jail, tried for real, and which layer stopped each.

Each topic has a file with its attempts: text for a worker. `examine` runs them, `scene` makes what
they are about, `layers` tells from the evidence what refused, `report` shows it.
"""

from __future__ import annotations

__all__: tuple[str, ...] = ()
