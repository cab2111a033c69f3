"""Prompt templates for tests, named in a recipe as `path/to/templates.py:NAME`."""

from vtgrl.data.prompts.types import VIDEO, Chat


def plain(sample, *, duration, config):
    """Clip, then the question; the true window is the answer."""
    target = None
    if sample.windows:
        (start, end) = sample.windows[0]
        target = f"<answer>{start:.2f}s to {end:.2f}s</answer>"
    video = (VIDEO,) if sample.video is not None else ()
    return Chat((*video, sample.query), system=f"The clip lasts {duration:.1f}s.", target=sample.answer or target)


def blind(sample, *, duration, config):
    """Forgets the clip."""
    return Chat((sample.query,))


def twice(sample, *, duration, config):
    """Shows the clip twice."""
    return Chat((VIDEO, VIDEO, sample.query))
