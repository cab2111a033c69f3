"""`python -m vtgrl.bench.table FOLDER`: the results of `vtgrl bench NAME --json` in a folder as one Markdown table."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from vtgrl.core.errors import DataError


def table(folder: Path) -> str:
    """One row a bench, by name.

    Raises:
        DataError: a JSON file is not a bench result.
    """
    lines = ["| bench | ratio | of | difference | compared with |", "| --- | --- | --- | --- | --- |"]
    for file in sorted(folder.glob("*.json")):
        lines.append(_row(_read(file)))
    return "\n".join(lines) + "\n"


def _read(file: Path) -> dict[str, Any]:
    try:
        result = json.loads(file.read_text())
    except json.JSONDecodeError as error:
        raise DataError(f"{file}: no JSON ({error}); run vtgrl bench NAME --json again") from error
    if not isinstance(result, dict) or not {"bench", "ratio", "exactness", "unit", "baseline", "details"} <= result.keys():
        raise DataError(f"{file}: not the result of a bench; keep only those in this folder")
    return result


def _row(result: dict[str, Any]) -> str:
    return f"| {result['bench']} | {result['ratio']:.2f}x | {result['unit']} | {result['exactness']:.1e} | {result['baseline']} |"


def main() -> None:
    """The command."""
    sys.stdout.write(table(Path(sys.argv[1])))


if __name__ == "__main__":
    main()
