"""Attention of packed rows inside an unmodified Hugging Face model, registered as "vtgrl_packed".

The layout of the row (`RowLayout`) travels as a forward keyword argument, `packed_layout`, down to the attention function.
Without it the function is the ordinary "sdpa". No T x T mask or score matrix is ever made.

Three ways to compute the same thing:
- on a CPU: the prompt part and the own part of an answer's attention are computed apart and merged by their log-sum-exp,
  as ring attention does (arXiv:2310.01889), so that no key of the prompt is copied per answer;
- on CUDA with flash-attn and half precision: one variable-length call;
- else: one scaled-dot-product call per prompt and per distinct answer length.

Shape legend: H query heads, K key heads, T packed tokens, P prompt tokens, A answer tokens of a group, n answers of equal
length R, E head size.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch.nn import functional as F
from torch.nn.attention.bias import causal_lower_right
from transformers import AttentionInterface, PreTrainedConfig
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from vtgrl.core.errors import ConfigError
from vtgrl.model.packing import RowLayout, Segment

NAME = "vtgrl_packed"
_maskless: ContextVar[bool] = ContextVar("vtgrl_maskless", default=False)


def use_packed_attention(config: PreTrainedConfig) -> None:
    """Make a TEXT model (its config) run packed attention. A vision tower's config stays as it is.

    Raises:
        ConfigError: layers that do not attend to everything before them (sliding windows, linear attention).
    """
    values = config.to_dict()
    other = sorted(set(values.get("layer_types") or ()) - {"full_attention"})
    sliding = values.get("use_sliding_window", values.get("sliding_window") is not None)
    if other or sliding:
        what = ", ".join(other) or "sliding windows (use_sliding_window)"
        raise ConfigError(f"model {values.get('model_type')!r} has text layers with {what}: packed rows need full attention")
    config._attn_implementation = NAME


@contextmanager
def ordinary_attention(config: PreTrainedConfig) -> Iterator[None]:
    """Inside, the text model runs plain Hugging Face "sdpa"."""
    before = config._attn_implementation
    config._attn_implementation = "sdpa"
    try:
        yield
    finally:
        config._attn_implementation = before


@contextmanager
def no_mask() -> Iterator[None]:
    """Inside, the model makes no attention mask: the layout says who sees whom. (Text models that find restarting positions
    would otherwise make a dense one.)"""
    token = _maskless.set(True)
    try:
        yield
    finally:
        _maskless.reset(token)


def packed_mask(*args: Any, **kwargs: Any) -> torch.Tensor | None:
    """Mask function beside the attention function: None inside `no_mask`, else what "sdpa" would get."""
    return None if _maskless.get() else sdpa_mask(*args, **kwargs)


def packed_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float | None = None,
    dropout: float = 0.0,
    packed_layout: RowLayout | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """query [1, H, T, E], key and value [1, K, T, E] -> ([1, T, H, E], None)."""
    if packed_layout is None:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, dropout=dropout, **kwargs)
    _refuse(query, attention_mask, packed_layout, kwargs)
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    if query.is_cuda and query.dtype in (torch.bfloat16, torch.float16) and importlib.util.find_spec("flash_attn"):
        out_1HTE = flash_varlen(query, key, value, packed_layout, scale=scale, dropout=dropout)
    elif query.device.type == "cpu" and dropout == 0.0:
        out_1HTE = _MergedAttention.apply(query, key, value, packed_layout, scale)
    else:
        out_1HTE = sdpa_by_segments(query, key, value, packed_layout, scale=scale, dropout=dropout)
    return out_1HTE.transpose(1, 2).contiguous(), None


def _refuse(query: torch.Tensor, mask: torch.Tensor | None, layout: RowLayout, kwargs: dict[str, Any]) -> None:
    assert mask is None, "a packed row was run with a mask: call the model inside no_mask()"
    seen, wanted = (query.shape[0], query.shape[2]), (1, layout.tokens)
    assert seen == wanted, f"attention was given (batch, tokens) = {seen} for a row of {wanted}"
    extra = [name for name in ("softcap", "s_aux", "position_bias", "sliding_window") if kwargs.get(name) is not None]
    if extra:
        raise ConfigError(f"this model's attention uses {', '.join(extra)}, which packed rows do not support")


# ---- CPU: parts merged by log-sum-exp ------------------------------------------------------------------------------------

_attend = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
_attend_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


def _own_rows(x_1HTE: torch.Tensor, index_nR: torch.Tensor) -> torch.Tensor:
    """Rows of n answers -> [n, H, R, E]."""
    return x_1HTE[0, :, index_nR].transpose(0, 1)


class _MergedAttention(torch.autograd.Function):
    """softmax over [prompt keys ; own keys] = the two softmaxes weighted by exp(their log-normaliser - the joint one).

    Backward of flash attention needs only the joint output and log-normaliser: each part's gradient comes from the part's
    own kernel, fed with the joint two.
    """

    @staticmethod
    def forward(ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layout: RowLayout, scale: float) -> torch.Tensor:
        out = torch.empty_like(query)
        lse = query.new_empty(query.shape[:3], dtype=torch.float64 if query.dtype == torch.float64 else torch.float32)
        for segment in layout.segments:
            prompt, answers = slice(segment.start, segment.answer_start), slice(segment.answer_start, segment.end)
            keys, values = key[:, :, prompt], value[:, :, prompt]
            out[:, :, prompt], lse[:, :, prompt] = _attend(query[:, :, prompt], keys, values, 0.0, True, scale=scale)
            out[:, :, answers], lse[:, :, answers] = _attend(query[:, :, answers], keys, values, 0.0, False, scale=scale)
            for index_nR in segment.same_length:
                _merge_own(out, lse, query, key, value, index_nR, scale)
        ctx.save_for_backward(query, key, value, out, lse)
        ctx.layout, ctx.scale = layout, scale
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad_out: torch.Tensor) -> tuple[Any, ...]:
        query, key, value, out, lse = ctx.saved_tensors
        grads = tuple(torch.zeros_like(x) for x in (query, key, value))
        for segment in ctx.layout.segments:
            _segment_gradient(grads, segment, (grad_out, query, key, value, out, lse), ctx.scale)
        return *grads, None, None


def _merge_own(
    out: torch.Tensor,
    lse: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    index_nR: torch.Tensor,
    scale: float,
) -> None:
    """Bring the answers' attention to themselves into `out` and `lse`, which hold their attention to the prompt."""
    own, own_lse = _attend(*(_own_rows(x, index_nR) for x in (query, key, value)), 0.0, True, scale=scale)
    own_lse = own_lse.transpose(0, 1)
    seen_lse = lse[0, :, index_nR]
    joint = torch.logaddexp(seen_lse, own_lse)
    wide = joint.dtype
    mixed = out[0, :, index_nR].to(wide) * (seen_lse - joint).exp()[..., None]
    mixed += own.transpose(0, 1).to(wide) * (own_lse - joint).exp()[..., None]
    out[0, :, index_nR] = mixed.to(out.dtype)
    lse[0, :, index_nR] = joint


