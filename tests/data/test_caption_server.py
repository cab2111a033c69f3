"""One question over real HTTP: what is asked again, what ends it, how long is waited, and where the key does not go."""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from itertools import pairwise
from typing import Any

import pytest

from tests.data.caption_kit import (
    GOOD,
    KEY,
    Act,
    FakeClock,
    Stub,
    completion,
    reply,
    resets,
    says,
    sends,
    serving,
    status,
    waits_for,
)
from vtgrl.core.errors import ConfigError, RunError, VtgrlError
from vtgrl.data.caption.chat import ChatServer, ServerConfig, Unanswered
from vtgrl.data.caption.dialect import SCHEMA
from vtgrl.data.caption.http import NoReply, Poster
from vtgrl.data.caption.pace import Pace, RealClock, Stopped, backoff, retry_after
from vtgrl.data.caption.types import Usage

PARTS = [{"type": "text", "text": "The video is 4.00 seconds long."}]
ANSWER = json.dumps({"events": GOOD})


def client(stub: Stub, clock: Any = None, **config: Any) -> ChatServer:
    return ChatServer(ServerConfig(url=stub.url, model="m", **config), clock=clock or FakeClock(), dice=random.Random(0))


# --- asked again -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("acts", "reason"),
    [
        ([status(500), status(502), status(503)], {"status 500": 1, "status 502": 1, "status 503": 1}),
        ([status(429), status(408)], {"status 429": 1, "status 408": 1}),
        ([status(529, "overloaded")], {"status 529": 1}),
        ([resets, resets], {"no reply": 2}),
        ([sends(b'{"choices": [', length=4000)], {"no reply": 1}),
        ([sends(b'{"choices": ['), sends(b"<html>busy</html>"), sends(b"{}"), sends(b'{"error": {"message": "x"}}')], {"no reply": 4}),
    ],
)
def test_what_another_try_may_change_is_tried_again(acts: list[Act], reason: dict[str, int]) -> None:
    with serving(*acts) as stub:
        server = client(stub)
        answer = server.ask(PARTS)
    assert answer.text == ANSWER
    assert answer.usage == Usage(len(acts) + 1, 100, 10)
    assert len(stub.requests) == len(acts) + 1
    assert server.retried == reason


def test_it_is_given_up_after_the_retries() -> None:
    with (
        serving(act=status(500, "the disk is on fire")) as stub,
        pytest.raises(Unanswered, match=r"status 500: the disk is on fire") as error,
    ):
        client(stub, retries=3).ask(PARTS)
    assert (error.value.kind, error.value.usage.requests, len(stub.requests)) == ("server", 4, 4)


def test_waits_grow_and_are_random() -> None:
    clock = FakeClock()
    with serving(*[status(500)] * 5) as stub:
        client(stub, clock, base_wait_s=2.0).ask(PARTS)
    assert all(whole / 2 <= wait <= whole for wait, whole in zip(clock.waits, (2, 4, 8, 16, 32), strict=True))
    waits = {backoff(3, base_s=1.0, dice=random.Random(seed)) for seed in range(20)}
    assert len(waits) == 20
    assert 2.0 <= min(waits) < max(waits) <= 4.0
    assert backoff(100, base_s=1.0, dice=random.Random(0)) <= 60.0


def test_the_server_says_how_long_to_wait() -> None:
    clock = FakeClock()
    with serving(status(429, headers={"Retry-After": "37"}), status(503, headers={"Retry-After": "41.5"}), clock=clock) as stub:
        client(stub, clock).ask(PARTS)
    times = [request.time for request in stub.requests]
    assert times[1] - times[0] >= 37
    assert times[2] - times[1] >= 41.5


def test_all_wait_when_one_is_told_to() -> None:
    """The question that was told gives up; the next one waits all the same."""
    clock = FakeClock()
    with serving(status(429, headers={"Retry-After": "30"}), clock=clock) as stub:
        server = client(stub, clock, retries=0)
        with pytest.raises(Unanswered):
            server.ask(PARTS)
        server.ask(PARTS)
    assert stub.requests[1].time - stub.requests[0].time == 30


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "12"}, 12.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:20 GMT"}, 20.0),
        ({"retry-after": "Wed, 21 Oct 2015 07:00:00 GMT"}, 0.0),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "-5"}, None),
        ({}, None),
    ],
)
def test_forms_of_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, now=1445412480.0) == seconds


# --- ends it -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (status(401, "bad key"), ConfigError, r"status 401, the key is not accepted; set VTGRL_TEST_KEY to your key \(server: bad key\)"),
        (status(403, "no"), ConfigError, "status 403"),
        (status(404, "The model `m` does not exist"), ConfigError, r"no model 'm' at this address; check --model.*does not exist"),
        (status(402, "pay"), RunError, "payment required"),
        (status(429, "You exceeded your quota", code="insufficient_quota"), RunError, "no quota left"),
        (status(429, "tomorrow", {"Retry-After": "86400"}), RunError, "asks to wait 86400 s"),
        (status(307, "moved", {"Location": "http://127.0.0.1:9/v2"}), ConfigError, "points to http://127.0.0.1:9/v2"),
    ],
)
def test_what_no_request_can_pass_ends_the_run_at_once(act: Act, error: type[VtgrlError], message: str) -> None:
    with serving(act=act) as stub, pytest.raises(error, match=message) as caught:
        client(stub, key_env="VTGRL_TEST_KEY").ask(PARTS)
    assert len(stub.requests) == 1
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("code", [400, 413, 422])
def test_a_refused_question_is_not_asked_again(code: int) -> None:
    with serving(act=status(code, "the prompt is too long")) as stub, pytest.raises(Unanswered, match="too long") as error:
        client(stub).ask(PARTS)
    assert (error.value.kind, len(stub.requests)) == ("refused", 1)


