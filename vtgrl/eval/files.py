"""Video files of a benchmark."""

from __future__ import annotations

from pathlib import Path

EXTENSIONS = (".mp4", ".mkv", ".webm", ".avi", ".mov")


def find_video(videos: Path, name: str) -> Path | None:
    """The file of a video in a folder: the name as given, without its folders, or with another extension."""
    for candidate in (videos / name, videos / Path(name).name):
        if candidate.is_file():
            return candidate
        for extension in EXTENSIONS:
            other = candidate.with_suffix(extension) if candidate.suffix in EXTENSIONS else Path(f"{candidate}{extension}")
            if other.is_file():
                return other
    return None


def file_seconds(file: Path) -> float:
    """Length of a video from its first frame to the end of its last.

    Raises:
        DataError: it cannot be opened.
    """
    from vtgrl.data.video.probe import probe

    return probe(str(file)).duration
