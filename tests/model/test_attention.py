"""Packed attention against a dense mask: every way to compute it, alone and inside models."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from policy_kit import Kit
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM, MistralConfig, Qwen2Config

from vtgrl.core.errors import ConfigError
from vtgrl.model import attention
from vtgrl.model.attention import flash_varlen, no_mask, packed_attention, sdpa_by_segments, use_packed_attention
from vtgrl.model.packing import RowLayout, _segment

SHAPES = [((5, (3, 1, 3, 3)),), ((4, (1,)), (7, (2, 6)), (1, (1, 1, 1)))]
SCALE = 0.3


def make_layout(shapes: Any) -> RowLayout:
    segments, start = [], 0
    for prompt, answers in shapes:
        segments.append(_segment(start, prompt, answers, "cpu"))
        start = segments[-1].end
    return RowLayout(tuple(segments))


def dense_mask(layout: RowLayout) -> torch.Tensor:
    """[T, T] bool by the definition: same group, not later, and (prompt key or same answer)."""
    owner: list[tuple[int, int]] = []
    for g, s in enumerate(layout.segments):
        owner += [(g, 0)] * s.prompt + [(g, a + 1) for a, n in enumerate(s.answers) for _ in range(n)]
    return torch.tensor([[k <= q and o[0] == w[0] and o[1] in (0, w[1]) for k, o in enumerate(owner)] for q, w in enumerate(owner)])


def qkv(layout: RowLayout, heads: int, kv_heads: int, dtype: torch.dtype) -> list[torch.Tensor]:
    g = torch.Generator().manual_seed(0)
    sizes = (heads, kv_heads, kv_heads)
    return [torch.randn(1, h, layout.tokens, 8, generator=g, dtype=torch.float64).to(dtype).requires_grad_() for h in sizes]


def dense(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layout: RowLayout) -> torch.Tensor:
    n = q.shape[1] // k.shape[1]
    mask = dense_mask(layout)
    scores = (q @ k.repeat_interleave(n, 1).mT * SCALE).masked_fill(~mask, float("-inf"))
    return scores.softmax(-1) @ v.repeat_interleave(n, 1)


def merged(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layout: RowLayout) -> torch.Tensor:
    out, weights = packed_attention(torch.nn.Module(), q, k, v, None, scaling=SCALE, packed_layout=layout)
    assert weights is None
    return out.transpose(1, 2)


def segments(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layout: RowLayout) -> torch.Tensor:
    return sdpa_by_segments(q, k, v, layout, scale=SCALE)


def varlen(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layout: RowLayout) -> torch.Tensor:
    """The flash-attn path with a stand-in that does, sequence by sequence, what the package documents."""

    def stand_in(q: Any, k: Any, v: Any, cu_q: Any, cu_k: Any, max_q: int, max_k: int, **kw: Any) -> torch.Tensor:
        assert (kw["causal"], kw["dropout_p"], cu_q.dtype) == (True, 0.0, torch.int32)
        spans = list(zip(cu_q.tolist(), cu_q[1:].tolist(), cu_k.tolist(), cu_k[1:].tolist(), strict=False))
        assert (max_q, max_k) == (max(b - a for a, b, _, _ in spans), max(d - c for _, _, c, d in spans))
        n = q.shape[1] // k.shape[1]
        outs = []
        for a, b, c, d in spans:
            mask = torch.ones(b - a, d - c, dtype=torch.bool).tril((d - c) - (b - a))
            part = [x.transpose(0, 1) for x in (q[a:b], k[c:d].repeat_interleave(n, 1), v[c:d].repeat_interleave(n, 1))]
            outs.append(F.scaled_dot_product_attention(*part, attn_mask=mask, scale=kw["softmax_scale"]).transpose(0, 1))
        return torch.cat(outs)

    module = types.ModuleType("flash_attn")
    module.flash_attn_varlen_func = stand_in  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "flash_attn", module)
        return flash_varlen(q, k, v, layout, scale=SCALE)


@pytest.mark.parametrize("way", [merged, segments, varlen])
@pytest.mark.parametrize("shapes", SHAPES)
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (6, 2)])
def test_equals_a_dense_mask(way: Callable[..., torch.Tensor], shapes: Any, heads: int, kv_heads: int) -> None:
    """Values and gradients, fp64, grouped heads, ragged answers, one-token answers, several groups."""
    layout = make_layout(shapes)
    inputs = qkv(layout, heads, kv_heads, torch.float64)
    weights = torch.randn(1, heads, layout.tokens, 8, dtype=torch.float64)
    ours, wanted = way(*inputs, layout), dense(*inputs, layout)
    torch.testing.assert_close(ours, wanted, rtol=1e-10, atol=1e-10)
    for a, b in zip(
        torch.autograd.grad((ours * weights).sum(), inputs), torch.autograd.grad((wanted * weights).sum(), inputs), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("way", [merged, segments])
def test_bf16(way: Callable[..., torch.Tensor]) -> None:
    layout = make_layout(SHAPES[1])
    inputs = qkv(layout, 4, 2, torch.bfloat16)
    out = way(*inputs, layout)
    assert out.dtype == torch.bfloat16
    wide = [x.detach().double().requires_grad_() for x in inputs]
    wanted = dense(*wide, layout)
    assert (out.double() - wanted).abs().max() <= 0.03
    for a, b in zip(torch.autograd.grad(out.sum(), inputs), torch.autograd.grad(wanted.sum(), wide), strict=True):
        assert (a.double() - b).norm() <= 0.02 * b.norm()


def test_dropout_goes_the_general_way_and_drops() -> None:
    layout = make_layout(SHAPES[0])
    q, k, v = qkv(layout, 2, 2, torch.float32)
    torch.manual_seed(0)
    out, _ = packed_attention(torch.nn.Module(), q, k, v, None, scaling=SCALE, dropout=0.5, packed_layout=layout)
    assert not torch.allclose(out.transpose(1, 2), dense(q, k, v, layout))


@pytest.mark.parametrize("name", ["softcap", "s_aux", "sliding_window"])
def test_features_it_lacks_are_refused(name: str) -> None:
    layout = make_layout(SHAPES[0])
    with pytest.raises(ConfigError, match=name):
        packed_attention(torch.nn.Module(), *qkv(layout, 2, 2, torch.float32), None, packed_layout=layout, **{name: 4})


@pytest.mark.parametrize(
    "config",
    [
        Qwen2Config(use_sliding_window=True, max_window_layers=1, num_hidden_layers=2),
        Qwen2Config(layer_types=["full_attention", "linear_attention"], num_hidden_layers=2),
        MistralConfig(sliding_window=64),
    ],
)
def test_other_attention_patterns_are_refused(config: Any) -> None:
    with pytest.raises(ConfigError, match=r"sliding|linear_attention"):
        use_packed_attention(config)


def test_without_a_layout_it_is_ordinary_sdpa(tiny_dir: Callable[[str], Path]) -> None:
    """Left-padded batches, a cache, generation: same numbers as "sdpa"."""
    kit = Kit(tiny_dir("text"), "text")
    plain, ours = kit.hf(), kit.hf()
    use_packed_attention(ours.config)
    ids = torch.randint(20, 300, (2, 9), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    mask[0, :4] = 0
    with torch.no_grad():
        assert torch.equal(ours(input_ids=ids, attention_mask=mask).logits, plain(input_ids=ids, attention_mask=mask).logits)
        assert torch.equal(ours(input_ids=ids).logits, plain(input_ids=ids).logits)
        out = [m.generate(ids, attention_mask=mask, max_new_tokens=8, do_sample=False, pad_token_id=0) for m in (ours, plain)]
        positions = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4]] * 2)
        packed = [m(input_ids=ids, position_ids=positions).logits for m in (ours, plain)]
    assert torch.equal(*out)
    assert torch.equal(*packed)


def test_a_vision_tower_keeps_its_own_attention_and_nothing_is_saved(tiny_dir: Callable[[str], Path], tmp_path: Path) -> None:
    policy = Kit(tiny_dir("qwen2_5_vl"), "qwen2_5_vl").policy()
    assert policy.hf.model.visual.config._attn_implementation == "sdpa"
    assert policy.hf.model.language_model.config._attn_implementation == attention.NAME
    policy.hf.save_pretrained(tmp_path)
    assert attention.NAME not in (tmp_path / "config.json").read_text()


def test_checkpointed_layers_get_the_layout_again() -> None:
    """Llama has layers of another make than Qwen: gradients with and without checkpointing are equal."""
    config = LlamaConfig(vocab_size=64, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4)
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).train()
    use_packed_attention(model.config)
    layout = make_layout(SHAPES[1])
    ids = torch.randint(0, 64, (1, layout.tokens))

    def gradient() -> list[torch.Tensor]:
        with no_mask():
            out = model.model(input_ids=ids, use_cache=False, packed_layout=layout).last_hidden_state
        return list(torch.autograd.grad(out.square().sum(), tuple(model.model.parameters())))

    plain = gradient()
    model.gradient_checkpointing_enable()
    for a, b in zip(gradient(), plain, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)
