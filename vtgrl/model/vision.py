"""See each video once: one tower call per packed row on its unique media, kept for the next pass when the tower is frozen.

A clip that a probe changed (`Variant`) then costs its dirty slices only; the others come from the true clip's embeddings.

Under ZeRO-3 a tower call gathers sharded weights, so every rank must make the same calls: a rank whose row has no media (or
has all of them in its cache) runs the family's smallest input instead and adds nothing of it.

Shape legend: V vision tokens, D hidden size, T packed tokens, M media.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from vtgrl.core.errors import DataError
from vtgrl.model.families.base import Family, VisionOutput
from vtgrl.model.packing import PackedInputs
from vtgrl.model.slices import SlicePixels, Variant, whole
from vtgrl.model.types import Medium

Shown = Medium | Variant
Pixels = Medium | Variant | SlicePixels
"""What the tower can be called on: pixel rows and their grid."""

CACHE_BYTES = 512 * 2**20
"""Embeddings kept on the device; a clip of 3,584 tokens at width 2,048 in bf16 takes 15 MB (60 MB with deepstack)."""


class VisionRunner:
    """Runs the tower of `hf`. Not a module: it owns no weights. `calls` and `slices` count what it has done so far (dummy
    calls too)."""

    def __init__(self, hf: nn.Module, family: Family, *, cache_bytes: int = CACHE_BYTES) -> None:
        groups = family.freeze_groups(hf)
        names = {*groups.get("vision", ()), *groups.get("merger", ())}
        self.parameters = [p for n, p in hf.named_parameters() if n in names]
        self.cache = EmbeddingCache(cache_bytes)
        self.calls = 0
        self.slices = 0
        self._hf, self._family = hf, family

    @property
    def frozen(self) -> bool:
        """No parameter of tower or merger trains."""
        return not any(p.requires_grad for p in self.parameters)

    def run(self, media: Sequence[Shown]) -> tuple[VisionOutput | None, torch.Tensor | None]:
        """-> (embeddings of `media` one after the other, a scalar zero that ties the tower to the graph).

        The first is None without media, the second unless the tower trains and its call was a dummy one.

        Raises:
            DataError: media for a text model.
        """
        if not self.parameters:
            if media:
                raise DataError(f"medium {media[0].id!r}: the {self._family.name} model has no vision tower")
            return None, None
        if not self.frozen:
            return self._run_trainable(media)
        self.cache.match(self._fingerprint())
        with torch.no_grad():
            parts = self._frozen(media)
        return (_join(parts) if media else None), None

    def dummy(self) -> torch.Tensor:
        """Run the smallest input -> scalar that is exactly 0, with a (zero) gradient for every tower parameter, deepstack
        mergers included."""
        pixels, grid = self._dummy_input()
        out = self._call(pixels, grid)
        # an empty slice, not `0 * x`: it stays 0 when x overflows
        return sum((d[:0].sum() for d in out.deepstack), start=out.embeds_VD[:0].sum())

    def _run_trainable(self, media: Sequence[Shown]) -> tuple[VisionOutput | None, torch.Tensor | None]:
        """Nothing is kept: the next pass may have other weights, and a gradient goes through this one's graph."""
        if media:
            return self._call(*_tower_input(media)), None
        if torch.is_grad_enabled() or self._sharded():
            return None, self.dummy()
        return None, None

    def _frozen(self, media: Sequence[Shown]) -> list[VisionOutput]:
        """Embeddings of each medium. One tower call on the true clips that are not in the cache and on all dirty slices."""
        clips = {clip.id: clip for clip in map(whole, media)}
        known = {name: self.cache.get(name) for name in clips if name in self.cache}
        missing = [clip for name, clip in clips.items() if name not in known]
        dirty = [m.dirty_pixels() for m in media if isinstance(m, Variant) and m.dirty]
        made = self._encode([*missing, *dirty]) if self._agree(bool(missing or dirty)) else {}
        for clip in missing:
            self.cache.put(clip.id, made[clip.id])
        known |= made
        return [m.assemble(known[m.base.id], known.get(m.id)) if isinstance(m, Variant) else known[m.id] for m in media]

    def _encode(self, parts: Sequence[Pixels]) -> dict[str, VisionOutput]:
        """One tower call (a dummy one when nothing is missing here but is on another rank) -> embeddings by id."""
        if not parts:
            self.dummy()
            return {}
        out = self._call(*_tower_input(parts))
        return {part.id: found for part, found in zip(parts, _split(out, parts), strict=True)}

    def _call(self, pixels: torch.Tensor, grid: torch.Tensor) -> VisionOutput:
        self.calls += 1
        self.slices += int(grid[:, 0].sum())
        device = self.parameters[0].device
        return self._family.encode_vision(self._hf, pixels.to(device), grid.to(device))

    def _dummy_input(self) -> tuple[torch.Tensor, torch.Tensor]:
        made = self._family.dummy_vision(self._hf.config)
        assert made is not None, "a family with a tower has a dummy input"
        return made

    def _sharded(self) -> bool:
        """ZeRO-3 over several ranks (it marks parameters with `ds_id`)."""
        return dist.is_initialized() and dist.get_world_size() > 1 and hasattr(self.parameters[0], "ds_id")

    def _agree(self, needed: bool) -> bool:
        """Whether any rank needs the tower now; a rank's own answer when the weights are not sharded."""
        if not self._sharded():
            return needed
        flag = torch.tensor([int(needed)], device=self.parameters[0].device)
        dist.all_reduce(flag, op=dist.ReduceOp.MAX)
        return bool(flag.item())

    def _fingerprint(self) -> tuple[Any, ...]:
        """Changes when a tower parameter is written in place, cast or moved (writes through `.data` go unseen: see
        `Policy.invalidate`)."""
        first = self.parameters[0]
        return sum(p._version for p in self.parameters), first.dtype, first.device


