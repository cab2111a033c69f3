"""A whole copy of a ZeRO-3 policy on this rank, to decode with.

Decoding with sharded weights gathers every layer on every step, on all ranks: the first rank whose answers end leaves, the
others wait for ever (public fault DeepSpeed#8262). The twin is filled once per publish, by all ranks together; decoding
then has no collective in it. It costs one more copy of the weights on each rank, as a colocated vLLM does.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from vtgrl.rollout.sync import iter_module_weights


class Twin:
    """The copy. `model` is a plain Hugging Face model without adapters or hooks."""

    def __init__(self, policy: Any) -> None:
        base = policy.hf
        with torch.device("meta"):
            self.model: nn.Module = type(base)(copy.deepcopy(base.config))
        for name, buffer in base.named_buffers():
            parent, _, leaf = name.rpartition(".")
            self.model.get_submodule(parent).register_buffer(leaf, buffer.detach().clone(), persistent=False)
        self.model.eval().requires_grad_(False)
        self._filled = False

    def fill(self, policy: Any, *, bucket_bytes: int, trained_only: bool = False) -> None:
        """Take the policy's weights, adapters merged (collective). `trained_only`: the frozen ones are here already."""
        for name, tensor in iter_module_weights(policy.hf, bucket_bytes=bucket_bytes, trained_only=trained_only):
            if self._filled:
                self.model.get_parameter(name).data.copy_(tensor)
            else:
                self._place(name, tensor)
        if not self._filled:
            self.model.tie_weights()
            left = [name for name, param in self.model.named_parameters() if param.is_meta]
            assert not left, f"weights that were never published: {left}"
        self._filled = True

    def _place(self, name: str, tensor: torch.Tensor) -> None:
        parent, _, leaf = name.rpartition(".")
        setattr(self.model.get_submodule(parent), leaf, nn.Parameter(tensor, requires_grad=False))
