"""`vtgrl data caption`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from vtgrl.cli.common import Json, print_json, print_rows, stdout_for_data
from vtgrl.core.errors import ConfigError

if TYPE_CHECKING:
    from vtgrl.data.caption.run import CaptionOptions
    from vtgrl.data.caption.types import Captioner

ROWS, WHO, FRAMES, SERVER, LOCAL = "Rows", "Who writes", "Frames", "A server", "A local model"

File = Annotated[Path | None, typer.Argument(metavar="[PATH]", help="Annotation file.", show_default=False)]
Keys = Annotated[list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Settings of the source, such as csv=FILE.")]
Source = Annotated[
    str, typer.Option("--source", "-s", help="A name of `vtgrl ls source`; without PATH a jsonl file.", rich_help_panel=ROWS)
]
Videos = Annotated[Path | None, typer.Option("--videos", help="Folder of the videos; without it that of the file.", rich_help_panel=ROWS)]
OutFile = Annotated[Path, typer.Option("--out", "-o", help="JSONL file to write.", show_default=False, rich_help_panel=ROWS)]
Failed = Annotated[
    Literal["keep", "drop"], typer.Option(help="Rows whose clip gets no captions: as they are, or out.", rich_help_panel=ROWS)
]
Replace = Annotated[bool, typer.Option("--replace", help="New captions also for rows that have some.", rich_help_panel=ROWS)]
Limit = Annotated[int, typer.Option(min=0, help="Only the first rows; 0: all.", rich_help_panel=ROWS)]
Strict = Annotated[bool, typer.Option("--strict", help="Exit 1 when a clip got no captions.", rich_help_panel=ROWS)]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Count clips, requests, tokens and cost; ask nothing.", rich_help_panel=ROWS)]
Model = Annotated[str, typer.Option("--model", "-m", help="Model of the server, or a folder.", show_default=False, rich_help_panel=WHO)]
Url = Annotated[str, typer.Option("--openai-base-url", help="Any OpenAI-compatible server: https://HOST/v1.", rich_help_panel=WHO)]
Engine = Annotated[Literal["hf", "vllm"] | None, typer.Option(help="A local model, and what runs it.", rich_help_panel=WHO)]
MaxTokens = Annotated[int, typer.Option(min=1, help="Longest answer.", rich_help_panel=WHO)]
Tries = Annotated[int, typer.Option(min=1, help="Answers to a clip, until one is valid.", rich_help_panel=WHO)]
Fps = Annotated[float, typer.Option(min=0.001, help="Frames a second.", rich_help_panel=FRAMES)]
MaxFrames = Annotated[int, typer.Option(min=4, help="Most frames of a clip.", rich_help_panel=FRAMES)]
Size = Annotated[int, typer.Option("--frame-size", min=56, max=768, help="A frame has at most SIZE x SIZE pixels.", rich_help_panel=FRAMES)]
Backend = Annotated[Literal["pyav", "decord"], typer.Option("--backend", help="Decoder.", rich_help_panel=FRAMES)]
Timeout = Annotated[float, typer.Option("--timeout", help="Seconds after which a decode counts as stuck.", rich_help_panel=FRAMES)]
Workers = Annotated[int, typer.Option("--workers", min=0, help="Processes that decode ahead.", rich_help_panel=FRAMES)]
KeyEnv = Annotated[str, typer.Option(help="Environment variable with the key; unset: none is sent.", rich_help_panel=SERVER)]
Concurrency = Annotated[int, typer.Option(min=1, help="Clips at a time.", rich_help_panel=SERVER)]
Rpm = Annotated[float, typer.Option("--rpm", min=0.0, help="Most requests a minute; 0: no limit.", rich_help_panel=SERVER)]
Retries = Annotated[int, typer.Option(min=0, help="Of a request without a usable reply.", rich_help_panel=SERVER)]
RequestTimeout = Annotated[float, typer.Option(min=0.1, help="Seconds of one request.", rich_help_panel=SERVER)]
GiveUp = Annotated[int, typer.Option(min=0, help="Stop after so many clips in a row without a reply; 0: never.", rich_help_panel=SERVER)]
PriceIn = Annotated[float | None, typer.Option(min=0.0, help="Of a million prompt tokens.", rich_help_panel=SERVER)]
PriceOut = Annotated[float | None, typer.Option(min=0.0, help="Of a million answer tokens.", rich_help_panel=SERVER)]
MaxCost = Annotated[float, typer.Option(min=0.0, help="Stop when so much is spent; 0: no limit.", rich_help_panel=SERVER)]
Dtype = Annotated[Literal["auto", "fp32", "bf16"], typer.Option(help="auto: bf16 on a GPU, else fp32.", rich_help_panel=LOCAL)]
Batch = Annotated[int, typer.Option(min=1, help="Clips a call of the engine.", rich_help_panel=LOCAL)]
PromptTokens = Annotated[int, typer.Option(min=1, help="A clip with a longer prompt fails.", rich_help_panel=LOCAL)]
Seed = Annotated[int, typer.Option(help="Of answers after the first, which is greedy.", rich_help_panel=LOCAL)]


def caption(
    context: typer.Context,
    out: OutFile,
    model: Model,
    path: File = None,
    keys: Keys = None,
    source: Source = "jsonl",
    videos: Videos = None,
    openai_base_url: Url = "",
    engine: Engine = None,
    failed: Failed = "keep",
    replace: Replace = False,
    limit: Limit = 0,
    strict: Strict = False,
    dry_run: DryRun = False,
    max_tokens: MaxTokens = 4096,
    tries: Tries = 3,
    fps: Fps = 1.0,
    max_frames: MaxFrames = 64,
    frame_size: Size = 448,
    backend: Backend = "pyav",
    timeout_s: Timeout = 60.0,
    workers: Workers = 0,
    api_key_env: KeyEnv = "OPENAI_API_KEY",
    concurrency: Concurrency = 4,
    rpm: Rpm = 0.0,
    retries: Retries = 5,
    request_timeout: RequestTimeout = 120.0,
    give_up: GiveUp = 8,
    price_in: PriceIn = None,
    price_out: PriceOut = None,
    max_cost: MaxCost = 0.0,
    dtype: Dtype = "auto",
    batch: Batch = 8,
    max_prompt_tokens: PromptTokens = 16384,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Dense captions with times for training rows, from a server or a local model. Run it again to go on where it stopped.

    Example: vtgrl data caption train_2k5.json -s time_r1 --videos VIDEOS -o captioned.jsonl --openai-base-url https://HOST/v1 -m MODEL

    Example: vtgrl data caption rows.jsonl --videos VIDEOS -o captioned.jsonl --engine vllm -m MODEL
    """
    given = locals()
    _refuse_strangers(context, SERVER if engine else LOCAL)
    with stdout_for_data():
        from vtgrl.data.caption.run import caption_rows, estimate_captions

        options = _options(given)
        mark, make = _who(given, options)
        if dry_run:
            result = estimate_captions(options, mark=mark, max_tokens=max_tokens)
        else:
            result = caption_rows(options, mark=mark, make=make)
    print_json(result) if json else print_rows(_lines(result))
    if strict and result.get("clips_failed"):
        raise typer.Exit(1)