def _segment_gradient(grads: tuple[torch.Tensor, ...], segment: Segment, saved: tuple[torch.Tensor, ...], scale: float) -> None:
    """Add one group's part to (grad_query, grad_key, grad_value)."""
    grad_out, query, key, value, out, lse = saved
    prompt, answers = slice(segment.start, segment.answer_start), slice(segment.answer_start, segment.end)
    for rows, causal in ((prompt, True), (answers, False)):
        parts = _attend_backward(
            grad_out[:, :, rows], query[:, :, rows], key[:, :, prompt], value[:, :, prompt], out[:, :, rows], lse[:, :, rows],
            0.0, causal, scale=scale,
        )  # fmt: skip
        for grad, part, where in zip(grads, parts, (rows, prompt, prompt), strict=True):
            grad[:, :, where] += part
    for index_nR in segment.same_length:
        own = [_own_rows(x, index_nR) for x in (grad_out, query, key, value, out)]
        parts = _attend_backward(*own, lse[0, :, index_nR].transpose(0, 1), 0.0, True, scale=scale)
        for grad, part in zip(grads, parts, strict=True):
            grad[0, :, index_nR] += part.transpose(0, 1)


# ---- any device: plain scaled-dot-product calls --------------------------------------------------------------------------


def sdpa_by_segments(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layout: RowLayout, *, scale: float, dropout: float = 0.0
) -> torch.Tensor:
    """[1, H, T, E] by one call per prompt and per distinct answer length. Copies the prompt's keys once per answer."""
    heads = query.shape[1] // key.shape[1]
    key, value = key.repeat_interleave(heads, 1), value.repeat_interleave(heads, 1)
    out, order = [], []
    for segment in layout.segments:
        prompt = slice(segment.start, segment.answer_start)
        part = F.scaled_dot_product_attention(
            query[:, :, prompt], key[:, :, prompt], value[:, :, prompt], dropout_p=dropout, is_causal=True, scale=scale
        )
        out.append(part[0])
        order.append(torch.arange(prompt.start, prompt.stop, device=query.device))
        for index_nR in segment.same_length:
            out.append(_own_and_prompt(query, key, value, prompt, index_nR, scale, dropout))
            order.append(index_nR.flatten())
    place_T = torch.cat(order).argsort()
    return torch.cat(out, dim=1)[None].index_select(2, place_T)


