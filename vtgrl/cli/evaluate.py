"""`vtgrl eval vtg|compare|lint|join`. This file belongs to the evaluation part; vtgrl/cli/main.py only mounts `app`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from vtgrl.cli.common import Json, print_json, print_rows, stdout_for_data

app = typer.Typer(no_args_is_help=True, help="Evaluate temporal grounding, and say when numbers do not compare.")

RUN, SCORE, OUTPUT = "With a model", "How it is scored", "Output"

File = Annotated[Path | None, typer.Option("--predictions", "-p", help="Score this JSONL file instead of running a model.")]
Model = Annotated[str, typer.Option("--model", "-m", help="Hugging Face folder or hub name.", rich_help_panel=RUN)]
Videos = Annotated[Path | None, typer.Option(help="Folder of the videos; else that of the annotations.", rich_help_panel=RUN)]
Engine = Annotated[Literal["auto", "hf", "vllm"], typer.Option(help="auto: vLLM on a GPU when installed.", rich_help_panel=RUN)]
Limit = Annotated[int, typer.Option(min=0, help="Only the first queries; 0: all.", rich_help_panel=RUN)]
Prompt = Annotated[str, typer.Option(help="Prompt template in place of the protocol's.", rich_help_panel=RUN)]
Fps = Annotated[float, typer.Option(min=0.0, help="Frames a second; 0: the protocol's.", rich_help_panel=RUN)]
Frames = Annotated[int, typer.Option(min=0, help="Most frames of a clip; 0: the protocol's.", rich_help_panel=RUN)]
VideoTokens = Annotated[int, typer.Option(min=0, help="Most vision tokens of a clip; 0: the protocol's.", rich_help_panel=RUN)]
PromptTokens = Annotated[int, typer.Option(min=0, help="A longer prompt is a miss; 0: room for video and text.", rich_help_panel=RUN)]
MaxTokens = Annotated[int, typer.Option(min=0, help="Longest answer; 0: the protocol's.", rich_help_panel=RUN)]
Dtype = Annotated[Literal["auto", "fp32", "bf16"], typer.Option(help="auto: bf16 on a GPU, else fp32.", rich_help_panel=RUN)]
Batch = Annotated[int, typer.Option(min=1, help="Queries a call of the engine.", rich_help_panel=RUN)]
Seed = Annotated[int, typer.Option(help="Seed of engine and bootstrap.", rich_help_panel=RUN)]
Shard = Annotated[str, typer.Option(metavar="I/N", help="Answer every n-th query; join with `vtgrl eval join`.", rich_help_panel=RUN)]
Nproc = Annotated[int, typer.Option("--nproc", "-n", min=1, help="Processes on this machine, one a GPU.", rich_help_panel=RUN)]
Protocol = Annotated[str, typer.Option(help="taro, time_r1, qwen, timelens or strict.", rich_help_panel=SCORE)]
Parser = Annotated[str, typer.Option(help="Who reads the answers (`vtgrl ls parser`), or all.", rich_help_panel=SCORE)]
Op = Annotated[Literal["own", "ge", "gt"], typer.Option(help="R1@m counts IoU >= m or > m; own: the parser's.", rich_help_panel=SCORE)]
Policy = Annotated[
    Literal["own", "max", "first", "set"], typer.Option(help="Several true windows: best, first, or all as a set.", rich_help_panel=SCORE)
]
Clip = Annotated[
    Literal["own", "on", "off"], typer.Option(help="Clip true windows to the video; own: the protocol's.", rich_help_panel=SCORE)
]
Unit = Annotated[Literal["seconds", "percent", "frames"], typer.Option(help="Unit of the answers.", rich_help_panel=SCORE)]
UnitFps = Annotated[float, typer.Option(min=0.0, help="Frames a second, for --unit frames.", rich_help_panel=SCORE)]
Official = Annotated[bool, typer.Option("--official", help="Ranked windows: the official evaluator's numbers too.", rich_help_panel=SCORE)]
Bootstrap = Annotated[int, typer.Option(min=0, help="Draws for confidence intervals, clustered by video.", rich_help_panel=SCORE)]
OutDir = Annotated[Path | None, typer.Option("--out", "-o", help="Folder for metrics.json and the rows.", rich_help_panel=OUTPUT)]
PerRow = Annotated[Path | None, typer.Option(help="Write one JSON row a query.", rich_help_panel=OUTPUT)]
Strict = Annotated[bool, typer.Option("--strict", help="Exit 1 on any gap, duplicate, stranger or unread output.", rich_help_panel=OUTPUT)]


@app.command()
def vtg(
    benchmark: Annotated[str, typer.Option("--benchmark", "-b", help="Benchmark (`vtgrl ls benchmark`).", show_default=False)],
    annotations: Annotated[Path, typer.Option("--annotations", "-a", help="Its annotation file.", show_default=False)],
    predictions: File = None,
    model: Model = "",
    videos: Videos = None,
    engine: Engine = "auto",
    limit: Limit = 0,
    prompt: Prompt = "",
    fps: Fps = 0.0,
    max_frames: Frames = 0,
    video_tokens: VideoTokens = 0,
    max_prompt_tokens: PromptTokens = 0,
    max_tokens: MaxTokens = 0,
    dtype: Dtype = "auto",
    batch: Batch = 16,
    seed: Seed = 0,
    shard: Shard = "",
    nproc: Nproc = 1,
    protocol: Protocol = "strict",
    parser: Parser = "",
    threshold_op: Op = "own",
    policy: Policy = "own",
    clip_gt: Clip = "own",
    unit: Unit = "seconds",
    unit_fps: UnitFps = 0.0,
    official: Official = False,
    bootstrap: Bootstrap = 0,
    out: OutDir = None,
    per_row: PerRow = None,
    strict: Strict = False,
    json: Json = False,
) -> None:
    """Temporal grounding: run a model on a benchmark, or score a predictions file.

    Example: vtgrl eval vtg -m model -b charades_sta -a charades_sta_test.txt --videos videos --out runs/eval

    Example: vtgrl eval vtg -p predictions.jsonl -b charades_sta -a charades_sta_test.txt --parser all
    """
    from vtgrl.eval.scoring import problems
    from vtgrl.eval.vtg import VtgOptions, run_vtg

    given = {key: value for key, value in locals().items() if key in VtgOptions.__dataclass_fields__}
    with stdout_for_data():
        result = run_vtg(VtgOptions(**{**given, **_chosen(given)}))
    print_json(finite(result)) if json else _print_result(result)
    found = problems(result)
    if strict and found:
        typer.echo("vtgrl: strict: " + ", ".join(f"{count} {name}" for name, count in found.items()), err=True)
        raise typer.Exit(1)


def _chosen(given: dict[str, Any]) -> dict[str, Any]:
    """Options whose word for "leave it" is None or empty in the library."""
    none_if = {"threshold_op": "own", "policy": "own", "dtype": "auto"}
    empty_if = {"engine": "auto", "unit": "seconds"}
    chosen = {key: None for key, word in none_if.items() if given[key] == word}
    chosen |= {key: "" for key, word in empty_if.items() if given[key] == word}
    return {**chosen, "clip_gt": None if given["clip_gt"] == "own" else given["clip_gt"] == "on"}


@app.command()
def compare(
    a: Annotated[Path, typer.Argument(help="--out folder of the first evaluation.", show_default=False)],
    b: Annotated[Path, typer.Argument(help="--out folder of the second evaluation.", show_default=False)],
    html: Annotated[Path | None, typer.Option(help="Write a self-contained report.")] = None,
    draws: Annotated[int, typer.Option(min=100, help="Bootstrap draws.")] = 10_000,
    seed: Annotated[int, typer.Option(help="Bootstrap seed.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Compare although parser, rules or ground truth differ.")] = False,
    json: Json = False,
) -> None:
    """Paired comparison of two evaluations of the same queries: difference, interval, wins and losses, bins.

    Example: vtgrl eval compare runs/sft/eval runs/grpo/eval --html report.html
    """
    from vtgrl.eval.compare import compare_runs, comparison_rows

    result = compare_runs(a, b, html=html, draws=draws, seed=seed, force=force)
    print_json(finite(result)) if json else print_rows(comparison_rows(result))


@app.command()
def lint(
    benchmark: Annotated[str, typer.Argument(help="Benchmark (`vtgrl ls benchmark`).", show_default=False)],
    annotations: Annotated[Path, typer.Argument(help="Its annotation file.", show_default=False)],
    videos: Annotated[Path | None, typer.Option(help="Compare stated durations with these files.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 1 when anything is found.")] = False,
    json: Json = False,
) -> None:
    """Faults of a ground truth: ends beyond the video, windows without length, duplicates, wrong split.

    Example: vtgrl eval lint charades_sta charades_sta_test.txt
    """
    from vtgrl.eval.lint import lint_benchmark, lint_rows

    result = lint_benchmark(benchmark, annotations, videos=videos)
    print_json(finite(result)) if json else print_rows(lint_rows(result))
    if strict and result["findings"]:
        raise typer.Exit(1)


@app.command()
def join(
    out: Annotated[Path, typer.Argument(help="--out folder that the shards share.", show_default=False)],
    json: Json = False,
) -> None:
    """Put the shards of `vtgrl eval vtg --shard i/n` together.

    Example: vtgrl eval join runs/eval
    """
    from vtgrl.eval.shards import join_shards

    result = join_shards(out)
    print_json(finite(result)) if json else _print_result(result)


def finite(value: Any) -> Any:
    """NaN as null, so that the document is JSON for every reader."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and value != value else value


def _print_result(result: dict[str, Any]) -> None:
    from vtgrl.eval.table import result_rows

    print_rows(result_rows(result))