class EmbeddingCache:
    """Last used embeddings by medium id, at most `limit` bytes of them."""

    def __init__(self, limit: int) -> None:
        self.limit, self.bytes = limit, 0
        self._items: OrderedDict[str, VisionOutput] = OrderedDict()
        self._fingerprint: Any = None

    def __contains__(self, name: str) -> bool:
        return name in self._items

    def __len__(self) -> int:
        return len(self._items)

    def match(self, fingerprint: Any) -> None:
        """Forget everything made by other weights."""
        if fingerprint != self._fingerprint:
            self.clear()
            self._fingerprint = fingerprint

    def get(self, name: str) -> VisionOutput:
        """The embeddings of a medium that is in the cache."""
        self._items.move_to_end(name)
        return self._items[name]

    def put(self, name: str, value: VisionOutput) -> None:
        """Keep a medium, pushing out the longest unused; one larger than the whole limit is not kept."""
        if _size(value) > self.limit:
            return
        self._items[name] = value
        self.bytes += _size(value)
        while self.bytes > self.limit:
            self.bytes -= _size(self._items.popitem(last=False)[1])

    def clear(self) -> None:
        """Forget everything."""
        self._items.clear()
        self.bytes = 0


def place(embeds_TD: torch.Tensor, inputs: PackedInputs, vision: VisionOutput) -> tuple[torch.Tensor, VisionOutput]:
    """Put vision tokens where the prompts' placeholders are, by position -> (embeddings, vision tokens in row order).

    `vision` holds each medium of `inputs.media` once; a medium that several groups show is copied to each.
    """
    spread = _join([_split(vision, inputs.media)[slot] for slot in inputs.media_slots])
    found, wanted = spread.embeds_VD.shape[0], inputs.vision_index_V.shape[0]
    if found != wanted:
        raise DataError(f"the row has places for {wanted} vision tokens, its media give {found}: {[m.id for m in inputs.media]}")
    return embeds_TD.index_copy(0, inputs.vision_index_V, spread.embeds_VD.to(embeds_TD.dtype)), spread


def _tower_input(media: Sequence[Pixels]) -> tuple[torch.Tensor, torch.Tensor]:
    """Pixel rows of all media one after the other, grids [M, 3]."""
    return torch.cat([m.pixel_values for m in media]), torch.tensor([m.grid_thw for m in media])


def _split(vision: VisionOutput, media: Sequence[Pixels]) -> list[VisionOutput]:
    """Joint output -> one per medium, each with its share of tokens (its patches / merged area)."""
    patches = [t * h * w for t, h, w in (m.grid_thw for m in media)]
    area = sum(patches) // vision.embeds_VD.shape[0]
    sizes = [p // area for p in patches]
    deep = [d.split(sizes) for d in vision.deepstack]
    return [VisionOutput(e, tuple(d[i] for d in deep)) for i, e in enumerate(vision.embeds_VD.split(sizes))]


def _join(parts: Sequence[VisionOutput]) -> VisionOutput:
    deep = zip(*(p.deepstack for p in parts), strict=True)
    return VisionOutput(torch.cat([p.embeds_VD for p in parts]), tuple(torch.cat(layer) for layer in deep))


def _size(value: VisionOutput) -> int:
    return sum(x.numel() * x.element_size() for x in (value.embeds_VD, *value.deepstack))
