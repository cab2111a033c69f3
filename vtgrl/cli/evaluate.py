"""`vtgrl eval vtg`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from vtgrl.cli.common import Json, print_json, print_rows
from vtgrl.core.errors import RunError

app = typer.Typer(no_args_is_help=True, help="Evaluate answers.")

MODEL, SCORE = "With a model", "Scoring"


@app.command()
def vtg(
    benchmark: Annotated[str, typer.Option("--benchmark", "-b", help="A name of `vtgrl ls benchmark`.", show_default=False)],
    annotations: Annotated[Path, typer.Option("--annotations", "-a", help="The benchmark's file.", show_default=False)],
    model: Annotated[str, typer.Option("--model", "-m", help="Folder or hub name: it answers the benchmark.")] = "",
    predictions: Annotated[Path | None, typer.Option("--predictions", "-p", help="Score this file instead.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder for predictions.jsonl and metrics.json.")] = None,
    limit: Annotated[int, typer.Option("--limit", min=0, help="Only the first queries; 0: all.")] = 0,
    videos: Annotated[Path | None, typer.Option("--videos", rich_help_panel=MODEL, help="Folder of the video files.")] = None,
    engine: Annotated[Literal["", "hf", "vllm"], typer.Option("--engine", rich_help_panel=MODEL, help="Empty: vllm on a GPU.")] = "",
    prompt: Annotated[str, typer.Option("--prompt", rich_help_panel=MODEL, help="A name of `vtgrl ls prompt`.")] = "",
    dtype: Annotated[Literal["", "fp32", "bf16"], typer.Option("--dtype", rich_help_panel=MODEL, help="Empty: bf16 on a GPU.")] = "",
    fps: Annotated[float, typer.Option("--fps", rich_help_panel=MODEL, help="Frames a second; 0: the protocol's.")] = 0.0,
    max_frames: Annotated[int, typer.Option("--max-frames", rich_help_panel=MODEL, help="0: the protocol's.")] = 0,
    video_tokens: Annotated[int, typer.Option("--video-tokens", rich_help_panel=MODEL, help="Of a clip; 0: the protocol's.")] = 0,
    max_tokens: Annotated[int, typer.Option("--max-tokens", rich_help_panel=MODEL, help="Longest answer; 0: the protocol's.")] = 0,
    max_prompt_tokens: Annotated[int, typer.Option("--max-prompt-tokens", rich_help_panel=MODEL, help="0: video and text.")] = 0,
    batch: Annotated[int, typer.Option("--batch", min=1, rich_help_panel=MODEL, help="Queries between two writes.")] = 16,
    seed: Annotated[int, typer.Option("--seed", rich_help_panel=MODEL, help="Of sampling, where the protocol samples.")] = 0,
    shard: Annotated[str, typer.Option("--shard", rich_help_panel=MODEL, metavar="I/N", help="Answer every N-th query.")] = "",
    nproc: Annotated[int, typer.Option("--nproc", "-n", min=1, rich_help_panel=MODEL, help="Processes, one a GPU.")] = 1,
    protocol: Annotated[str, typer.Option("--protocol", rich_help_panel=SCORE, help="Whose rules; empty: strict.")] = "",
    parser: Annotated[str, typer.Option("--parser", rich_help_panel=SCORE, help="A name of `vtgrl ls parser`, or all.")] = "",
    threshold_op: Annotated[Literal["", "ge", "gt"], typer.Option("--threshold-op", rich_help_panel=SCORE, help="At a threshold.")] = "",
    policy: Annotated[Literal["", "max", "first", "set"], typer.Option("--policy", rich_help_panel=SCORE, help="Several windows.")] = "",
    clip_gt: Annotated[bool | None, typer.Option("--clip-gt/--no-clip-gt", rich_help_panel=SCORE, help="Cut truth to the clip.")] = None,
    unit: Annotated[Literal["", "seconds", "percent", "frames"], typer.Option("--unit", rich_help_panel=SCORE, help="Of answers.")] = "",
    unit_fps: Annotated[float, typer.Option("--unit-fps", rich_help_panel=SCORE, help="Frames a second of --unit frames.")] = 0.0,
    official: Annotated[bool, typer.Option("--official", rich_help_panel=SCORE, help="The benchmark's own evaluator.")] = False,
    per_row: Annotated[Path | None, typer.Option("--per-row", rich_help_panel=SCORE, help="Write one JSON row a query.")] = None,
    bootstrap: Annotated[int, typer.Option("--bootstrap", min=0, rich_help_panel=SCORE, help="Resamples for intervals.")] = 0,
    strict: Annotated[bool, typer.Option("--strict", rich_help_panel=SCORE, help="Exit 1 unless every query has a span.")] = False,
    json: Json = False,
) -> None:
    """Temporal grounding: mIoU and R1@0.3/0.5/0.7, of a model or of a predictions file.

    Example: vtgrl eval vtg -m model -b charades_sta -a charades_sta_test.txt --videos videos -o runs/eval
    """
    from vtgrl.eval.scoring import problems
    from vtgrl.eval.vtg import VtgOptions, run_vtg

    options: dict[str, Any] = {key: value for key, value in locals().items() if key in VtgOptions.__dataclass_fields__}
    for key in ("threshold_op", "policy", "dtype"):
        options[key] = options[key] or None
    result = run_vtg(VtgOptions(**options))
    print_json(result) if json else print_rows(_rows(result))
    if strict and (found := problems(result)):
        raise RunError("--strict: " + ", ".join(f"{count} {name}" for name, count in found.items()))


def _rows(result: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Numbers and words of the document, nested keys joined by dots."""
    rows: list[tuple[str, str]] = []
    for key, value in result.items():
        if isinstance(value, dict):
            rows += _rows(value, f"{prefix}{key}.")
        elif isinstance(value, float):
            rows.append((prefix + key, f"{value:.4f}"))
        elif not isinstance(value, list):
            rows.append((prefix + key, str(value)))
    return rows
