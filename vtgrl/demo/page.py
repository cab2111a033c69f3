"""The page (Gradio): clip and question, the timeline below the player, reasoning and answer beside it."""

from __future__ import annotations

import os
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from vtgrl.core.errors import ConfigError, EnvironmentMissing, VtgrlError
from vtgrl.demo import timeline as draw
from vtgrl.demo.example import Example, make_example

if TYPE_CHECKING:
    from vtgrl.demo.answer import Answer

FONT = ("system-ui", "Liberation Sans", "sans-serif")
"""Fonts of the reader's machine: nothing is fetched from elsewhere."""
HINT = '<p class="vt-soft">Press Ask: the times of the reasoning and the answer appear here as bars.</p>'

Panels = tuple[str, str, str]
"""HTML of timeline, answer and reasoning."""
EMPTY: Panels = (HINT, "", "")


class Asks(Protocol):
    """Who answers (see vtgrl.demo.answer.Answerer)."""

    def ask(self, clip: Path, query: str) -> Answer:
        """Answer a question about a clip."""


@dataclass(frozen=True)
class Address:
    """Where the page listens. `port` None: the first free one from 7860 on."""

    host: str = "127.0.0.1"
    port: int | None = None
    share: bool = False


def respond(model: Asks, example: Example, clip: str | None, query: str | None) -> Panels:
    """What the page shows for a question; whatever the user can mend is one line on the page."""
    try:
        if not clip:
            raise ConfigError("No clip: upload one first.")
        if not (query or "").strip():
            raise ConfigError("No question: write what to look for first.")
        answer = model.ask(Path(clip), str(query).strip())
    except VtgrlError as error:
        return draw.problem(str(error)), "", ""
    truth = example.truth_of(Path(clip), str(query))
    cost = f'<p class="vt-soft">{answer.tokens} tokens, {answer.seconds:.1f} s from question to answer</p>'
    headed = "<h4>Answer</h4>" + draw.answer(answer.reply) + cost, "<h4>Reasoning</h4>" + draw.reasoning(answer.reply)
    return draw.timeline(answer.reply, truth=truth), *headed


def need_gradio() -> Any:
    """The gradio module; it sends nothing home.

    Raises:
        EnvironmentMissing: it is not installed.
    """
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    try:
        import gradio
    except ImportError as error:
        raise EnvironmentMissing("the demo's page needs Gradio: pip install 'vtgrl[demo]'") from error
    return gradio


def build_page(gradio: Any, model: Asks, example: Example, *, name: str) -> Any:
    """The page as `gradio.Blocks`. `name`: of the model, for the heading. One question at a time is answered, the others wait."""

    def run(clip: str | None, query: str | None) -> Panels:
        return respond(model, example, clip, query)

    with gradio.Blocks(analytics_enabled=False, title=f"vtgrl demo: {name}") as page:
        gradio.Markdown(f"### When does it happen?\nModel: `{name}`")
        with gradio.Row():
            with gradio.Column(scale=3):
                clip = gradio.Video(str(example.clip), label="Clip", sources=["upload"], include_audio=True, height=340, elem_id="vt-clip")
                bars = gradio.HTML(HINT, elem_id="vt-timeline")
            with gradio.Column(scale=2):
                query = gradio.Textbox(example.query, label="Question", lines=1, elem_id="vt-query")
                button = gradio.Button("Ask", variant="primary", elem_id="vt-ask")
                answer = gradio.HTML("", elem_id="vt-answer")
                thoughts = gradio.HTML("", elem_id="vt-reasoning")
        panels = [bars, answer, thoughts]
        gradio.on([button.click, query.submit], run, [clip, query], panels, concurrency_limit=1, api_visibility="private")
        gradio.on([clip.upload, clip.clear], lambda: EMPTY, None, panels, queue=False, api_visibility="private")
    return page


def serve(model: Asks, *, name: str, address: Address, max_pixels: int = 0, ready: Callable[[str], None]) -> None:
    """Show the page until Ctrl-C. `ready` is called with its address once it answers. Uploads are deleted at the end.

    Raises:
        ConfigError: the port is taken. EnvironmentMissing: no Gradio.
    """
    with tempfile.TemporaryDirectory(prefix="vtgrl-demo-") as folder, _until_stopped() as stopped:
        os.environ["GRADIO_TEMP_DIR"] = str(Path(folder) / "uploads")
        gradio = need_gradio()
        page = build_page(gradio, model, make_example(Path(folder), max_pixels=max_pixels), name=name)
        try:
            ready(_launch(gradio, page, address, folder=folder))
            stopped.wait()
        finally:
            page.close(verbose=False)


def _launch(gradio: Any, page: Any, address: Address, *, folder: str) -> str:
    """Start the server's thread; the address to open."""
    here = Path(__file__).parent
    try:
        _, local, public = page.launch(
            server_name=address.host, server_port=address.port, share=address.share, prevent_thread_lock=True, quiet=True,
            inbrowser=False, ssr_mode=False, show_error=False, footer_links=[], allowed_paths=[folder],
            theme=gradio.themes.Default(font=FONT, font_mono=("ui-monospace", "monospace")),
            css=(here / "page.css").read_text(encoding="utf-8"),
            head=f"<script>{(here / 'page.js').read_text(encoding='utf-8')}</script>",
        )  # fmt: skip
    except OSError as error:
        wanted = f"port {address.port}" if address.port else "no port from 7860 to 7959"
        raise ConfigError(f"cannot listen on {address.host}, {wanted}: is it taken? choose another --port ({error})") from error
    return str(public or local)


@contextmanager
def _until_stopped() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set; the handlers are put back afterwards."""
    stopped = threading.Event()
    before = {number: signal.signal(number, lambda *_: stopped.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stopped
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
