"""Decoding many answers to one prompt with ONE copy of the prompt's keys and values, inside an unmodified Hugging Face model.

The usual way repeats the prompt's cache for every answer: with a video of thousands of tokens and G answers that is G
times the memory, and most of the time goes into copying it. Here an answer's attention to the prompt and to itself are
computed apart and merged by their log-sum-exp (as in ring attention, arXiv:2310.01889); all answers of a prompt read its
keys in one matrix product.

The attention function is registered as "vtgrl_prefix" and gets the `SharedPrefix` as a forward keyword argument.

Shape legend: B prompts, P longest prompt (padded on the left), m member slots a prompt, N rows (answers), S = B x m slots,
H query heads, K key heads, g = H / K, A answer tokens so far, E head size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn import functional as F
from transformers import AttentionInterface, PreTrainedConfig
from transformers.cache_utils import Cache, DynamicLayer
from transformers.masking_utils import AttentionMaskInterface

from vtgrl.core.errors import ConfigError

NAME = "vtgrl_prefix"
FIRST_ROOM = 64
"""Answer tokens that a new cache has room for; it doubles when full."""


@dataclass(frozen=True, eq=False)
class SharedPrefix:
    """Keys and values of the prompts, per layer [B, K, P, E]. pad_BP: True on the padding. slot_N: row -> place in S."""

    keys: list[torch.Tensor]
    values: list[torch.Tensor]
    pad_BP: torch.Tensor
    slot_N: torch.Tensor
    members: int

    def keep(self, mask_N: torch.Tensor) -> SharedPrefix:
        """Only the marked rows, and only the prompts that still have one."""
        prompt_N = (self.slot_N // self.members)[mask_N]
        used_B, place_N, count_B = prompt_N.unique(return_inverse=True, return_counts=True)
        members = int(count_B.max())
        first_B = count_B.cumsum(0) - count_B
        nth_N = torch.arange(len(place_N), device=place_N.device) - first_B[place_N]  # rows of a prompt stay side by side
        if len(used_B) == len(self.pad_BP):
            return SharedPrefix(self.keys, self.values, self.pad_BP, place_N * members + nth_N, members)
        keys, values = ([x.index_select(0, used_B) for x in layers] for layers in (self.keys, self.values))
        return SharedPrefix(keys, values, self.pad_BP[used_B], place_N * members + nth_N, members)

    def to_slots(self, x_NKgE: torch.Tensor) -> torch.Tensor:
        """Rows -> [B, K, m * g, E]; slots without a row are zero."""
        slots = len(self.pad_BP) * self.members
        x_SKgE = x_NKgE.new_zeros(slots, *x_NKgE.shape[1:]).index_copy(0, self.slot_N, x_NKgE)
        return x_SKgE.unflatten(0, (-1, self.members)).transpose(1, 2).flatten(2, 3)

    def to_rows(self, x_BKmg: torch.Tensor) -> torch.Tensor:
        """[B, K, m * g, ...] -> rows [N, K, g, ...]."""
        return x_BKmg.unflatten(2, (self.members, -1)).transpose(1, 2).flatten(0, 1).index_select(0, self.slot_N)


def join_prompts(caches: Sequence[Cache], members: int) -> SharedPrefix:
    """Caches of single prompts -> one prefix with `members` rows a prompt, side by side."""
    lengths = [cache.layers[0].keys.shape[2] for cache in caches]
    longest, device = max(lengths), caches[0].layers[0].keys.device
    keys, values = [], []
    for layers in zip(*(cache.layers for cache in caches), strict=True):
        keys.append(torch.cat([_pad_left(layer.keys, longest) for layer in layers]))
        values.append(torch.cat([_pad_left(layer.values, longest) for layer in layers]))
    pad_BP = torch.arange(longest, device=device) < longest - torch.tensor(lengths, device=device)[:, None]
    return SharedPrefix(keys, values, pad_BP, torch.arange(len(caches) * members, device=device), members)


def _pad_left(x_1KPE: torch.Tensor, length: int) -> torch.Tensor:
    return F.pad(x_1KPE, (0, 0, length - x_1KPE.shape[2], 0))


class AnswerLayer(DynamicLayer):
    """Keys and values of the answers' own tokens in a buffer that doubles, so a step copies only its own token."""

    used = 0

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Append; returns everything so far, [N, K, A, E] each."""
        end = self.used + key_states.shape[2]
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = (_grown(x[:, :, :0], FIRST_ROOM) for x in (key_states, value_states))
        if end > self.keys.shape[2]:
            self.keys, self.values = (_grown(x, max(end, 2 * x.shape[2])) for x in (self.keys, self.values))
        self.keys[:, :, self.used : end] = key_states
        self.values[:, :, self.used : end] = value_states
        self.used = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_seq_length(self) -> int:
        """Answer tokens so far."""
        return self.used

    def keep(self, mask_N: torch.Tensor) -> None:
        """Only the marked rows."""
        self.keys, self.values = self.keys[mask_N], self.values[mask_N]


def _grown(x: torch.Tensor, room: int) -> torch.Tensor:
    bigger = x.new_empty(*x.shape[:2], room, x.shape[3])
    bigger[:, :, : x.shape[2]] = x
    return bigger


def answer_cache(layers: int) -> Cache:
    """An empty cache of the answers' own tokens."""
    return Cache(layers=[AnswerLayer() for _ in range(layers)])


