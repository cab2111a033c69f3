"""The hf engine: its log-probs are the trainer's, and a row does not depend on the rows beside it."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from rollout_kit import FAMILIES, SAMPLING, Kit, ids, parity, prefer

from vtgrl.core.errors import RunError
from vtgrl.core.schema import LoraConfig
from vtgrl.model.guard import score_alone
from vtgrl.rollout.engines.hf import evaluating

N = 4


@pytest.fixture(params=FAMILIES)
def kit(request: pytest.FixtureRequest, make_kit: Callable[..., Kit]) -> Kit:
    return make_kit(request.param)


@pytest.fixture
def video_kit(make_kit: Callable[..., Kit]) -> Kit:
    return make_kit("qwen2_5_vl")


def test_log_probs_are_the_trainers_before_and_after_an_update(kit: Kit) -> None:
    engine = kit.engine("hf")
    before = engine.generate(kit.prompts, n=N, sampling=SAMPLING, seed=1, version=0)
    assert [len(group) for group in before] == [N] * 3
    assert parity(kit.policy, kit.prompts, before) <= 1e-5
    kit.shake()
    engine.publish(kit.policy, version=1)
    after = engine.generate(kit.prompts, n=N, sampling=SAMPLING, seed=1, version=1)
    assert ids(after) != ids(before)
    assert {c.policy_version for group in after for c in group} == {1}
    assert parity(kit.policy, kit.prompts, after) <= 1e-5


def test_log_probs_are_those_of_the_models_own_forward(video_kit: Kit) -> None:
    """Not only of packed rows: prompt + answer through the Hugging Face model, one by one. That model takes a sampled
    placeholder for a missing video, so answers with one are left out here (see below for them)."""
    placeholder = video_kit.builder.family.vision_token_id(video_kit.loaded.config)
    checked = 0
    out = video_kit.engine("hf").generate(video_kit.prompts, n=2, sampling=SAMPLING, seed=1, version=0)
    for prompt, group in zip(video_kit.prompts, out, strict=True):
        for answer in (a for a in group if placeholder not in a.token_ids):
            alone = score_alone(video_kit.policy, prompt, answer.token_ids)
            assert torch.allclose(alone, torch.tensor(answer.logprobs), atol=1e-5)
            checked += 1
    assert checked >= 3


def test_temperature_and_cuts(video_kit: Kit) -> None:
    engine = video_kit.engine("hf")
    cold = replace(SAMPLING, temperature=0.5)
    out = engine.generate(video_kit.prompts, n=N, sampling=cold, seed=1, version=0)
    assert parity(video_kit.policy, video_kit.prompts, out, temperature=0.5) <= 1e-5
    assert parity(video_kit.policy, video_kit.prompts, out, temperature=1.0) > 0.1
    cut = engine.generate(video_kit.prompts, n=N, sampling=replace(SAMPLING, top_k=1), seed=1, version=0)
    greedy = engine.generate(video_kit.prompts, n=N, sampling=replace(SAMPLING, temperature=0.0), seed=1, version=0)
    assert ids(cut) == ids(greedy)
    assert {x for group in cut for c in group for x in c.logprobs} == {0.0}  # the only token that is left
    assert parity(video_kit.policy, video_kit.prompts, greedy) <= 1e-5  # the untempered distribution


def test_a_draw_does_not_depend_on_the_batch_split(kit: Kit) -> None:
    """Public fault 26: left padding gives the same positions and numbers as the sample alone."""
    together = kit.engine("hf").generate(kit.prompts, n=N, sampling=SAMPLING, seed=3, version=0)
    engine = kit.engine("hf")
    for prompt, group in zip(reversed(kit.prompts), reversed(together), strict=True):
        (alone,) = engine.generate([prompt], n=N, sampling=SAMPLING, seed=3, version=0)
        assert [c.token_ids for c in alone] == [c.token_ids for c in group]
        for a, b in zip(alone, group, strict=True):
            assert torch.allclose(torch.tensor(a.logprobs), torch.tensor(b.logprobs), atol=1e-5)


def test_a_small_cache_splits_the_batch_and_changes_nothing(video_kit: Kit) -> None:
    drawn = [
        video_kit.engine("hf", kv_tokens=kv).generate(video_kit.prompts, n=N, sampling=SAMPLING, seed=3, version=0)
        for kv in (1, 300, 10**6)
    ]
    assert ids(drawn[0]) == ids(drawn[1]) == ids(drawn[2])


def test_seeds(video_kit: Kit) -> None:
    """Public fault 17."""

    def draw(*, run_seed: int = 0, seed: int = 0, n: int = N) -> list[list[tuple[int, ...]]]:
        return ids(video_kit.engine("hf", seed=run_seed).generate(video_kit.prompts, n=n, sampling=SAMPLING, seed=seed, version=0))

    first = draw()
    assert draw() == first
    assert all(len(set(group)) == N for group in first)
    assert draw(seed=1) != first
    assert draw(run_seed=1) != first
    assert [group[:2] for group in first] == draw(n=2)  # member m is the same in a larger group


def test_answers_end_with_the_end_token_and_rows_may_leave_early(kit: Kit) -> None:
    eos = min(kit.builder.eos_ids)
    prefer(kit.policy, eos)
    sampling = replace(SAMPLING, max_tokens=60)
    out = kit.engine("hf").generate(kit.prompts, n=12, sampling=sampling, seed=1, version=0)
    answers = [c for group in out for c in group]
    assert {c.finish for c in answers} == {"stop", "length"} or max(len(c.token_ids) for c in answers) < 60
    assert len({len(c.token_ids) for c in answers}) > 6
    for c in answers:
        assert len(c.logprobs) == len(c.token_ids)
        ends = [t in kit.builder.eos_ids for t in c.token_ids]
        assert not any(ends[:-1])
        assert ends[-1] == (c.finish == "stop")
        assert kit.builder.decode(c.token_ids) == c.text
    assert parity(kit.policy, kit.prompts, out) <= 1e-5


def test_a_sampled_video_placeholder_is_the_plain_token(kit: Kit) -> None:
    token = kit.builder.family.vision_token_id(kit.loaded.config)
    if token is None:
        pytest.skip("a text model has no placeholder")
    prefer(kit.policy, token)
    out = kit.engine("hf").generate(kit.prompts, n=N, sampling=SAMPLING, seed=1, version=0)
    assert sum(c.token_ids.count(token) for group in out for c in group) > 8
    assert parity(kit.policy, kit.prompts, out) <= 1e-5


def test_max_tokens_stops_where_the_context_ends(video_kit: Kit) -> None:
    engine = video_kit.engine("hf")
    engine.context = replace(engine.context, max_model_len=len(video_kit.prompts[0].input_ids) + 7)  # type: ignore[attr-defined]
    (group,) = engine.generate(video_kit.prompts[:1], n=2, sampling=SAMPLING, seed=1, version=0)
    assert {len(c.token_ids) for c in group} == {7}
    assert {c.finish for c in group} == {"length"}
    short = engine.generate(video_kit.prompts, n=2, sampling=replace(SAMPLING, max_tokens=1), seed=1, version=0)
    assert {len(c.token_ids) for g in short for c in g} == {1}


def test_unpublished_versions_are_refused_and_no_prompts_give_no_answers(video_kit: Kit) -> None:
    engine = video_kit.engine("hf")
    assert engine.generate([], n=N, sampling=SAMPLING, seed=0, version=0) == []
    with pytest.raises(RunError, match="version 0, not 1"):
        engine.generate(video_kit.prompts, n=N, sampling=SAMPLING, seed=0, version=1)
    engine.close()
    engine.close()


def test_training_flags_checkpointing_and_attention_are_put_back(make_kit: Callable[..., Kit]) -> None:
    kit = make_kit("qwen2_5_vl", lora=LoraConfig(r=4, dropout=0.5))
    kit.policy.hf.gradient_checkpointing_enable()
    kit.policy.hf.model.visual.eval()
    flags = {name: module.training for name, module in kit.policy.hf.named_modules()}
    attention = kit.policy.hf.get_decoder().config._attn_implementation
    out = kit.engine("hf").generate(kit.prompts, n=2, sampling=SAMPLING, seed=1, version=0)
    assert {name: module.training for name, module in kit.policy.hf.named_modules()} == flags
    assert True in flags.values()
    assert kit.policy.hf.get_decoder().config._attn_implementation == attention
    with evaluating(kit.policy.hf):
        assert parity(kit.policy, kit.prompts, out) <= 1e-5  # dropout was off


def test_bf16_agrees_with_the_trainer_in_bf16(make_kit: Callable[..., Kit]) -> None:
    kit = make_kit("qwen2_5_vl")
    kit.policy.to(torch.bfloat16)
    out = kit.engine("hf").generate(kit.prompts, n=N, sampling=SAMPLING, seed=1, version=0)
    assert parity(kit.policy, kit.prompts, out) < 0.05


def test_the_prompt_is_read_once_and_its_video_encoded_once(video_kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, int]] = []
    family = type(video_kit.builder.family)
    encode, forward = family.encode_vision, family.text_forward

    def count_encode(self: object, model: object, pixels: torch.Tensor, grid: torch.Tensor) -> object:
        calls.append(("vision", len(pixels)))
        return encode(self, model, pixels, grid)

    def count_forward(self: object, model: object, embeds: torch.Tensor, *args: object, **kwargs: object) -> torch.Tensor:
        calls.append(("text", embeds.shape[0] * embeds.shape[1]))
        return forward(self, model, embeds, *args, **kwargs)

    monkeypatch.setattr(family, "encode_vision", count_encode)
    monkeypatch.setattr(family, "text_forward", count_forward)
    asked = [*video_kit.prompts, video_kit.prompts[0]]  # two questions about one clip
    video_kit.engine("hf").generate(asked, n=N, sampling=replace(SAMPLING, max_tokens=3), seed=1, version=0)
    assert sorted(size for kind, size in calls if kind == "vision") == sorted(len(p.media[0].pixel_values) for p in video_kit.prompts)
    assert [size for kind, size in calls if kind == "text"] == [*sorted(len(p.input_ids) for p in asked), 4 * N, 4 * N]