def test_a_slow_server_is_let_go_of() -> None:
    gate = threading.Event()
    with serving(waits_for(gate), waits_for(gate)) as stub:
        try:
            assert client(stub, timeout_s=0.3).ask(PARTS).text == ANSWER
        finally:
            gate.set()
        assert len(stub.requests) == 3


@pytest.mark.parametrize("stated", [True, False])
def test_a_server_that_drips_is_let_go_of_too(stated: bool) -> None:
    """Every byte comes in time, the whole answer never does; without a stated length its end looks like the real one."""
    gate = threading.Event()

    def drips(handler: Any, request: Any) -> None:
        handler.send_response(200)
        if stated:
            handler.send_header("Content-Length", "1000000")
        handler.end_headers()
        try:
            handler.wfile.write(json.dumps(completion(ANSWER)).encode())
            while not gate.wait(0.05):
                handler.wfile.write(b" ")
        except OSError:
            return

    with serving(drips) as stub:
        try:
            with pytest.raises(NoReply, match=r"no whole answer within 0\.4 s"):
                Poster(f"{stub.url}/x", headers={}, timeout_s=0.4).post(json.dumps({"messages": [{"content": PARTS}]}).encode())
        finally:
            gate.set()


def test_an_answer_without_a_stated_length_is_read_to_its_end() -> None:
    def plain(handler: Any, request: Any) -> None:
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(json.dumps(completion(ANSWER)).encode())

    with serving(plain) as stub:
        assert client(stub).ask(PARTS).text == ANSWER


def test_an_endless_answer_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vtgrl.data.caption.http.MOST_BYTES", 1000)
    with serving(sends(b" " * 5000)) as stub, pytest.raises(NoReply, match="cut off after 1000 bytes"):
        Poster(f"{stub.url}/x", headers={}, timeout_s=10).post(json.dumps({"messages": [{"content": PARTS}]}).encode())


def test_nobody_there() -> None:
    with serving() as stub:
        url = stub.url
    server = ChatServer(ServerConfig(url=url, model="m", retries=1), clock=FakeClock())
    with pytest.raises(Unanswered, match=r"no reply: connection refused \(2 requests\)"):
        server.ask(PARTS)
    assert not server.heard


def test_closing_wakes_whoever_waits_for_an_answer() -> None:
    gate, caught = threading.Event(), list[BaseException]()
    with serving(act=waits_for(gate)) as stub:
        server = client(stub, RealClock(), timeout_s=60)

        def ask() -> None:
            try:
                server.ask(PARTS)
            except Stopped as error:
                caught.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        while not stub.requests:
            time.sleep(0.01)
        server.close()
        thread.join(20)
        assert not thread.is_alive()
        gate.set()
    assert [type(error) for error in caught] == [Stopped]


def test_closing_wakes_whoever_waits_for_a_turn() -> None:
    clock = RealClock()
    pace = Pace(clock, per_minute=0.01)
    pace.turn()
    threading.Timer(0.05, clock.stop).start()
    with pytest.raises(Stopped):
        pace.turn()


# --- how it is asked ---------------------------------------------------------------------------------------------


def test_the_request() -> None:
    with serving() as stub:
        client(stub, max_tokens=77).ask(PARTS)
    (request,) = stub.requests
    assert request.path == "/v1/chat/completions"
    assert request.headers["content-type"] == "application/json"
    assert "authorization" not in request.headers
    assert request.body["model"] == "m"
    assert request.body["messages"] == [{"role": "user", "content": PARTS}]
    assert (request.body["max_tokens"], request.body["temperature"]) == (77, 0.0)
    assert request.body["response_format"]["json_schema"]["schema"] == SCHEMA


def complains(key: str, message: str) -> Act:
    """Refuse a request that has this key, answer one without it."""

    def act(handler: Any, request: Any) -> None:
        if key in request.body:
            reply(handler, 400, json.dumps({"error": {"message": message}}).encode())
        else:
            says(GOOD)(handler, request)

    return act


@pytest.mark.parametrize(
    ("key", "message", "instead"),
    [
        ("response_format", "response_format of type json_schema is not supported", None),
        ("temperature", "Unsupported value: 'temperature' does not support 0.0 with this model.", None),
        ("max_tokens", "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.", "max_completion_tokens"),
    ],
)
def test_what_a_server_does_not_take_is_left_out_from_then_on(key: str, message: str, instead: str | None) -> None:
    with serving(act=complains(key, message)) as stub:
        server = client(stub)
        for _ in range(2):
            assert server.ask(PARTS).text == ANSWER
    first, *others = (request.body for request in stub.requests)
    assert (key in first, len(others)) == (True, 2)
    for body in others:
        assert key not in body
        assert set(first) - set(body) == {key}
        assert instead is None or body[instead] == first[key]


