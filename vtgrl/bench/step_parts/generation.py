"""Seconds of drawing the answers, beside the step and not in its ratio: our decode loop and Hugging Face's `generate`."""

from __future__ import annotations

from typing import Any

import torch
from PIL import Image

from vtgrl.bench.measure.kit import Kit
from vtgrl.bench.step_parts.clock import Clock
from vtgrl.bench.step_parts.same_rollouts import SameRollouts
from vtgrl.core.schema import SamplingConfig
from vtgrl.rollout.decode import Decoder


def generation(kit: Kit, rollouts: SameRollouts) -> dict[str, float]:
    """As many answers of the same lengths as `rollouts` has, one run each."""
    return {"ours": _ours(kit, rollouts), "trl": _hugging_face(kit, rollouts)}


def _ours(kit: Kit, rollouts: SameRollouts) -> float:
    n, length = len(rollouts.answers[0]), len(rollouts.answers[0][0])
    prompts = [p.ours for p in rollouts.prompts]
    decoder = Decoder(kit.policy().hf, kit.family, eos_ids=frozenset())
    clock = Clock()
    clock.start()
    free = [[()] * n] * len(prompts)
    decoder.answers(prompts, [length] * len(prompts), list(range(len(prompts))), free, n=n, sampling=SamplingConfig())
    return clock.stop()["whole"]


def _hugging_face(kit: Kit, rollouts: SameRollouts) -> float:
    """What TRL calls without vLLM: every answer a row with the whole prompt."""
    n, length = len(rollouts.answers[0]), len(rollouts.answers[0][0])
    ids = torch.tensor([p.peer_ids for p in rollouts.prompts]).repeat_interleave(n, 0)
    inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    images = [Image.fromarray(pixels) for p in rollouts.prompts for _ in range(n) for pixels in p.images]
    if images:
        inputs |= kit.processor.image_processor(images=images, return_tensors="pt")
        inputs["mm_token_type_ids"] = (ids == kit.config.image_token_id).long()
    hf = kit.hf()
    inputs = {name: tensor.to(hf.device) for name, tensor in inputs.items()}
    clock = Clock()
    clock.start()
    hf.generate(**inputs, do_sample=True, top_k=0, max_new_tokens=length, min_new_tokens=length)
    return clock.stop()["whole"]
