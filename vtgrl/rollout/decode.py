"""The decode loop of the `hf` engine: prompts read once, answers drawn together with a KV cache.

Shape legend: P prompt tokens, N rows (prompts x members) still decoded, L longest answer, K longest given prefix, V vocabulary, D hidden
size.

Every prompt is read alone (no padding, its video encoded once); its keys are kept once for all its answers (see
`prefix_attention`). Positions come from the prompt, never counted from a cache, so a row's numbers do not depend on the
rows beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import nn
from transformers import DynamicCache
from transformers.cache_utils import Cache

from vtgrl.core.schema import SamplingConfig
from vtgrl.model.families.base import Family, VisionOutput
from vtgrl.model.types import Medium, Prompt
from vtgrl.rollout.prefix_attention import SharedPrefix, answer_cache, join_prompts, prefix_attention
from vtgrl.rollout.protocol import Prefixes
from vtgrl.rollout.sampling import draw, greedy, logprob_of, processed_logprobs

KEEP_SHARE = 0.75
"""Finished rows leave the batch once fewer than this share of the rows goes on: dropping one copies the cache."""


@dataclass(frozen=True)
class Drawn:
    """One answer as ids. `stopped`: it ended with an end token (which is the last id). `given`: so many of the ids came with the call."""

    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    stopped: bool
    given: int


@dataclass(frozen=True, eq=False)
class _Read:
    """A prompt that was read: its keys and values, and the logits of the first answer token [1, V]."""

    cache: Cache
    logits_1V: torch.Tensor


class Decoder:
    """Draws answers from a Hugging Face model through its family. The model must be in eval mode and keep its weights:
    encoded clips are kept as long as the decoder."""

    def __init__(self, model: nn.Module, family: Family, *, eos_ids: frozenset[int]) -> None:
        self.model = model
        self.family = family
        self.embed = family.embed(model)
        self.head = family.head(model)
        self.text_config = model.get_decoder().config
        self._encoded: dict[tuple[str, ...], VisionOutput] = {}
        self.device = next(model.parameters()).device
        self.eos_E = torch.tensor(sorted(eos_ids), device=self.device)

    @torch.no_grad()
    def answers(
        self, prompts: Sequence[Prompt], limits: Sequence[int], seeds: Sequence[int], given: Prefixes, *, n: int, sampling: SamplingConfig
    ) -> list[list[Drawn]]:
        """n answers a prompt, at most `limits[i]` tokens; member m of prompt i begins with `given[i][m]` and is drawn with `seeds[i] + m`.

        Given tokens are fed one a step in place of sampled ones, so that all rows stay side by side; the number that would have drawn
        one is left unused, and the rows of a call without prefixes are those of a call that knows of none.
        """
        read = [self._read(prompt) for prompt in prompts]
        rows = _Rows(
            prefix=join_prompts([r.cache for r in read], n),
            own=answer_cache(len(read[0].cache.layers)),
            position_N=torch.tensor([p.next_position for p in prompts], device=self.device).repeat_interleave(n),
            limit_N=torch.tensor(limits, device=self.device).repeat_interleave(n),
            uniform_NL=_uniforms(seeds, n, max(limits)).to(self.device),
            given_NK=_padded([ids for group in given for ids in group]).to(self.device),
            index_N=torch.arange(n * len(prompts), device=self.device),
        )
        logits_NV = torch.cat([r.logits_1V for r in read]).repeat_interleave(n, 0)
        with prefix_attention(self.text_config):
            flat = self._loop(rows, logits_NV, sampling=sampling)
        flat = [_without_logp(drawn, len(ids)) for drawn, ids in zip(flat, (ids for group in given for ids in group), strict=True)]
        return [flat[i : i + n] for i in range(0, len(flat), n)]

    def _read(self, prompt: Prompt) -> _Read:
        """Prefill one prompt, its media encoded once and placed by position."""
        ids_1P = torch.tensor([prompt.input_ids], device=self.device)
        embeds_1PD = self.embed(ids_1P)
        vision, index_V = None, None
        if prompt.media:
            vision = self._encode(prompt.media)
            index_V = prompt.vision_index.to(self.device)
            embeds_1PD = embeds_1PD.index_copy(1, index_V, vision.embeds_VD.to(embeds_1PD.dtype)[None])
        cache = DynamicCache()
        positions_31P = prompt.positions_3P[:, None].to(self.device)
        hidden_1PD = self.family.text_forward(
            self.model, embeds_1PD, positions_31P, vision, index_V, attention_mask=None, past_key_values=cache
        )
        return _Read(cache, self.head(hidden_1PD[:, -1]))

    def _encode(self, media: tuple[Medium, ...]) -> VisionOutput:
        """Embeddings of a prompt's media; several questions about one clip encode it once."""
        key = tuple(m.id for m in media)
        if key not in self._encoded:
            pixels = torch.cat([m.pixel_values for m in media]).to(self.device)
            grid = torch.tensor([m.grid_thw for m in media], device=self.device)
            self._encoded[key] = self.family.encode_vision(self.model, pixels, grid)
        return self._encoded[key]

    def _loop(self, rows: _Rows, logits_NV: torch.Tensor, *, sampling: SamplingConfig) -> list[Drawn]:
        total, longest = rows.uniform_NL.shape
        token_NL = torch.zeros(total, longest, dtype=torch.int64, device=self.device)
        logp_NL = torch.zeros(total, longest, device=self.device)
        length_N = torch.zeros(total, dtype=torch.int64, device=self.device)
        stopped_N = torch.zeros(total, dtype=torch.bool, device=self.device)
        open_N = torch.ones(total, dtype=torch.bool, device=self.device)  # of the rows still in the batch
        for step in range(longest):
            token_N, logp_N = _choose(logits_NV, rows.uniform_NL[:, step], sampling)
            given_N = rows.given_at(step)
            token_N = torch.where(given_N < 0, token_N, given_N)
            now = rows.index_N[open_N]
            token_NL[now, step], logp_NL[now, step] = token_N[open_N], logp_N[open_N]
            length_N[now] = step + 1
            ended_N = torch.isin(token_N, self.eos_E) & (given_N < 0)
            stopped_N[now] = ended_N[open_N]
            open_N = open_N & ~ended_N & (step + 1 < rows.limit_N)
            left = int(open_N.sum())
            if left == 0:
                break
            if left < KEEP_SHARE * len(open_N):
                rows, token_N, open_N = rows.keep(open_N), token_N[open_N], open_N[open_N]
            logits_NV = self._step(rows, token_N, step=step)
        return _collect(token_NL, logp_NL, length_N, stopped_N)

    def _step(self, rows: _Rows, token_N: torch.Tensor, *, step: int) -> torch.Tensor:
        """Feed one token a row (a sampled vision placeholder is the plain token that it is) -> next logits [N, V]."""
        positions_3N1 = (rows.position_N + step).expand(3, -1)[..., None]
        hidden_N1D = self.family.text_forward(
            self.model,
            self.embed(token_N[:, None]),
            positions_3N1,
            None,
            None,
            attention_mask=None,
            past_key_values=rows.own,
            shared_prefix=rows.prefix,
        )
        return self.head(hidden_N1D[:, -1])


