"""The usual way to score answers: every answer with the whole prompt before it, through the plain Hugging Face forward.

Shape legend: B rows, T tokens of the longest row, R answer tokens (of all rows, one after the other), V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from vtgrl.model.types import PackedGroup, Prompt

Pair = tuple[Prompt, tuple[int, ...]]
"""A prompt and one answer to it."""


def pairs(row: Sequence[PackedGroup]) -> list[Pair]:
    """Every answer of a packed row with its prompt, in the order of `PolicyOutput.logp_R`."""
    return [(group.prompt, answer) for group in row for answer in group.answers]


def score_batch(hf: Any, batch: Sequence[Pair], *, full_logits: bool) -> torch.Tensor:
    """Log-probs [R] by one forward of `hf` on B whole sequences, padded on the right to the longest.

    `full_logits`: the head runs on every token (the default of a Hugging Face forward); else from the first token that
    predicts an answer token on. A clip goes through the tower once for each row that shows it.
    """
    inputs, first = _collate(batch, device=hf.device)
    kept = 0 if full_logits else inputs["input_ids"].shape[1] - first
    skipped = 0 if full_logits else first
    logits_BTV = hf(**inputs, use_cache=False, logits_to_keep=kept).logits
    return torch.cat([_answer_logp(logits_BTV[i], pair, skipped) for i, pair in enumerate(batch)])


def _collate(batch: Sequence[Pair], *, device: torch.device) -> tuple[dict[str, Any], int]:
    """Forward arguments, and the first position whose logits are read."""
    lengths = [len(p.input_ids) + len(a) for p, a in batch]
    ids_BT = torch.zeros(len(batch), max(lengths), dtype=torch.int64)
    positions_3BT = torch.zeros(3, *ids_BT.shape, dtype=torch.int64)
    for i, (prompt, answer) in enumerate(batch):
        ids_BT[i, : lengths[i]] = torch.tensor([*prompt.input_ids, *answer])
        after = torch.arange(len(answer)).expand(3, -1) + prompt.next_position
        positions_3BT[:, i, : lengths[i]] = torch.cat([prompt.positions_3P, after], dim=1)
    mask_BT = torch.arange(ids_BT.shape[1]) < torch.tensor(lengths)[:, None]
    media = [m for p, _ in batch for m in p.media]
    inputs: dict[str, Any] = {"input_ids": ids_BT, "attention_mask": mask_BT.long()}
    inputs["position_ids"] = positions_3BT if media else positions_3BT[0]
    if media:
        inputs["pixel_values_videos"] = torch.cat([m.pixel_values for m in media])
        inputs["video_grid_thw"] = torch.tensor([m.grid_thw for m in media])
    inputs = {name: tensor.to(device) for name, tensor in inputs.items()}
    return inputs, min(len(p.input_ids) for p, _ in batch) - 1


def _answer_logp(logits_TV: torch.Tensor, pair: Pair, skipped: int) -> torch.Tensor:
    prompt, answer = pair
    start = len(prompt.input_ids) - 1 - skipped
    read_RV = logits_TV[start : start + len(answer)]
    return read_RV.float().log_softmax(-1).gather(1, torch.tensor(answer, device=read_RV.device)[:, None])[:, 0]
