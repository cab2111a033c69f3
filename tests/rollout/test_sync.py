"""Streaming the policy's weights: bucket plan, names, merged adapters, tied heads."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import nn

from vtgrl.core.schema import LoraConfig
from vtgrl.model.load import load_model, load_plain
from vtgrl.rollout.sync import full_numel, iter_module_weights, iter_weights, plan_buckets, untrained_names, weight_items


def names_on_disk(folder: Path) -> set[str]:
    return {name for file in folder.glob("*.safetensors") for name in safe_open(file, "pt").keys()}  # noqa: SIM118


def test_buckets_are_consecutive_and_bounded() -> None:
    assert plan_buckets([3, 3, 9, 1], 6) == [[0, 1], [2], [3]]
    assert plan_buckets([], 6) == []
    assert plan_buckets([2, 2, 2], 6) == [[0, 1, 2]]
    assert plan_buckets([0, 0, 7, 0], 6) == [[0, 1], [2], [3]]


@pytest.mark.parametrize("seed", range(5))
def test_every_index_once_and_no_bucket_too_large(seed: int) -> None:
    sizes = torch.randint(0, 50, (40,), generator=torch.Generator().manual_seed(seed)).tolist()
    buckets = plan_buckets(sizes, 60)
    assert [i for bucket in buckets for i in bucket] == list(range(40))
    assert all(sum(sizes[i] for i in bucket) <= 60 for bucket in buckets)


def test_sizes_of_sharded_parameters_come_from_ds_numel() -> None:
    param = nn.Parameter(torch.empty(0, dtype=torch.bfloat16))
    assert full_numel(param) == 0
    param.ds_numel = 1000  # type: ignore[attr-defined]
    assert full_numel(param) == 1000
    module = nn.Module()
    module.weight = param
    assert weight_items(module)[0].nbytes == 2000


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl", "text"])
@pytest.mark.parametrize("bucket_bytes", [1, 100_000, 10**9])
def test_what_is_sent_is_what_a_checkpoint_holds(tiny_dir: Callable[[str], Path], family: str, bucket_bytes: int) -> None:
    folder = tiny_dir(family)
    policy = load_model(folder, dtype="fp32").policy
    sent = dict(iter_weights(policy, bucket_bytes=bucket_bytes))
    assert sent.keys() == names_on_disk(folder)  # a tied head is sent once, under the embedding's name
    for file in folder.glob("*.safetensors"):
        with safe_open(file, "pt") as stored:
            assert all(torch.equal(sent[name], stored.get_tensor(name)) for name in stored.keys())  # noqa: SIM118


def test_dtype_is_kept(tiny_dir: Callable[[str], Path]) -> None:
    policy = load_model(tiny_dir("qwen2_5_vl"), dtype="bf16", lora=LoraConfig(r=2)).policy
    assert {t.dtype for _, t in iter_weights(policy, bucket_bytes=10**6)} == {torch.bfloat16}


@pytest.mark.parametrize("family", ["qwen3_vl", "text"])
def test_adapters_are_merged_and_never_sent(tiny_dir: Callable[[str], Path], family: str) -> None:
    """Public fault 39: W + alpha / r * B A, in place of W."""
    folder = tiny_dir(family)
    policy = load_model(folder, dtype="fp32", lora=LoraConfig(r=4, alpha=8, targets=("q_proj", "down_proj"))).policy
    base = dict(load_plain(folder, dtype="fp32").named_parameters())
    with torch.no_grad():
        for name, param in policy.hf.named_parameters():
            if "lora_B" in name:
                param.normal_(generator=torch.Generator().manual_seed(len(name)))
    sent = dict(iter_module_weights(policy.hf, bucket_bytes=10**5))
    assert sent.keys() == base.keys()
    parts = dict(policy.hf.named_parameters())
    adapted = 0
    for name, weight in base.items():
        stem = name.removesuffix(".weight")
        want = weight
        if f"{stem}.lora_A.default.weight" in parts:
            want = weight + 8 / 4 * parts[f"{stem}.lora_B.default.weight"] @ parts[f"{stem}.lora_A.default.weight"]
            assert not torch.allclose(sent[name], weight, atol=1e-3)
            adapted += 1
        assert torch.allclose(sent[name], want, atol=1e-6)
    assert adapted == 2 * policy.hf.config.get_text_config().num_hidden_layers


@pytest.mark.parametrize("family", ["qwen2_5_vl", "text"])
def test_an_adapter_on_q_alone_sends_all_of_its_module(tiny_dir: Callable[[str], Path], family: str) -> None:
    """vLLM fuses q, k and v: it takes all of them or none. Everything else stays."""
    policy = load_model(tiny_dir(family), dtype="fp32", lora=LoraConfig(r=2, targets=("q_proj",))).policy
    whole = dict(iter_weights(policy, bucket_bytes=10**6))
    sent = dict(iter_weights(policy, bucket_bytes=10**6, trained_only=True))
    assert sent.keys() == {n for n in whole if ".self_attn." in n}
    assert all(torch.equal(sent[n], whole[n]) for n in sent)
    assert untrained_names(policy) == whole.keys() - sent.keys()


def test_frozen_parts_are_left_out(tiny_dir: Callable[[str], Path]) -> None:
    policy = load_model(tiny_dir("qwen2_5_vl"), dtype="fp32", freeze=["vision", "embed"]).policy
    names = {name for name, _ in iter_weights(policy, bucket_bytes=10**6, trained_only=True)}
    assert {n for n in names if n.startswith("visual.")} == {n for n in names if n.startswith("visual.merger.")}
    assert "model.embed_tokens.weight" not in names
    assert {"model.norm.weight", "lm_head.weight", "visual.merger.ln_q.weight"} <= names


def test_with_nothing_frozen_everything_is_sent(tiny_dir: Callable[[str], Path]) -> None:
    policy = load_model(tiny_dir("qwen3_vl"), dtype="fp32").policy
    assert not untrained_names(policy)