@dataclass(eq=False)
class _Rows:
    """The rows in the batch. index_N: place of the row in the result. given_NK: ids that the row begins with, then -1."""

    prefix: SharedPrefix
    own: Cache
    position_N: torch.Tensor
    limit_N: torch.Tensor
    uniform_NL: torch.Tensor
    given_NK: torch.Tensor
    index_N: torch.Tensor

    def given_at(self, step: int) -> torch.Tensor:
        """The id that each row takes at `step`, -1 where it is sampled."""
        return self.given_NK[:, step] if step < self.given_NK.shape[1] else self.given_NK.new_full((len(self.given_NK),), -1)

    def keep(self, mask_N: torch.Tensor) -> _Rows:
        """Only the marked rows."""
        for layer in self.own.layers:
            if layer.is_initialized:  # not before the first step
                layer.keep(mask_N)
        rest = (x[mask_N] for x in (self.position_N, self.limit_N, self.uniform_NL, self.given_NK, self.index_N))
        return _Rows(self.prefix.keep(mask_N), self.own, *rest)


def _choose(logits_NV: torch.Tensor, uniform_N: torch.Tensor, sampling: SamplingConfig) -> tuple[torch.Tensor, torch.Tensor]:
    logp_NV = processed_logprobs(logits_NV, temperature=sampling.temperature, top_p=sampling.top_p, top_k=sampling.top_k)
    token_N = greedy(logp_NV) if sampling.temperature == 0.0 else draw(logp_NV, uniform_N)
    return token_N, logprob_of(logp_NV, token_N)


def _uniforms(seeds: Sequence[int], n: int, length: int) -> torch.Tensor:
    """float64 [prompts x n, length]: every row from a generator of its own, on the CPU, so equal on every machine."""
    rows = [torch.rand(length, generator=torch.Generator().manual_seed(seed + m), dtype=torch.float64) for seed in seeds for m in range(n)]
    return torch.stack(rows)


def _padded(given: Sequence[tuple[int, ...]]) -> torch.Tensor:
    """int64 [rows, K], -1 behind the ids of a row."""
    longest = max(map(len, given), default=0)
    return torch.tensor([[*ids, *[-1] * (longest - len(ids))] for ids in given], dtype=torch.int64).reshape(len(given), longest)


def _without_logp(drawn: Drawn, given: int) -> Drawn:
    """The first `given` ids were not sampled: no log-prob belongs to them."""
    return replace(drawn, logprobs=(math.nan,) * given + drawn.logprobs[given:], given=given) if given else drawn


def _collect(token_NL: torch.Tensor, logp_NL: torch.Tensor, length_N: torch.Tensor, stopped_N: torch.Tensor) -> list[Drawn]:
    rows = zip(token_NL.tolist(), logp_NL.tolist(), length_N.tolist(), stopped_N.tolist(), strict=True)
    return [Drawn(tuple(ids[:size]), tuple(logp[:size]), stopped, 0) for ids, logp, size, stopped in rows]
