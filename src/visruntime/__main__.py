"""``python -m visruntime``: the same as the ``visruntime`` command."""

from __future__ import annotations

from visruntime._host.import_path import leave_current_folder_out

if __name__ == "__main__":
    leave_current_folder_out(first=True)

    from visruntime.cli import command

    command()
