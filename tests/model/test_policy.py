"""The packed forward against the model's own forward, one answer at a time; and what must not change it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from policy_kit import FAMILIES, VLMS, Kit, alone, answers, gradients, group, relative, weighted

from vtgrl.core.errors import ConfigError, DataError
from vtgrl.model.packing import answer_lengths, make_rows, pack_row
from vtgrl.model.policy import Policy
from vtgrl.model.types import PackedGroup, PackedRow, Statistics

LOGP, GRAD = 2e-5, 1e-5


@pytest.fixture
def kit(tiny_dir: Callable[[str], Path]) -> Callable[[str], Kit]:
    return lambda name: Kit(tiny_dir(name), name)


def mixed_row(kit: Kit) -> PackedRow:
    """Ragged and one-token answers; two clips in one prompt; a clip that another group shows too; a prompt without any."""
    first, second = group(kit, (5, 1, 9, 5), seed=1), group(kit, (3, 3), seed=2, media=2)
    again = PackedGroup(kit.prompt("And when does it end?", first.prompt.media), answers((4, 1, 4), seed=3))
    return first, second, again, PackedGroup(kit.prompt("What is two plus two?"), answers((2, 6), seed=4))


@pytest.mark.parametrize("name", FAMILIES)
def test_log_probs_and_gradients_equal_one_by_one(kit: Callable[[str], Kit], name: str) -> None:
    policy, row = kit(name).policy().train(), mixed_row(kit(name))
    wanted = alone(policy, row)
    weighted(wanted).backward()
    wanted_grads = gradients(policy)
    ours = policy(row).logp_R
    weighted(ours).backward()
    assert ours.dtype == torch.float32
    assert (ours - wanted).abs().max() <= LOGP
    assert relative(gradients(policy), wanted_grads) <= GRAD


@pytest.mark.parametrize("name", FAMILIES)
def test_any_number_of_answers(kit: Callable[[str], Kit], name: str) -> None:
    """G = 1 ... 9, lengths 1 ... 6."""
    policy = kit(name).policy()
    whole = group(kit(name), [1 + (5 * i) % 6 for i in range(9)])
    with torch.no_grad():
        wanted = alone(policy, (whole,)).split(answer_lengths((whole,)))
        for n in range(1, 10):
            ours = policy((PackedGroup(whole.prompt, whole.answers[:n]),)).logp_R
            assert (ours - torch.cat(wanted[:n])).abs().max() <= LOGP


@pytest.mark.parametrize("name", ["qwen3_vl", "text"])
def test_gradients_do_not_depend_on_split_or_order(kit: Callable[[str], Kit], name: str) -> None:
    """One row, a row a group, groups reversed, rows by budget; answers of one group in several rows (faults 24, 26)."""
    policy, groups = kit(name).policy().train(), mixed_row(kit(name))
    weights = {id(a): weighted_tokens(len(a), seed=i) for i, a in enumerate(a for g in groups for a in g.answers)}

    def gradient(rows: list[PackedRow]) -> dict[str, torch.Tensor]:
        for row in rows:
            out = policy(row, entropy=True)
            weight_R = torch.cat([weights[id(a)] for g in row for a in g.answers])
            assert out.entropy_R is not None
            ((out.logp_R + 0.1 * out.entropy_R) * weight_R).sum().backward()
        return gradients(policy)

    whole = gradient([groups])
    singles: list[PackedRow] = [(g,) for g in groups]
    apart: list[PackedRow] = [(PackedGroup(g.prompt, (a,)),) for g in groups for a in g.answers]
    budget = make_rows(groups, max_tokens=80, hidden=policy.hidden_size)
    assert 1 < len(budget) < 4 or name != "text"
    for rows in (singles, singles[::-1], [groups[::-1]], apart, budget):
        assert relative(gradient(rows), whole) <= GRAD


def weighted_tokens(n: int, *, seed: int) -> torch.Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("name", VLMS)
def test_each_row_gets_only_its_own_video_after_shuffle_and_split(kit: Callable[[str], Kit], name: str) -> None:
    """Fault 24: one clip (t = 2), two clips, text only, one clip (t = 5); G = 3; shuffled, two micro-batches."""
    it = kit(name)
    policy = it.policy()
    clips = [[it.medium(1, frames=4)], [it.medium(2, frames=2), it.medium(3, frames=2, side=1)], [], [it.medium(4, frames=10)]]
    groups = [PackedGroup(it.prompt(f"Question {i}?", m), answers((3, 2, 4), seed=i)) for i, m in enumerate(clips)]
    with torch.no_grad():
        wanted = [alone(policy, (g,)) for g in groups]
        for order in ([2, 3, 0, 1], [3, 1, 2, 0]):
            for part in (order[:2], order[2:]):
                ours = policy(tuple(groups[i] for i in part)).logp_R
                assert (ours - torch.cat([wanted[i] for i in part])).abs().max() <= LOGP


@pytest.mark.parametrize("name", FAMILIES)
def test_gradient_checkpointing_changes_nothing(kit: Callable[[str], Kit], name: str) -> None:
    policy, row = kit(name).policy().train(), mixed_row(kit(name))
    weighted(policy(row).logp_R).backward()
    plain = gradients(policy)
    policy.hf.gradient_checkpointing_enable()
    weighted(policy(row).logp_R).backward()
    assert relative(gradients(policy), plain) <= 1e-6


def with_lora(it: Kit) -> Policy:
    """Adapters on the text layers, B not zero."""
    from peft import LoraConfig, inject_adapter_in_model

    hf = it.hf()
    targets = r".*layers\.\d+\.(self_attn|mlp)\.(q|v|o|down)_proj" if it.name == "text" else r".*language_model.*\.(q|v|o|down)_proj"
    inject_adapter_in_model(LoraConfig(r=4, lora_alpha=8, target_modules=targets), hf)
    g = torch.Generator().manual_seed(0)
    for n, p in hf.named_parameters():
        p.requires_grad_("lora_" in n)
        if "lora_B" in n:
            p.data.copy_(torch.randn(p.shape, generator=g) * 0.1)
    return Policy(hf, family=it.family)


@pytest.mark.parametrize("name", ["qwen2_5_vl", "text"])
def test_lora(kit: Callable[[str], Kit], name: str) -> None:
    """Equal to one by one; with adapters off equal to the start model; afterwards they are back and train."""
    it = kit(name)
    policy, row = with_lora(it).train(), mixed_row(it)
    wanted = alone(policy, row)
    weighted(wanted).backward()
    wanted_grads = gradients(policy)
    with policy.reference():
        reference = policy(row).logp_R
    weighted(policy(row).logp_R).backward()
    assert relative(gradients(policy), wanted_grads) <= GRAD
    assert not reference.requires_grad
    with torch.no_grad():
        start = it.policy()(row).logp_R
        assert torch.equal(reference, start)
        assert (policy(row).logp_R - wanted).abs().max() <= LOGP
    assert (wanted - start).abs().max() > 1e-3


def test_reference_needs_adapters_that_train_alone(kit: Callable[[str], Kit]) -> None:
    with pytest.raises(ConfigError, match="second policy"), kit("text").policy().reference():
        pass
    policy = with_lora(kit("text"))
    policy.hf.model.norm.weight.requires_grad_(True)
    with pytest.raises(ConfigError, match="second policy"), policy.reference():
        pass


@pytest.mark.parametrize("temperature", [0.6, 1.5])
def test_ratio_is_one_for_equal_weights_at_any_temperature(kit: Callable[[str], Kit], temperature: float) -> None:
    """Fault 10: the sampler's log-prob is that of the softmax of logits / T."""
    it = kit("text")
    policy, (one,) = it.policy(), (group(it, (6,)),)
    ids = torch.tensor([[*one.prompt.input_ids, *one.answers[0]]])
    with torch.no_grad():
        logits = it.hf()(input_ids=ids).logits[0, -7:-1]
        sampler = (logits / temperature).log_softmax(-1).gather(1, ids[0, -6:, None])[:, 0]
        out = policy((one,), temperature=temperature, entropy=True)
    assert (out.logp_R - sampler).exp().sub(1).abs().max() <= LOGP
    probs = (logits / temperature).softmax(-1)
    assert out.entropy_R is not None
    torch.testing.assert_close(out.entropy_R, -(probs * probs.log()).sum(-1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_a_temperature_of_zero_is_refused(kit: Callable[[str], Kit], value: float) -> None:
    with pytest.raises(ConfigError, match="temperature"):
        kit("text").policy()((group(kit("text"), (2,)),), temperature=value)


def test_a_sampled_placeholder_is_a_plain_token(kit: Callable[[str], Kit]) -> None:
    """By hand: token embeddings, vision tokens put at the prompt's places only, plain causal attention."""
    it = kit("qwen2_5_vl")
    policy = it.policy()
    pad = it.config.video_token_id
    base = group(it, (5,))
    one = PackedGroup(base.prompt, ((30, pad, 31, pad, 32),))
    plain = it.hf().model
    ids = torch.tensor([*one.prompt.input_ids, *one.answers[0]])
    tail = (torch.arange(5) + one.prompt.next_position).expand(3, -1)
    with torch.no_grad():
        embeds = plain.language_model.embed_tokens(ids)
        medium = one.prompt.media[0]
        embeds[one.prompt.vision_index] = plain.visual(medium.pixel_values, torch.tensor([medium.grid_thw])).pooler_output
        positions = torch.cat([one.prompt.positions_3P, tail], 1)[:, None]
        hidden = plain.language_model(inputs_embeds=embeds[None], position_ids=positions).last_hidden_state[0, -6:-1]
        wanted = policy.hf.lm_head(hidden).log_softmax(-1).gather(1, ids[-5:, None])[:, 0]
        assert (policy((one,)).logp_R - wanted).abs().max() <= LOGP


@pytest.mark.parametrize("name", FAMILIES)
def test_the_empty_row_has_no_values_but_reaches_every_weight(kit: Callable[[str], Kit], name: str) -> None:
    policy = kit(name).policy().train()
    out = policy((), entropy=True)
    assert out.entropy_R is not None
    assert out.logp_R.shape == out.entropy_R.shape == (0,)
    (out.logp_R.sum() + out.entropy_R.sum()).backward()
    found = gradients(policy)
    assert found.keys() == {n for n, _ in policy.named_parameters()}
    assert all((g == 0).all() for g in found.values())


@pytest.mark.parametrize("name", ["qwen2_5_vl", "text"])
def test_statistics_of_the_answers_tokens(kit: Callable[[str], Kit], name: str) -> None:
    """Against full logits one by one: likeliest ids, log-probs at ids, divergence from a policy that saw another prompt."""
    it = kit(name)
    policy, row = it.policy(), mixed_row(it)[:2]
    other_row = tuple(PackedGroup(it.prompt("What do you see? Look closely."), g.answers) for g in row)
    with torch.no_grad():
        own, other = (full_logp(policy, r) for r in (row, other_row))
        teacher = policy(other_row, statistics=Statistics(distribution=True)).distribution
        ids = other.topk(4, dim=-1).indices
        out = policy(row, statistics=Statistics(top_k=3, ids_Rk=ids, against=teacher, beta=1.0))
    assert out.top_ids_Rk is not None
    assert out.ids_logp_Rk is not None
    assert out.divergence_R is not None
    assert torch.equal(out.top_ids_Rk, own.topk(3, dim=-1).indices)
    assert (out.ids_logp_Rk - own.gather(1, ids)).abs().max() <= LOGP
    assert (out.divergence_R - (own.exp() * (own - other)).sum(-1)).abs().max() <= LOGP
    assert out.divergence_R.max() > 100 * LOGP


def full_logp(policy: Policy, row: PackedRow) -> torch.Tensor:
    """[R, V] from the head's own logits."""
    hidden_RD = policy._hidden(inputs := pack_row(row))[inputs.read_R]
    return policy.hf.lm_head(hidden_RD).log_softmax(-1)


def test_statistics_of_the_empty_row(kit: Callable[[str], Kit]) -> None:
    """They have no values, in the right shapes, and reach every weight."""
    policy = kit("text").policy().train()
    with torch.no_grad():
        teacher = policy((), statistics=Statistics(distribution=True)).distribution
    ids = torch.zeros(0, 2, dtype=torch.int64)
    out = policy((), entropy=True, statistics=Statistics(top_k=3, ids_Rk=ids, mask_Rk=ids.bool(), against=teacher))
    parts = (out.top_ids_Rk, out.top_logp_Rk, out.ids_logp_Rk, out.divergence_R)
    assert [tuple(part.shape) for part in parts if part is not None] == [(0, 3), (0, 3), (0, 2), (0,)]
    assert out.divergence_R is not None
    out.divergence_R.sum().backward()
    assert gradients(policy).keys() == {n for n, _ in policy.named_parameters()}


@pytest.mark.parametrize("name", VLMS)
def test_a_text_row_reaches_the_trained_tower_and_changes_nothing(kit: Callable[[str], Kit], name: str) -> None:
    """Fault 34 on one rank: gradients of tower, merger and deepstack mergers are there, and zero."""
    it = kit(name)
    policy = it.policy().train()
    row = (PackedGroup(it.prompt("What is two plus two?"), answers((3, 1))),)
    out = policy(row).logp_R
    out.sum().backward()
    found = gradients(policy)
    visual = {n: g for n, g in found.items() if ".visual." in n}
    assert found.keys() == {n for n, _ in policy.named_parameters()}
    assert all((g == 0).all() for g in visual.values())
    assert (out - alone(policy, row)).abs().max() <= LOGP


def test_bf16(kit: Callable[[str], Kit]) -> None:
    """Results are fp32; packed and one by one differ by rounding only."""
    it = kit("qwen3_vl")
    policy = it.policy(torch.bfloat16).train()
    row = mixed_row(it)
    out = policy(row, entropy=True)
    out.logp_R.sum().backward()
    assert out.logp_R.dtype == torch.float32
    assert policy.hf.lm_head.weight.grad is not None
    assert (out.logp_R - alone(policy, row)).abs().max() <= 0.1


def test_wrong_media_are_named(kit: Callable[[str], Kit]) -> None:
    it = kit("qwen2_5_vl")
    one = group(it, (2,))
    with pytest.raises(DataError, match=one.prompt.media[0].id):
        it.policy()((PackedGroup(replace(one.prompt, vision_index=one.prompt.vision_index[1:]), one.answers),))
    text = kit("text")
    with pytest.raises(DataError, match="no vision tower"):
        text.policy()((PackedGroup(replace(text.prompt("x"), media=one.prompt.media), ((5,),)),))


def test_an_adapter_on_the_head_is_refused(kit: Callable[[str], Kit]) -> None:
    hf: Any = kit("text").hf()
    hf.set_output_embeddings(torch.nn.Sequential(hf.get_output_embeddings()))
    with pytest.raises(ConfigError, match="lm_head"):
        Policy(hf, family=kit("text").family)
