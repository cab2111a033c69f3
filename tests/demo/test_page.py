"""The real page in headless Chromium. Needs `vtgrl[demo]` and a chromium on the PATH; skipped, with the reason, where they are not."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.demo.chromium import Tab, browser, find_chromium
from vtgrl.demo.answer import Answer
from vtgrl.demo.example import make_example
from vtgrl.demo.page import Address, _launch, build_page, need_gradio
from vtgrl.demo.reply import read_reply

pytestmark = [
    pytest.mark.skipif(importlib.util.find_spec("gradio") is None, reason="no Gradio: pip install 'vtgrl[demo]'"),
    pytest.mark.skipif(find_chromium() is None, reason="no chromium on the PATH: apt-get install chromium"),
]

READY = "document.querySelector('#vt-ask') && document.querySelector('#vt-clip video')?.readyState >= 2"
ASK = "document.querySelector('#vt-ask').click()"
SEEK = "document.querySelector('#vt-clip video').currentTime"


@contextmanager
def server(model: Path, folder: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """`vtgrl demo` in a process of its own: its address and the process."""
    command = [sys.executable, "-P", "-m", "vtgrl", "demo", "-m", str(model), "--engine", "hf", "video.max_pixels=3136"]
    environment = os.environ | {"TMPDIR": str(folder)}
    with (
        (folder / "log").open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment) as process,
    ):
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert url, (folder / "log").read_text()
            yield url, process
        finally:
            process.terminate()


def top(selector: str, edge: str = "top") -> str:
    """JavaScript for an edge of an element, in pixels from the top of the window."""
    return f"document.querySelector('{selector}').getBoundingClientRect().{edge}"


def foreign(tab: Tab, url: str) -> list[str]:
    """What the page asked for beyond its own server."""
    return [request for request in tab.requests if not request.startswith((url, "data:", "blob:", "about:"))]


@pytest.mark.slow
def test_ask_on_the_example_and_see_the_answer_under_the_player(taught_dir, tmp_path):
    with server(taught_dir, tmp_path) as (url, process), browser(tmp_path / "profile") as tab:
        assert url.startswith("http://127.0.0.1:")
        tab.open(url)
        tab.wait(READY)
        tab.js(ASK)
        tab.wait("document.querySelector('.vt-bar.vt-answer')")
        tab.screenshot(tmp_path / "page.png")
        assert (tmp_path / "page.png").stat().st_size > 10_000
        assert tab.js(f"{top('.vt-timeline')} >= {top('#vt-clip', 'bottom')}")
        assert tab.js("document.querySelectorAll('.vt-bar.vt-truth').length") == 1

        tab.js("document.querySelector('.vt-bar.vt-truth').click()")
        tab.wait(f"Math.abs({SEEK} - Number(document.querySelector('.vt-bar.vt-truth').dataset.seek)) < 0.05")
        tab.wait(f"Math.abs(parseFloat(document.querySelector('.vt-head').style.left) / 100 * 8 - {SEEK}) < 0.05")

        (tmp_path / "broken.mp4").write_bytes(b"no video")
        tab.js("document.querySelector('#vt-clip button[aria-label=Clear]').click()")
        tab.wait("!document.querySelector('.vt-bar') && document.querySelector('#vt-clip input[type=file]')")
        tab.upload("#vt-clip input[type=file]", tmp_path / "broken.mp4")
        tab.wait("!document.querySelector('#vt-clip input[type=file]')")
        tab.js(ASK)
        tab.wait("document.querySelector('.vt-problem')")
        assert tab.js("document.querySelector('.vt-problem').innerText").startswith("broken.mp4: not a readable video")

        assert foreign(tab, url) == []
        assert tab.errors == []
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
        assert list(tmp_path.glob("vtgrl-demo-*")) == []  # clips and uploads are gone
    assert "Traceback" not in (tmp_path / "log").read_text()


@pytest.mark.slow
def test_what_a_model_writes_is_text_to_the_page(tmp_path):
    evil = '<img src=x onerror="window.ran=1"> ${window.ran=1} {{value}} <script>window.ran=1</script>'

    class Evil:
        def ask(self, clip: Path, query: str) -> Answer:
            return Answer(read_reply(f"<think>{evil} from 1.0s to 2.0s</think>{evil}", duration=8.0), tokens=1, seconds=0.0)

    page = build_page(need_gradio(), Evil(), make_example(tmp_path), name="<b>evil</b>")
    url = _launch(need_gradio(), page, Address(), folder=str(tmp_path))
    try:
        with browser(tmp_path / "profile") as tab:
            tab.open(url)
            tab.wait(READY)
            tab.js(ASK)
            tab.wait("document.querySelector('.vt-answer-card')")
            assert evil in tab.js("document.querySelector('#vt-reasoning').innerText")
            assert evil in tab.js("document.querySelector('.vt-words').innerText")
            assert tab.js("window.ran") is None
    finally:
        page.close(verbose=False)
