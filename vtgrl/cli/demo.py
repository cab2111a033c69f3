"""`vtgrl demo`."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from vtgrl.cli.common import stdout_for_data

ASK, PAGE = "How it asks", "The page"


def demo(
    model: Annotated[str, typer.Option("--model", "-m", help="Hugging Face folder or hub name.", show_default=False)],
    keys: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="video.*, sampling.*, prompt.*, max_prompt_tokens.")
    ] = None,
    prompt: Annotated[
        str, typer.Option("--prompt", help="Template; else that of the model's run folder, else time_r1.", rich_help_panel=ASK)
    ] = "",
    engine: Annotated[
        Literal["auto", "hf", "vllm"], typer.Option("--engine", help="auto: vLLM on a GPU when installed.", rich_help_panel=ASK)
    ] = "auto",
    dtype: Annotated[
        Literal["auto", "fp32", "bf16"], typer.Option("--dtype", help="auto: bf16 on a GPU, else fp32.", rich_help_panel=ASK)
    ] = "auto",
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="0: the first free one from 7860 on.", rich_help_panel=PAGE)] = 0,
    host: Annotated[str, typer.Option("--host", help="Address to listen on; 0.0.0.0: all networks.", rich_help_panel=PAGE)] = "127.0.0.1",
    share: Annotated[bool, typer.Option("--share", help="A public link through Gradio's servers.", rich_help_panel=PAGE)] = False,
) -> None:
    """A web page: upload a clip, ask, see the reasoning's time ranges and the answer under the player. Prints its address.

    Needs Gradio: install vtgrl with the extra demo.

    Example: vtgrl demo -m runs/taro/model

    Example: vtgrl demo -m MODEL --prompt '{name: taro, instruction: off}' video.max_frames=64 sampling.max_tokens=512
    """
    from vtgrl.demo.page import Address, need_gradio, serve

    with stdout_for_data():
        need_gradio()  # before minutes of loading
        from vtgrl.demo.answer import open_answerer
        from vtgrl.demo.settings import load_settings

        settings = load_settings(model, prompt=prompt, keys=keys or [])
        answerer = open_answerer(model, settings, engine="" if engine == "auto" else engine, dtype=None if dtype == "auto" else dtype)
    try:
        address = Address(host, port or None, share)
        serve(answerer, name=model, address=address, max_pixels=settings.video.max_pixels, ready=typer.echo)
    finally:
        answerer.close()
