"""What the Qwen-VL families share: video processor call, tower call, language model call, parameter groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from vtgrl.core.errors import DataError
from vtgrl.model.families._mrope import Block, block_starts, positions
from vtgrl.model.families.base import VisionOutput
from vtgrl.model.types import Medium

VIDEO_KWARGS: dict[str, Any] = {"do_sample_frames": False, "do_resize": False}
"""For the Hugging Face processor and as vLLM's `mm_processor_kwargs`: frames were chosen and sized when they were decoded."""


class QwenVL:
    """Base of the Qwen-VL families. A family says how a clip reads as text and how fast its time axis runs."""

    name: str
    deepstack = False
    checkpoint_prefixes: tuple[tuple[str, str], ...] = ()
    """(prefix in the module, prefix in a checkpoint), first match wins."""

    def unit(self, config: Any) -> int:
        """Side of one merged patch in pixels."""
        return int(config.vision_config.patch_size * config.vision_config.spatial_merge_size)

    def vision_token_id(self, config: Any) -> int | None:
        """Id of <|video_pad|>."""
        return int(config.video_token_id)

    def clip_inputs(
        self, processor: Any, medium_frames: np.ndarray, metadata: dict[str, Any]
    ) -> tuple[torch.Tensor, tuple[int, int, int], float]:
        """Frames [T, H, W, 3] uint8 -> (pixel_values [patches, features] float32, grid before the merge, seconds a slice).

        Raises:
            DataError: frame sides are not multiples of `unit`.
        """
        video = processor.video_processor
        unit = video.patch_size * video.merge_size
        _, height, width, _ = medium_frames.shape
        if height % unit or width % unit:
            raise DataError(f"frames of {height}x{width} pixels: both sides must be multiples of {unit} for {self.name}")
        out = video(
            videos=[medium_frames],
            video_metadata=[dict(metadata)],
            input_data_format="channels_last",
            cap_pixels_per_frame=False,
            return_tensors="pt",
            **VIDEO_KWARGS,
        )
        t, h, w = out["video_grid_thw"][0].tolist()
        assert (h * video.patch_size, w * video.patch_size) == (height, width), "the video processor resized the frames"
        assert t == -(-len(medium_frames) // video.temporal_patch_size), "the video processor dropped frames"
        return out["pixel_values_videos"], (t, h, w), seconds_per_grid(metadata, temporal_patch=video.temporal_patch_size)

    def expand(self, processor: Any, text: str, media: tuple[Medium, ...]) -> list[int]:
        """Chat text with one placeholder per medium -> ids with every placeholder that the tower fills."""
        token = processor.video_token
        first, *rest = text.split(token)
        if len(rest) != len(media):
            raise DataError(f"the chat text has {len(rest)} video placeholders for {len(media)} clips")
        merge = processor.video_processor.merge_size
        filled = first + "".join(self.clip_text(processor, m, merge) + piece for m, piece in zip(media, rest, strict=True))
        return list(processor.tokenizer(filled)["input_ids"])

    def clip_text(self, processor: Any, medium: Medium, merge: int) -> str:
        """What stands in for one clip's placeholder: one token for each merged patch."""
        return processor.video_token * (_product(medium.grid_thw) // merge**2)

    def blocks(self, config: Any, medium: Medium) -> list[Block]:
        """Runs of placeholders of one clip, `start` still 0: all slices in one run."""
        t, h, w = medium.grid_thw
        merge = config.vision_config.spatial_merge_size
        return [Block(0, t, h // merge, w // merge, self.time_step(config, medium))]

    def time_step(self, config: Any, medium: Medium) -> float:
        """Positions from one temporal slice to the next."""
        return 1.0

    def positions(self, config: Any, input_ids: tuple[int, ...], media: tuple[Medium, ...]) -> tuple[torch.Tensor, int]:
        """-> ([3, P] int64, next position), equal to vLLM's."""
        blocks = [block for medium in media for block in self.blocks(config, medium)]
        starts = block_starts(input_ids, config.video_token_id, [b.size for b in blocks])
        placed = [Block(start, b.t, b.h, b.w, b.step) for start, b in zip(starts, blocks, strict=True)]
        return positions(len(input_ids), placed)

    def encode_vision(self, model: Any, pixel_values: torch.Tensor, grid_thw: torch.Tensor) -> VisionOutput:
        """One tower call on all media: pixel rows concatenated, grid [media, 3]. V = sum of grid products / merge^2."""
        tower = model.model.visual
        out = tower(pixel_values.to(tower.dtype), grid_thw=grid_thw, return_dict=True)
        return VisionOutput(out.pooler_output, tuple(out.deepstack_features) if self.deepstack else ())

    def dummy_vision(self, config: Any) -> tuple[torch.Tensor, torch.Tensor] | None:
        """One black merged patch: (pixel_values [merge^2, features], grid [1, 3])."""
        vision = config.vision_config
        merge = vision.spatial_merge_size
        features = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2
        return torch.zeros(merge**2, features), torch.tensor([[1, merge, merge]])

    def text_forward(
        self,
        model: Any,
        embeds_1TD: torch.Tensor,
        positions_31T: torch.Tensor,
        vision: VisionOutput | None,
        vision_index: torch.Tensor | None,
        **kwargs: Any,
    ) -> torch.Tensor:
        """Language model -> [1, T, D] after the final norm. `vision_index` [V] ascending; used by deepstack only."""
        if self.deepstack and vision is not None and vision_index is not None and len(vision_index):
            mask_1T = torch.zeros(embeds_1TD.shape[:2], dtype=torch.bool, device=embeds_1TD.device)
            mask_1T[0, vision_index] = True
            kwargs |= {"visual_pos_masks": mask_1T, "deepstack_visual_embeds": list(vision.deepstack)}
        out = model.model.language_model(inputs_embeds=embeds_1TD, position_ids=positions_31T, use_cache=False, **kwargs)
        return out.last_hidden_state

    def embed(self, model: Any) -> nn.Module:
        """Token embedding module."""
        return model.model.language_model.embed_tokens

    def head(self, model: Any) -> nn.Module:
        """Linear that makes logits."""
        return model.lm_head

    def freeze_groups(self, model: Any) -> dict[str, list[str]]:
        """Parameter names of `vision` (tower), `merger` (vision -> text width), `embed`, `lm_head`, `text` (layers, norm).
        Tied weights: `embed` and `lm_head` are the same name."""
        names = [name for name, _ in model.named_parameters()]
        visual = [n for n in names if n.startswith("model.visual.")]
        merger = [n for n in visual if n.startswith(("model.visual.merger.", "model.visual.deepstack_merger_list."))]
        embed = [n for n in names if n.startswith("model.language_model.embed_tokens.")]
        head = [n for n in names if n.startswith("lm_head.")] or embed
        text = [n for n in names if n.startswith("model.language_model.") and n not in embed]
        return {"vision": [n for n in visual if n not in merger], "merger": merger, "embed": embed, "lm_head": head, "text": text}

    def checkpoint_name(self, name: str) -> str:
        """Name as `save_pretrained` writes it and vLLM reads it; the base layer of an adapter loses its extra level."""
        name = name.replace(".base_layer.", ".")
        for ours, theirs in self.checkpoint_prefixes:
            if name.startswith(ours):
                return theirs + name[len(ours) :]
        return name


OLD_PREFIXES = (("model.language_model.", "model."), ("model.visual.", "visual."))
"""Qwen2-VL and Qwen2.5-VL checkpoints keep the names from before the module tree was unified."""


def seconds_per_grid(metadata: dict[str, Any], *, temporal_patch: int) -> float:
    """Seconds from one temporal slice to the next, as the HF processor derives it from `metadata`, rounded to bfloat16.

    vLLM stores this number in the model's dtype. Rounded once here (error below 0.4 %), positions are the same in fp32,
    bf16 and on both sides; `prompting.clip_metadata` writes a clip's metadata such that nothing is lost by it.
    """
    sampled_fps = len(metadata["frames_indices"]) / metadata["total_num_frames"] * metadata["fps"]
    return float(torch.tensor(temporal_patch / sampled_fps).bfloat16())


def _product(grid: tuple[int, int, int]) -> int:
    return grid[0] * grid[1] * grid[2]
