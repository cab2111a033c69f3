"""The policy: a Hugging Face model that scores whole groups in one packed row. The one place that knows about packing.

Shape legend: T packed tokens, R answer tokens of the row (all answers, one after the other), V vision tokens, D hidden size.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from vtgrl.core.errors import ConfigError
from vtgrl.model.attention import no_mask, use_packed_attention
from vtgrl.model.families.base import Family, VisionOutput
from vtgrl.model.head import NOTHING, install_head, one_row, read_columns
from vtgrl.model.packing import PackedInputs, pack_row
from vtgrl.model.types import Distribution, PackedRow, PolicyOutput, Statistics
from vtgrl.model.vision import CACHE_BYTES, VisionRunner, place


class Policy(nn.Module):
    """`hf`: the Hugging Face model itself (weights, names, generation: all its own; adapters go in before the policy is
    made). `family`: what is special about it. `vision`: the tower's runner, with its cache.

    What the constructor changes on `hf`: the text config's attention is "vtgrl_packed" (plain "sdpa" when no row layout
    comes in) and the head also takes target tokens.

    Raises:
        ConfigError: sliding windows or linear attention in the text model, or an adapter on the head.
    """

    def __init__(self, hf: Any, *, family: Family, cache_bytes: int = CACHE_BYTES) -> None:
        super().__init__()
        use_packed_attention(hf.get_decoder().config)
        install_head(family.head(hf))
        self.hf = hf
        self.family = family
        self.vision = VisionRunner(hf, family, cache_bytes=cache_bytes)

    @property
    def device(self) -> torch.device:
        """Where rows are put."""
        return next(self.hf.parameters()).device

    @property
    def hidden_size(self) -> int:
        """D of the text model."""
        return int(self.hf.get_decoder().config.hidden_size)

    def forward(self, row: PackedRow, *, temperature: float = 1.0, entropy: bool = False, statistics: Statistics = NOTHING) -> PolicyOutput:
        """Score every answer token of the row -> `PolicyOutput` (fp32, [R]); `statistics` says what else to tell of each.

        Module calls are always embedding, tower, text layers, head, each once, whatever the row holds: with ZeRO-3 every
        rank must call this equally often, a rank without work with the empty row `()`. Then `logp_R` has size 0 and
        `logp_R.sum()` is a zero that reaches every trained parameter: call backward on it (or on a loss made of it). It does
        not matter which of the output's values the ranks' losses are made of: to the hooks they are one tensor.

        A sampled answer may hold a vision placeholder id: it is scored as the plain token it is.
        """
        if temperature <= 0:
            raise ConfigError(f"temperature {temperature} cannot be scored: the policy's temperature must be above 0")
        inputs = pack_row(row, device=self.device)
        hidden_RD = self._hidden(inputs)[inputs.read_R]
        head = self.family.head(self.hf)
        wanted = one_row(statistics) if inputs.empty else statistics
        columns = head(hidden_RD, inputs.target_R, temperature=temperature, entropy=entropy, statistics=wanted)
        values_RC, likeliest_Rk, weight_VD, bias_V = columns
        if inputs.empty:
            values_RC, likeliest_Rk, hidden_RD = values_RC[:0], likeliest_Rk[:0], hidden_RD[:0]
        own = Distribution(hidden_RD.detach(), weight_VD, bias_V, temperature)
        return read_columns(values_RC, likeliest_Rk, own, entropy=entropy, statistics=statistics)

    def _hidden(self, inputs: PackedInputs) -> torch.Tensor:
        """Last hidden state [T, D] after the final norm."""
        embeds_TD, vision = self._embed(inputs)
        with no_mask():
            hidden_1TD = self.family.text_forward(
                self.hf,
                embeds_TD[None],
                inputs.positions_3T[:, None],
                vision,
                inputs.vision_index_V if vision is not None else None,
                packed_layout=inputs.layout,
            )
        return hidden_1TD[0]

    def _embed(self, inputs: PackedInputs) -> tuple[torch.Tensor, VisionOutput | None]:
        """Token embeddings [T, D] with vision tokens in their places, and these once more for deeper injections."""
        embeds_TD = self.family.embed(self.hf)(inputs.ids_T[None])[0]
        vision, zero = self.vision.run(inputs.media)
        if vision is not None:
            return place(embeds_TD, inputs, vision)
        return (embeds_TD if zero is None else embeds_TD + zero.to(embeds_TD.dtype)), None

    def invalidate(self) -> None:
        """Forget cached vision embeddings: call after writing tower weights through `.data` (loading a checkpoint)."""
        self.vision.cache.clear()

    @contextmanager
    def reference(self) -> Iterator[None]:
        """Inside, the policy scores as the frozen start model: its adapters are off and nothing is recorded for backward.

        Raises:
            ConfigError: no adapters, or weights beside them train, so that switching adapters off is not the start model.
        """
        layers = _adapter_layers(self.hf)
        inside = {id(p) for layer in layers for n, p in layer.named_parameters() if ".base_layer." not in f".{n}"}
        if not layers or any(p.requires_grad and id(p) not in inside for p in self.hf.parameters()):
            raise ConfigError("reference() needs a LoRA run that trains adapters only; else load the start model as a second policy")
        for layer in layers:
            layer.enable_adapters(False)
        try:
            with torch.no_grad():
                yield
        finally:
            for layer in layers:
                layer.enable_adapters(True)


def _adapter_layers(hf: nn.Module) -> list[Any]:
    from peft.tuners.tuners_utils import BaseTunerLayer

    return [module for module in hf.modules() if isinstance(module, BaseTunerLayer)]
