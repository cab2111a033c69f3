"""Loading and saving: nothing random, nothing mixed up, nothing half written."""

import json
import resource
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoProcessor

from vtgrl.core.errors import ConfigError, RunError
from vtgrl.core.schema import LoraConfig
from vtgrl.model.load import empty_model, load_model, load_parts, load_plain, save_pretrained
from vtgrl.model.save import merged_state
from vtgrl.model.tiny import MAKERS, build_tiny

TinyDir = Callable[[str], Path]


@pytest.fixture
def copy(tiny_dir: TinyDir, tmp_path: Path) -> Callable[[str], Path]:
    """A tiny checkpoint that the test may damage."""
    return lambda family: Path(shutil.copytree(tiny_dir(family), tmp_path / family))


def edit(file: Path, **values: Any) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


def trained(model: torch.nn.Module) -> set[str]:
    return {name for name, p in model.named_parameters() if p.requires_grad}


@pytest.mark.parametrize("family", MAKERS)
def test_parts(tiny_dir: TinyDir, family: str) -> None:
    loaded = load_model(tiny_dir(family), dtype="bf16", freeze=("vision",))
    assert loaded.family.name == family
    assert loaded.eos_ids == {0, 2}
    assert {p.dtype for p in loaded.policy.parameters()} == {torch.bfloat16}
    assert loaded.policy.training
    groups = loaded.family.freeze_groups(loaded.policy.hf)
    frozen = {n for n, p in loaded.policy.hf.named_parameters() if not p.requires_grad}
    assert frozen == set(groups.get("vision", ()))


def test_freeze_by_part_and_pattern(tiny_dir: TinyDir) -> None:
    loaded = load_model(tiny_dir("qwen2_5_vl"), dtype="fp32", freeze=("vision", "merger", "embed", "lm_head", "*.layers.[01].*"))
    assert trained(loaded.policy.hf) == {
        n
        for n, _ in loaded.policy.hf.named_parameters()
        if ".layers.2." in n or ".layers.3." in n or n == "model.language_model.norm.weight"
    }


def test_freeze_needs_a_match(tiny_dir: TinyDir) -> None:
    with pytest.raises(ConfigError, match=r"'visoin' matches no parameter; parts are vision, merger, embed, lm_head, text"):
        load_model(tiny_dir("qwen2_5_vl"), dtype="fp32", freeze=("visoin",))
    with pytest.raises(ConfigError, match="no weight is left"):
        load_model(tiny_dir("text"), dtype="fp32", freeze=("embed", "lm_head", "text"))


@pytest.mark.parametrize("family", ["qwen2_5_vl", "qwen3_vl", "text"])
def test_lora_starts_at_the_model_and_leaves_the_tower_alone(tiny_dir: TinyDir, family: str) -> None:
    lora = LoraConfig(r=4, alpha=8)
    policy = load_model(tiny_dir(family), dtype="fp32", freeze=("vision",), lora=lora).policy
    assert len(trained(policy.hf)) == 4 * 7 * 2
    assert all(".lora_" in n and "visual" not in n for n in trained(policy.hf))
    again = load_model(tiny_dir(family), dtype="fp32", lora=lora).policy
    assert all(torch.equal(a, b) for a, b in zip(policy.parameters(), again.parameters(), strict=True)), "all ranks start alike"
    plain = load_plain(tiny_dir(family), dtype="fp32")
    ids = torch.tensor([[20, 30, 40, 50]])
    with torch.no_grad():
        torch.testing.assert_close(policy.hf.eval()(ids).logits, plain(ids).logits, atol=0, rtol=0)


def test_a_cut_weight_file_is_one_line(copy: Callable[[str], Path]) -> None:
    folder = copy("text")
    with open(folder / "model.safetensors", "r+b") as file:
        file.truncate(100_000)
    with pytest.raises(ConfigError, match=r"weights cannot be read: .*; is a file missing or cut\?"):
        load_plain(folder)


def test_lora_needs_a_known_layer(tiny_dir: TinyDir) -> None:
    with pytest.raises(ConfigError, match=r"no layer 'query'; it has down_proj, gate_proj"):
        load_model(tiny_dir("text"), dtype="fp32", lora=LoraConfig(r=4, targets=("query",)))


def test_gradient_checkpointing_changes_no_gradient(tiny_dir: TinyDir) -> None:
    ids = torch.tensor([[20, 30, 40, 50]])
    grads = []
    for on in (False, True):
        policy = load_model(tiny_dir("qwen3_vl"), dtype="fp32", gradient_checkpointing=on).policy
        assert policy.hf.is_gradient_checkpointing is on
        policy.hf(ids).logits.logsumexp(-1).sum().backward()
        grads.append({n: p.grad for n, p in policy.named_parameters() if p.grad is not None})
    assert grads[0].keys() == grads[1].keys()
    assert all(torch.equal(grads[0][n], grads[1][n]) for n in grads[0])


