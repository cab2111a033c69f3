"""`vtgrl data check`: every broken clip and every row that does not fit is listed, and the rest is counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.data.film import cut_off, film
from vtgrl.core.jsonl import to_line
from vtgrl.core.types import Sample, VideoRef
from vtgrl.data.check import check_file, check_samples
from vtgrl.data.samples import sample_to_dict

pytestmark = pytest.mark.timeout(90)


def row(name: str, path: Path, *, query: str = "x", window: tuple[float, float] = (0.5, 1.0), **cut: float) -> Sample:
    return Sample(id=name, task="vtg", query=query, video=VideoRef(str(path), **cut), windows=(window,))


@pytest.mark.parametrize("workers", [0, 2])
def test_everything_wrong_is_listed(tmp_path: Path, workers: int) -> None:
    """Faults 46 and 47: ten rows, three files missing or damaged; found and expected are both known."""
    good = film(tmp_path / "good.mp4", frames=40)
    short = cut_off(film(tmp_path / "long.mp4", frames=100), tmp_path / "short.mp4", keep=0.5)
    text = tmp_path / "text.mp4"
    text.write_text("no video")
    samples = [
        row("a", good),
        row("b", good),
        row("c", good, start=1.0, end=3.0),
        row("d", good, start=9.0, end=10.0),
        row("e", short),
        row("f", text),
        row("g", tmp_path / "gone.mp4"),
        row("h", tmp_path / "gone.mp4", query="<|video_pad|>"),
        row("i", good, window=(5.0, 6.0)),
        Sample(id="j", task="text", query="2 + 2?"),
    ]
    report = check_samples(samples, timeout_s=30, workers=workers)
    assert (report.samples, report.usable, report.clips, report.ok) == (10, 4, 6, False)
    assert [(Path(path).name, reason.split(":")[0].split(";")[0][:30], n) for path, reason, n in report.broken] == [
        ("good.mp4", "the row means 9.00 s to 10.00 ", 1),
        ("short.mp4", "damaged", 1),
        ("text.mp4", "not a readable video (Invalid ", 1),
        ("gone.mp4", "No such file or directory", 2),
    ]
    assert sorted(report.rows) == [
        ("h", "the text holds the special token <|video_pad|>; remove it from the row"),
        ("i", "window [5.0, 6.0] starts after the clip's end (4.00 s)"),
    ]


def test_all_well(tmp_path: Path) -> None:
    report = check_samples([row("a", film(tmp_path / "a.mp4", frames=1))], timeout_s=30)
    assert (report.ok, report.usable, report.notes, report.rows) == (
        False,
        0,
        (),
        (("a", "window [0.5, 1.0] starts after the clip's end (0.10 s)"),),
    )
    report = check_samples([row("a", film(tmp_path / "b.mp4", frames=20))], timeout_s=30)
    assert (report.ok, report.usable, report.broken, report.rows) == (True, 1, (), ())


def test_annotation_file_and_its_videos(tmp_path: Path) -> None:
    film(tmp_path / "good.mp4", frames=40)
    samples = [row("a", Path("good.mp4")), row("b", Path("gone.mp4")), row("a", Path("good.mp4"))]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(to_line(sample_to_dict(sample)) for sample in samples))
    report = check_file(path, timeout_s=30)
    assert (report.samples, report.usable, report.clips, report.ok) == (2, 1, 2, False)
    assert report.rejected == ((f"{path}:3", f"id 'a' is already used at {path}:1"),)
    assert [video for video, _, _ in report.broken] == [str(tmp_path / "gone.mp4")]
