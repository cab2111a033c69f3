"""Does the processor fit the model, and do trainer and vLLM see the same pixels? Asked once, when a model is loaded."""

from __future__ import annotations

from typing import Any

from vtgrl.core.errors import ConfigError
from vtgrl.model.families.base import Family

PIXEL_SETTINGS = ("do_rescale", "rescale_factor", "do_normalize", "image_mean", "image_std")


def check_processor(processor: Any, config: Any, family: Family, *, where: str) -> None:
    """Compare processor, model and the assumptions of vLLM.

    Raises:
        ConfigError: names the folder, the setting and both values.
    """
    if not family.unit(config):
        return
    _check_pixels(processor.image_processor, processor.video_processor, where=where)
    _check_patches(processor.video_processor, config.vision_config, where=where)
    if processor.video_token_id != config.video_token_id:
        raise ConfigError(
            f"{where}: the processor's video token {processor.video_token!r} has id {processor.video_token_id}, "
            f"the config says {config.video_token_id}; the two are from different models"
        )


def _check_pixels(image: Any, video: Any, *, where: str) -> None:
    """vLLM normalises video frames with the IMAGE processor's numbers, the trainer with the video processor's: when they
    differ, log-probs differ by 1e-1 and nothing says so."""
    for name in PIXEL_SETTINGS:
        of_image, of_video = _plain(getattr(image, name)), _plain(getattr(video, name))
        if of_image != of_video:
            raise ConfigError(
                f"{where}: {name} is {of_video} for videos and {of_image} for images; vLLM shows videos with the image settings, "
                "so sampling and training would see different pixels: write the video's value into both processor configs"
            )


def _check_patches(video: Any, vision: Any, *, where: str) -> None:
    pairs = (("patch_size", "patch_size"), ("temporal_patch_size", "temporal_patch_size"), ("merge_size", "spatial_merge_size"))
    for ours, theirs in pairs:
        if getattr(video, ours) != getattr(vision, theirs):
            raise ConfigError(
                f"{where}: the video processor's {ours} is {getattr(video, ours)}, the vision tower's {theirs} is "
                f"{getattr(vision, theirs)}; the two are from different models"
            )


def _plain(value: Any) -> Any:
    return [float(v) for v in value] if isinstance(value, (list, tuple)) else value