@pytest.mark.parametrize("path", ["/no/such/model", "./nowhere", "nowhere", "a/b/c"])
def test_missing_folder(path: str) -> None:
    with pytest.raises(ConfigError, match="no such folder"):
        load_parts(path)


def test_folder_that_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="not a model folder"):
        load_parts(tmp_path)


@pytest.mark.parametrize(("family", "file", "match"), [
    ("qwen2_5_vl", "processor_config.json", "no processor"),
    ("qwen2_5_vl", "tokenizer.json", "no (processor|tokenizer)"),
    ("text", "tokenizer.json", "no tokenizer"),
])  # fmt: skip
def test_folder_without_processor(copy: Callable[[str], Path], family: str, file: str, match: str) -> None:
    folder = copy(family)
    (folder / file).unlink()
    with pytest.raises(ConfigError, match=f"{match} beside the weights"):
        load_parts(folder)


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def test_unequal_pixel_statistics_stop_the_load(copy: Callable[[str], Path], family: str) -> None:
    folder = copy(family)
    file = folder / "processor_config.json"
    settings = json.loads(file.read_text())
    settings["image_processor"]["image_mean"] = [0.48, 0.46, 0.41]
    file.write_text(json.dumps(settings))
    with pytest.raises(ConfigError, match=r"image_mean is \[0.5, 0.5, 0.5\] for videos and \[0.48, 0.46, 0.41\] for images"):
        load_parts(folder)


def test_processor_of_another_model(copy: Callable[[str], Path], tiny_dir: TinyDir) -> None:
    folder = copy("qwen2_5_vl")
    edit(folder / "config.json", video_token_id=7)
    with pytest.raises(ConfigError, match=r"id 13, the config says 7"):
        load_parts(folder)
    file = folder / "processor_config.json"
    settings = json.loads(file.read_text())
    settings["video_processor"]["patch_size"] = 16
    file.write_text(json.dumps(settings))
    with pytest.raises(ConfigError, match="patch_size is 16, the vision tower's patch_size is 14"):
        load_parts(folder)


def head_case(folder: Path, *, root: bool | None, nested: bool | None, head: bool) -> None:
    """Rewrite a checkpoint's tie flags and keep or drop its head."""
    config = json.loads((folder / "config.json").read_text())
    config.pop("tie_word_embeddings", None)
    config["text_config"].pop("tie_word_embeddings", None)
    if root is not None:
        config["tie_word_embeddings"] = root
    if nested is not None:
        config["text_config"]["tie_word_embeddings"] = nested
    (folder / "config.json").write_text(json.dumps(config))
    weights = load_file(folder / "model.safetensors")
    if not head:
        weights.pop("lm_head.weight", None)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


@pytest.mark.parametrize("family", ["qwen2_vl", "qwen2_5_vl", "qwen3_vl"])
def test_head_is_right_or_named_as_missing(copy: Callable[[str], Path], family: str) -> None:
    """Public fault 41: nested flag only; not tied and no head; not tied and a head."""
    folder = copy(family)
    real = load_file(folder / "model.safetensors")["lm_head.weight"]
    head_case(folder, root=False, nested=None, head=True)
    assert torch.equal(load_plain(folder, dtype="fp32").lm_head.weight, real)
    head_case(folder, root=False, nested=None, head=False)
    with pytest.raises(ConfigError, match=r"weights lack lm_head.weight; the config says that the head is not tied"):
        load_plain(folder)
    head_case(folder, root=None, nested=True, head=False)
    model = load_plain(folder, dtype="fp32")
    assert model.lm_head.weight is model.get_input_embeddings().weight


@pytest.mark.parametrize("drop", ["model.norm.weight", "model.layers.1.mlp.up_proj.weight"])
def test_missing_weights_are_named(copy: Callable[[str], Path], drop: str) -> None:
    folder = copy("text")
    weights = load_file(folder / "model.safetensors")
    weights.pop(drop)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=f"weights lack {drop}"):
        load_plain(folder)


def test_wrong_shapes_are_named(copy: Callable[[str], Path]) -> None:
    folder = copy("text")
    edit(folder / "config.json", intermediate_size=128)
    with pytest.raises(ConfigError, match=r"disagree on the shape of model.layers.0.mlp"):
        load_plain(folder)


