"""Results as a Markdown table: ``python -m benchmarks.table [FILE]``, by default the committed ones."""

from __future__ import annotations

import json
import sys
from pathlib import Path


def table(report: dict) -> str:
    """A row per case: ptxforge, Triton, torch, and the ratio to Triton."""
    lines = ["| case | unit | ptxforge | Triton | torch | ptxforge / Triton |", "|---|---|---|---|---|---|"]
    for row in report["rows"]:
        figures = {name: row.get(name, {}).get("figure") for name in ("ptxforge", "triton", "torch")}
        ours, triton = figures["ptxforge"], figures["triton"]
        ratio = f"{ours / triton:.3f}" if ours and triton else "–"
        cells = [row["case"], row["unit"], *(f"{f:g}" if f else "–" for f in figures.values()), ratio]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "results" / "h200.json"
    print(table(json.loads(path.read_text())))
