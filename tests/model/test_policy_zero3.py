"""Two real ranks under ZeRO-3 (nothing persistent): equal gradients, and no hang when ranks hold different things (fault 34)."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from policy_kit import Kit, gradients, relative

from vtgrl.model.tiny import build_tiny

pytest.importorskip("deepspeed")

HERE = Path(__file__).parent
LIMIT_S = 360
CASES: dict[str, dict[str, Any]] = {
    "tied head, frozen tower, video beside text": {"family": "qwen2_5_vl", "tie": True, "frozen": True, "rows": [["video", "text"]]},
    "deepstack, trained tower, video beside text": {"family": "qwen3_vl", "tie": False, "frozen": False, "rows": [["video", "text"]]},
    "trained tower, two clips beside an empty row": {"family": "qwen2_vl", "tie": False, "frozen": False, "rows": [["both", "empty"]]},
    "frozen tower, cached here and missing there": {
        "family": "qwen3_vl",
        "tie": True,
        "frozen": True,
        "rows": [["video", "text"], ["video", "other"]],
    },
    "checkpointing, two clips beside one": {
        "family": "qwen2_5_vl",
        "tie": False,
        "frozen": False,
        "checkpointing": True,
        "rows": [["both", "video"]],
    },
    "text model, tied": {"family": "text", "tie": True, "frozen": False, "rows": [["text", "empty"]]},
    "distilled from a sharded teacher": {"family": "text", "tie": False, "frozen": False, "teacher": "", "rows": [["text", "empty"]]},
}


def _launch(spec: Path, out: Path) -> None:
    """Both ranks within the limit, or the test fails with what they wrote."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    base = os.environ | {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    base["PYTHONPATH"] = os.pathsep.join([str(HERE.parents[1]), str(HERE), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(HERE / "zero3_worker.py"), str(spec), str(out)]
    ranks = []
    for rank in range(2):
        log = (out.parent / f"rank{rank}.log").open("w")
        env = base | {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        ranks.append(subprocess.Popen(command, env=env, stdout=log, stderr=subprocess.STDOUT))
    try:
        codes = [r.wait(timeout=LIMIT_S) for r in ranks]
    except subprocess.TimeoutExpired:
        codes = [-1]
    finally:
        for r in ranks:
            r.kill()
    logs = "\n".join((out.parent / f"rank{r}.log").read_text()[-3000:] for r in range(2))
    assert codes == [0, 0], f"ranks ended with {codes} (-1: hung for {LIMIT_S} s)\n{logs}"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All cases in one launch -> case name -> its spec, gradients of rank 0, exactness."""
    root = tmp_path_factory.mktemp("zero3")
    for case in CASES.values():
        folder = root / f"{case['family']}-{case['tie']}"
        case["folder"] = str(folder if folder.exists() else build_tiny(folder, family=case["family"], tie=case["tie"], layers=2))
        if "teacher" in case:
            case["teacher"] = str(build_tiny(root / "teacher", family=case["family"], hidden=64, layers=1))
    spec, out = root / "spec.json", root / "out.pt"
    spec.write_text(json.dumps({"cases": [{"name": n, **c} for n, c in CASES.items()]}))
    _launch(spec, out)
    return torch.load(out)


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S + 60)
@pytest.mark.parametrize("name", CASES)
def test_two_ranks_give_the_gradients_of_one_process(run: dict[str, Any], name: str) -> None:
    from zero3_worker import distilled, loss_of, make_policy, make_row, make_teacher

    case = CASES[name]
    kit = Kit(Path(case["folder"]), case["family"])
    policy = make_policy(kit, case)
    for kind in case["rows"][-1]:
        row = make_row(kit, kind)
        out = distilled(policy, make_teacher(case), row) if "teacher" in case else policy(row, entropy=True)
        (loss_of(out) / 2).backward()
    expected = gradients(policy)
    assert run[name]["grads"].keys() == {n for n, p in policy.named_parameters() if p.requires_grad}
    assert relative(run[name]["grads"], expected) <= 1e-5
    assert run[name]["exactness"] <= 2e-5