@contextmanager
def prefix_attention(config: PreTrainedConfig) -> Iterator[None]:
    """Inside, the text model with this config decodes against a `SharedPrefix` (forward argument `shared_prefix`)."""
    before = config._attn_implementation
    config._attn_implementation = NAME
    try:
        yield
    finally:
        config._attn_implementation = before


def attention_forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    shared_prefix: SharedPrefix,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """query [N, H, 1, E], key and value [N, K, A, E] of the answers -> ([N, 1, H, E], None)."""
    assert query.shape[2] == 1, "one token a row"
    assert attention_mask is None, "no mask: the prefix says what is seen"
    extra = [name for name in ("softcap", "s_aux", "position_bias", "sliding_window") if kwargs.get(name) is not None]
    if extra:
        raise ConfigError(f"this model's attention uses {', '.join(extra)}, which the hf engine does not support; use vllm_colocate")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    query_NKgE = query[:, :, 0].unflatten(1, (key.shape[1], -1))
    own_NKgE, own_NKg = _attend(query_NKgE, key, value, scale)
    layer = module.layer_idx
    seen = _attend(shared_prefix.to_slots(query_NKgE), shared_prefix.keys[layer], shared_prefix.values[layer], scale, shared_prefix.pad_BP)
    seen_NKgE, seen_NKg = map(shared_prefix.to_rows, seen)
    joint_NKg = torch.logaddexp(seen_NKg, own_NKg)
    out_NKgE = seen_NKgE * (seen_NKg - joint_NKg).exp()[..., None] + own_NKgE * (own_NKg - joint_NKg).exp()[..., None]
    return out_NKgE.flatten(1, 2)[:, None].to(query.dtype), None


def _attend(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float, pad: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """-> (softmax-weighted values, log-normaliser), both fp32. query [b, K, q, E], key and value [b, K, k, E], pad [b, k]."""
    score = (query @ key.transpose(-1, -2)).float() * scale
    if pad is not None:
        score.masked_fill_(pad[:, None, None], -torch.inf)
    lse = score.logsumexp(-1)
    return (score.sub_(lse[..., None]).exp_().to(value.dtype) @ value).float(), lse


def _no_mask(*args: Any, **kwargs: Any) -> None:
    """The prefix and the answer cache hold exactly what a row sees."""


AttentionInterface.register(NAME, attention_forward)
AttentionMaskInterface.register(NAME, _no_mask)