def test_a_length_complaint_that_names_both_limits_changes_nothing() -> None:
    message = "'max_tokens' or 'max_completion_tokens' is too large: 4096. The model's context has 2048 tokens"
    with serving(act=status(400, message)) as stub, pytest.raises(Unanswered):
        client(stub).ask(PARTS)
    assert len(stub.requests) == 1


@pytest.mark.parametrize(
    ("document", "text", "usage"),
    [
        (completion([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]), "ab", Usage(1, 100, 10)),
        (completion(None, refusal="I cannot"), "", Usage(1, 100, 10)),
        (completion("x", usage=False), "x", Usage(1, unmetered=1)),
    ],
)
def test_forms_of_an_answer(document: dict[str, Any], text: str, usage: Usage) -> None:
    with serving(sends(json.dumps(document).encode())) as stub:
        answer = client(stub).ask(PARTS)
    assert (answer.text, answer.usage) == (text, usage)


def test_requests_keep_their_distance() -> None:
    clock = FakeClock()
    with serving(status(500), clock=clock) as stub:
        server = client(stub, clock, per_minute=30, base_wait_s=0.0)
        for _ in range(4):
            server.ask(PARTS)
    times = [request.time for request in stub.requests]
    assert [b - a for a, b in pairwise(times)] == [2.0] * 4


def test_threads_share_one_pace() -> None:
    """Eight threads at 60 a minute: each turn is a second of its own."""
    clock, times, lock = FakeClock(), list[float](), threading.Lock()
    pace = Pace(clock, per_minute=60)
    taken = pace._next

    def go() -> None:
        nonlocal taken
        for _ in range(5):
            pace.turn()
            with lock:
                times.append(clock.now())

    threads = [threading.Thread(target=go) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(times) == 40
    assert pace._next - taken >= 40.0


# --- address and key ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("localhost:8000/v1", "write http"),
        ("ftp://host/v1", "write http"),
        ("http://", "write http"),
        ("http://host:port/v1", "write http"),
        ("http://[::1/v1", "write http"),
        ("https://me:secret@host/v1", "holds a login"),
    ],
)
def test_addresses_that_cannot_be_used(url: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as error:
        ChatServer(ServerConfig(url=url, model="m"), clock=FakeClock())
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("suffix", ["", "/"])
def test_path_and_query_of_the_address_are_kept(suffix: str) -> None:
    with serving() as stub:
        ChatServer(ServerConfig(url=f"{stub.url}{suffix}?api-version=2", model="m"), clock=FakeClock()).ask(PARTS)
    assert stub.requests[0].path == "/v1/chat/completions?api-version=2"


def test_the_key_comes_from_the_environment_and_is_never_shown(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(logging.getLogger("vtgrl"), "propagate", True)
    caplog.set_level(logging.INFO, logger="vtgrl")
    monkeypatch.setenv("MY_KEY", f" {KEY}\n")
    echo = f"Incorrect API key provided: {KEY}."
    with serving(status(500, echo), status(401, echo)) as stub, pytest.raises(ConfigError, match="check the key in MY_KEY") as error:
        client(stub, key_env="MY_KEY").ask(PARTS)
    assert [request.headers["authorization"] for request in stub.requests] == [f"Bearer {KEY}"] * 2
    assert "provided: ***." in str(error.value)
    assert "provided: ***." in caplog.text
    assert KEY not in str(error.value) + caplog.text
    with serving(act=status(400, echo)) as stub, pytest.raises(Unanswered) as refused:
        client(stub, key_env="MY_KEY").ask(PARTS)
    assert KEY not in refused.value.why


@pytest.mark.parametrize("value", ["two words", "line\nbreak", "schlüssel", "\x01"])
def test_a_key_that_cannot_be_one(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("MY_KEY", value)
    with pytest.raises(ConfigError, match="MY_KEY holds no key") as error:
        ChatServer(ServerConfig(url="http://127.0.0.1:1/v1", model="m", key_env="MY_KEY"), clock=FakeClock())
    assert value not in str(error.value)


def test_a_proxy_is_used_as_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stub plays the proxy: it is asked for the whole address, and gets the login."""
    with serving() as stub:
        monkeypatch.setenv("http_proxy", stub.url.replace("http://", "http://me:p%40ss@").removesuffix("/v1"))
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        ChatServer(ServerConfig(url="http://models.test:8000/v1", model="m"), clock=FakeClock()).ask(PARTS)
        assert stub.requests[0].path == "http://models.test:8000/v1/chat/completions"
        assert stub.requests[0].headers["proxy-authorization"] == "Basic bWU6cEBzcw=="
        assert stub.requests[0].headers["host"] == "models.test:8000"
        client(stub).ask(PARTS)  # this machine: no proxy
        assert stub.requests[1].path == "/v1/chat/completions"
