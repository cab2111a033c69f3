"""Generated grounding clips: coloured shapes that appear, move and vanish, as real mp4 files with exact truth."""

from vtgrl.data.world.make import make_world

__all__ = ["make_world"]
