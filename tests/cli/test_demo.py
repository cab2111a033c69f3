"""`vtgrl demo` where it cannot start."""

import socket
import sys

import pytest


def test_without_gradio_it_says_what_to_install(cli, monkeypatch):
    monkeypatch.setitem(sys.modules, "gradio", None)
    done = cli("demo", "--model", "no/such/model")
    assert (done.code, done.out) == (3, "")
    assert done.err == "vtgrl: error: the demo's page needs Gradio: pip install 'vtgrl[demo]'\n"


def test_a_port_that_is_taken_is_one_line(cli, tiny_dir):
    pytest.importorskip("gradio", reason="no Gradio: pip install 'vtgrl[demo]'")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = cli("demo", "--model", str(tiny_dir("qwen2_5_vl")), "--engine", "hf", "--port", port)
    assert done.code == 2
    last = done.err.splitlines()[-1]
    assert last.startswith(f"vtgrl: error: cannot listen on 127.0.0.1, port {port}: is it taken? choose another --port")