@pytest.mark.parametrize("family", MAKERS)
@pytest.mark.parametrize("tie", [False, True])
def test_saved_folder_is_the_model(tmp_path: Path, family: str, tie: bool) -> None:
    loaded = load_model(build_tiny(tmp_path / "start", family=family, tie=tie, layers=1), dtype="fp32")
    with torch.no_grad():
        for p in loaded.policy.parameters():
            p.add_(0.25)
    out = save_pretrained(loaded.policy.hf, loaded.processor, tmp_path / "deep" / "out")
    before, after = load_file(tmp_path / "start" / "model.safetensors"), load_file(out / "model.safetensors")
    assert before.keys() == after.keys()
    assert all(torch.equal(before[k] + 0.25, after[k]) for k in before)
    assert {f.name for f in (tmp_path / "start").iterdir()} == {f.name for f in out.iterdir()}
    assert "attn" not in (out / "config.json").read_text(), "our attention stays out of the folder"
    again = load_parts(out)
    assert again.eos_ids == loaded.eos_ids
    assert again.processor.chat_template == loaded.processor.chat_template
    assert [f.name for f in out.parent.iterdir()] == ["out"], "no scratch folder is left"


def test_saving_merges_adapters(tiny_dir: TinyDir, tmp_path: Path) -> None:
    policy = load_model(tiny_dir("qwen3_vl"), dtype="fp32", lora=LoraConfig(r=4, alpha=12)).policy
    torch.manual_seed(0)
    with torch.no_grad():
        for name, p in policy.named_parameters():
            if ".lora_" in name:
                p.normal_(0, 0.2)
    processor = AutoProcessor.from_pretrained(tiny_dir("qwen3_vl"))
    out = save_pretrained(policy.hf, processor, tmp_path / "out")
    ids = torch.tensor([[20, 30, 40, 50]])
    with torch.no_grad():
        adapted, merged, base = (m.eval()(ids).logits for m in (policy.hf, load_plain(out), load_plain(tiny_dir("qwen3_vl"))))
    torch.testing.assert_close(adapted, merged, atol=1e-5, rtol=0)
    assert (adapted - base).abs().max() > 0.1, "the adapter did something"


def test_saving_refuses_what_would_lose_data(tiny_dir: TinyDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, processor = load_plain(tiny_dir("text")), load_parts(tiny_dir("text")).processor
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").touch()
    with pytest.raises(ConfigError, match="exists and is not empty"):
        save_pretrained(model, processor, tmp_path / "full")
    state = merged_state(model) | {"model.norm.weight": torch.empty(0)}
    with pytest.raises(RunError, match=r"1 tensors hold no values \(first model.norm.weight\)"):
        save_pretrained(model, processor, tmp_path / "empty", state=state)

    def full_disk(folder: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(processor, "save_pretrained", full_disk)
    with pytest.raises(RunError, match="out: cannot be written: No space left on device"):
        save_pretrained(model, processor, tmp_path / "out")
    assert sorted(f.name for f in tmp_path.iterdir()) == ["full"]


def test_a_disk_that_fills_up_in_the_weights_is_one_line(tiny_dir: TinyDir, tmp_path: Path) -> None:
    """safetensors raises an error of its own; here a limit of the file size stands for the full disk."""
    parts = load_parts(tiny_dir("text"))
    model = load_plain(tiny_dir("text"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, limits[1]))
    try:
        with pytest.raises(RunError, match=r"out: cannot be written: .*free space"):
            save_pretrained(model, parts.processor, tmp_path / "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, old)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("family", ["qwen2_5_vl", "text"])
def test_empty_model_takes_a_state(tmp_path: Path, family: str) -> None:
    loaded = load_model(build_tiny(tmp_path / "start", family=family, tie=True, layers=1), dtype="bf16")
    loaded.save_files(tmp_path / "files")
    assert not (tmp_path / "files" / "model.safetensors").exists()
    model, processor = empty_model(tmp_path / "files")
    model.load_state_dict(loaded.policy.hf.state_dict())
    out = save_pretrained(model, processor, tmp_path / "out")
    before, after = load_file(tmp_path / "start" / "model.safetensors"), load_file(out / "model.safetensors")
    assert all(torch.equal(before[k].bfloat16(), after[k]) for k in before)
    assert before.keys() == after.keys()


@pytest.mark.slow
def test_smollm2_is_a_text_model(shared_dir: Path, tmp_path: Path) -> None:
    """A real pretrained model: 135 M parameters that know a capital."""
    import importlib.util
    import subprocess
    import sys

    lacking = [name for name in ("gguf", "sentencepiece") if importlib.util.find_spec(name) is None]
    if lacking:
        pytest.skip(f"make_smollm2.py needs {' and '.join(lacking)}")
    made = subprocess.run([sys.executable, shared_dir / "tools" / "make_smollm2.py", tmp_path / "smol"], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"cannot build SmolLM2 here: {made.stderr.strip().splitlines()[-1]}")
    loaded = load_model(tmp_path / "smol", dtype="fp32")
    assert loaded.family.name == "text"
    text = loaded.processor.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}], tokenize=False, add_generation_prompt=True
    )
    ids = loaded.family.expand(loaded.processor, text, ())
    hf = loaded.policy.hf.eval()
    out = hf.generate(torch.tensor([ids]), max_new_tokens=12, do_sample=False)
    assert "Paris" in loaded.processor.decode(out[0, len(ids) :])