def _refuse_strangers(context: typer.Context, panel: str) -> None:
    """ConfigError for an option that was given and says nothing about the one who writes."""
    for option in context.command.params:
        source = context.get_parameter_source(option.name or "")
        given = source is not None and source.name == "COMMANDLINE"
        if given and isinstance(option, typer.core.TyperOption) and option.rich_help_panel == panel:
            raise ConfigError(f"{option.opts[0]} is for {panel[0].lower()}{panel[1:]}; leave it out")


def _options(given: Mapping[str, Any]) -> CaptionOptions:
    from vtgrl.core.recipe import load_recipe
    from vtgrl.core.schema import DataConfig, VideoConfig
    from vtgrl.data.caption.cost import Prices
    from vtgrl.data.caption.run import CaptionOptions

    path, source = given["path"], given["source"]
    if path is None and not Path(source).is_file():
        raise ConfigError("name the annotation file: vtgrl data caption FILE --source NAME ...")
    if path is None:
        path, source = Path(source), "jsonl"
    prices = (given["price_in"], given["price_out"])
    if (prices[0] is None) != (prices[1] is None):
        raise ConfigError("--price-in and --price-out go together")
    area = given["frame_size"] ** 2
    return CaptionOptions(
        path=path,
        source=load_recipe(DataConfig, overrides=[f"source={source}", *(f"source.{key}" for key in given["keys"] or [])]).source,
        out=given["out"],
        videos=given["videos"],
        video=VideoConfig(
            backend=given["backend"],
            fps=given["fps"],
            max_frames=given["max_frames"],
            max_pixels=area,
            total_pixels=area * given["max_frames"],
            timeout_s=given["timeout_s"],
            workers=given["workers"],
        ),
        failed=given["failed"],
        again=given["replace"],
        limit=given["limit"],
        prices=None if prices[0] is None else Prices(*prices),
        max_cost=given["max_cost"],
    )


def _who(given: Mapping[str, Any], options: CaptionOptions) -> tuple[str, Callable[[], Captioner]]:
    """(digest of the captioner, how to open it)."""
    if bool(given["openai_base_url"]) == bool(given["engine"]):
        raise ConfigError("say who writes: --openai-base-url URL for a server, or --engine vllm|hf for a local model")
    return _local(given, options) if given["engine"] else _server(given, options)


def _server(given: Mapping[str, Any], options: CaptionOptions) -> tuple[str, Callable[[], Captioner]]:
    from vtgrl.data.caption.chat import ServerConfig
    from vtgrl.data.caption.remote import ServerCaptioner, server_mark

    config = ServerConfig(
        url=given["openai_base_url"], model=given["model"], key_env=given["api_key_env"], max_tokens=given["max_tokens"],
        timeout_s=given["request_timeout"], retries=given["retries"], per_minute=given["rpm"],
    )  # fmt: skip
    rest = {key: given[key] for key in ("tries", "concurrency", "give_up")}
    captioner = ServerCaptioner(config, video=options.video, **rest)
    return server_mark(config.model), lambda: captioner


def _local(given: Mapping[str, Any], options: CaptionOptions) -> tuple[str, Callable[[], Captioner]]:
    from vtgrl.rollout.caption import LocalConfig, local_mark, open_local

    keys = ("model", "engine", "batch", "tries", "max_tokens", "max_prompt_tokens", "seed")
    config = LocalConfig(**{key: given[key] for key in keys}, dtype=None if given["dtype"] == "auto" else given["dtype"])
    return local_mark(config), lambda: open_local(config, video=options.video)


def _lines(result: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key, value in result.items():
        if isinstance(value, dict):
            value = ", ".join(f"{count} {name}" for name, count in value.items()) or "none"
        if value is not None:
            yield key, f"{value:.4f}" if isinstance(value, float) else str(value)