def _own_and_prompt(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    prompt: slice,
    index_nR: torch.Tensor,
    scale: float,
    dropout: float,
) -> torch.Tensor:
    """n answers of one length over [prompt ; own] keys -> [H, n * R, E]."""
    n, length = index_nR.shape
    q_nHRE, own_key, own_value = (_own_rows(x, index_nR) for x in (query, key, value))
    keys = torch.cat([key[:, :, prompt].expand(n, -1, -1, -1), own_key], dim=2)
    values = torch.cat([value[:, :, prompt].expand(n, -1, -1, -1), own_value], dim=2)
    mask = causal_lower_right(length, keys.shape[2])
    out = F.scaled_dot_product_attention(q_nHRE, keys, values, attn_mask=mask, dropout_p=dropout, scale=scale)
    return out.transpose(0, 1).flatten(1, 2)


# ---- CUDA with flash-attn ------------------------------------------------------------------------------------------------


def flash_varlen(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, layout: RowLayout, *, scale: float, dropout: float = 0.0
) -> torch.Tensor:
    """[1, H, T, E] by one `flash_attn_varlen_func` call: sequences of queries are the prompt and each answer in row order,
    their keys are [prompt] and [prompt ; answer]; its causal mask is aligned to the end of both. Grouped heads are its own.

    The call itself has not been run: no GPU where this was written. The tests check what is handed to it.
    """
    from flash_attn import flash_attn_varlen_func

    q_lengths, k_lengths, rows = _varlen_plan(layout)
    index = torch.tensor(rows, device=query.device)
    out_THE = flash_attn_varlen_func(
        query[0].transpose(0, 1),
        key[0].transpose(0, 1).index_select(0, index),
        value[0].transpose(0, 1).index_select(0, index),
        _cumulative(q_lengths, query.device),
        _cumulative(k_lengths, query.device),
        max(q_lengths),
        max(k_lengths),
        dropout_p=dropout,
        softmax_scale=scale,
        causal=True,
    )
    return out_THE.transpose(0, 1)[None]


def _varlen_plan(layout: RowLayout) -> tuple[list[int], list[int], list[int]]:
    """Query lengths, key lengths, and the row of every key."""
    q_lengths: list[int] = []
    k_lengths: list[int] = []
    rows: list[int] = []
    for segment in layout.segments:
        prompt = range(segment.start, segment.answer_start)
        q_lengths.append(len(prompt))
        k_lengths.append(len(prompt))
        rows += prompt
        start = segment.answer_start
        for length in segment.answers:
            q_lengths.append(length)
            k_lengths.append(len(prompt) + length)
            rows += [*prompt, *range(start, start + length)]
            start += length
    return q_lengths, k_lengths, rows


def _cumulative(lengths: list[int], device: torch.device) -> torch.Tensor:
    return F.pad(torch.tensor(lengths, dtype=torch.int32, device=device).cumsum(0, dtype=torch.int32), (1, 0))


AttentionInterface.register(NAME, packed_attention)
AttentionMaskInterface.register(NAME, packed_mask)
