"""Self-check on the first batch of a run: do packed rows give the log-probs that the model gives one answer at a time?

It finds what no unit test can: a model whose code drops the layout, scales its logits after the head, or treats positions
in a way of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from vtgrl.core.errors import RunError
from vtgrl.model.attention import ordinary_attention
from vtgrl.model.policy import Policy
from vtgrl.model.types import PackedGroup, Prompt

ANSWERS, ANSWER_TOKENS = 2, 64
"""What is checked of a group: always two answers (a single one counts twice), so that ranks make equally many calls."""


def default_tolerance(dtype: torch.dtype) -> float:
    """1e-4 for fp32; 32 units of rounding for narrower types (0.25 for bf16, where log-probs of two equally good ways to
    compute them differ by several hundredths)."""
    return max(1e-4, 32 * torch.finfo(dtype).eps)


def exactness_check(policy: Policy, group: PackedGroup, *, tolerance: float | None = None) -> float:
    """Largest |packed - one by one| log-prob over the first answers of `group`.

    One by one is the model's own forward on the whole sequence: its placeholder search, its "sdpa", its logits. Only the
    positions are given to both. With ZeRO-3 every rank must call this, each with a group of its own.

    Raises:
        RunError: the difference is above `tolerance` (default: `default_tolerance` of the weights' dtype) or not a number.
    """
    group = _part(group, policy)
    limit = default_tolerance(next(policy.hf.parameters()).dtype) if tolerance is None else tolerance
    with torch.no_grad(), _evaluating(policy):
        packed = policy((group,)).logp_R
        single = torch.cat([score_alone(policy, group.prompt, answer) for answer in group.answers])
    difference = (packed - single).abs().max().item()
    if not difference <= limit:
        raise RunError(
            f"packed and one-by-one log-probs of sample {group.prompt.sample.id!r} differ by {difference:.3g} (limit {limit:.3g}): "
            f"this {policy.hf.config.model_type} model cannot be trained in packed rows; please report it"
        )
    return difference


def score_alone(policy: Policy, prompt: Prompt, answer: tuple[int, ...]) -> torch.Tensor:
    """Log-probs [R] of one answer by the unmodified model: whole sequence, ordinary attention, full logits."""
    ids = torch.tensor([*prompt.input_ids, *answer], device=policy.device)
    after = torch.arange(len(answer)).expand(3, -1) + prompt.next_position
    positions_3T = torch.cat([prompt.positions_3P.cpu(), after], dim=1).to(policy.device)
    with ordinary_attention(policy.hf.get_decoder().config), _tower_in_step(policy, prompt):
        logits = policy.hf(
            input_ids=ids[None],
            attention_mask=torch.ones_like(ids)[None],
            position_ids=positions_3T[:, None] if policy.vision.parameters else positions_3T[:1],
            use_cache=False,
            logits_to_keep=len(answer) + 1,
            **_media(prompt, policy.device),
        ).logits
    return logits[0, :-1].float().log_softmax(-1).gather(1, ids[-len(answer) :, None])[:, 0]


def _part(group: PackedGroup, policy: Policy) -> PackedGroup:
    """Two short answers; where the prompt has media, without placeholder ids, which the model's own forward would take for
    more of them."""
    placeholder = policy.family.vision_token_id(policy.hf.config) if group.prompt.media else None
    answers = [tuple(0 if t == placeholder else t for t in a[:ANSWER_TOKENS]) for a in group.answers[:ANSWERS]]
    return PackedGroup(group.prompt, tuple((answers * ANSWERS)[:ANSWERS]))


def _media(prompt: Prompt, device: torch.device) -> dict[str, Any]:
    if not prompt.media:
        return {}
    pixels = torch.cat([m.pixel_values for m in prompt.media]).to(device)
    return {"pixel_values_videos": pixels, "video_grid_thw": torch.tensor([m.grid_thw for m in prompt.media], device=device)}


@contextmanager
def _tower_in_step(policy: Policy, prompt: Prompt) -> Iterator[None]:
    """A prompt without media makes the tower call that other ranks make, at the same place: after the embedding."""
    if prompt.media or not policy.vision.parameters:
        yield
        return

    def run_tower(*_: Any) -> None:
        policy.vision.dummy()

    handle = policy.family.embed(policy.hf).register_forward_hook(run_tower)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def _evaluating(policy: Policy) -> Iterator[None]:
    """No dropout, no checkpointing; afterwards every module is in the mode it was in."""
    training = [module for module in policy.modules() if module.training]
    policy.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
