"""`vtgrl doctor`."""

from __future__ import annotations

from vtgrl.cli.common import Json, print_json, print_rows
from vtgrl.core.errors import EnvironmentMissing


def doctor(json: Json = False) -> None:
    """Say what is installed, what is missing, and the command that mends it. Exit 3 when something needed is missing."""
    from vtgrl.core.doctor import examine

    checks = examine()
    if json:
        print_json([vars(check) for check in checks])
    else:
        print_rows([(check.status, check.name, check.detail + (f"; mend: {check.fix}" if check.fix else "")) for check in checks])
    missing = [check.name for check in checks if check.status == "missing"]
    if missing:
        raise EnvironmentMissing(f"missing: {', '.join(missing)}; run the commands above")
