"""Messages to a coordinator that are wrong, or that come again: nothing changes."""

import http.client
import json

import pytest
from lend_test import TOKEN, Coordinator

SECRET = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(name="coordinator")
def fixture_coordinator(tmp_path):
    running = Coordinator(tmp_path)
    yield running
    running.stop()


def call(at, method, path, body=None, headers=SECRET):
    """Status and body of an answer of the coordinator. `body`: JSON, or a text as it is."""
    connection = http.client.HTTPConnection("127.0.0.1", at.port, timeout=120)
    text = body if body is None or isinstance(body, str) else json.dumps(body)
    try:
        connection.request(method, path, text, headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def status(at):
    code, body = call(at, "GET", "/v1/status")
    assert code == 200, body
    return body


def lent(at):
    return sum(loan["bytes"] for loan in status(at)["loans"])


def party(at, name, **fields):
    code, answer = call(at, "POST", "/v1/join",
                        {"party": name, "key": "join", "device": "other", **fields})
    assert code == 200, answer
    return answer["epoch"]


def facts(at):
    """The coordinator's state without the times in it."""
    state = status(at)
    for item in state["parties"]:
        item.pop("silent_for_ms", None)
    state.pop("no_grants_for_ms", None)
    return state


def test_messages_with_errors_change_nothing(coordinator):
    epoch = party(coordinator, "a")

    def send(verb, expected, code, headers=SECRET, **fields):
        body = {"party": "a", "epoch": epoch, **fields}
        answer = call(coordinator, "POST", f"/v1/{verb}", body, headers)
        assert answer[0] == expected, (verb, fields, answer)
        if code:
            assert answer[1]["error"]["code"] == code, (verb, fields, answer)
            assert answer[1]["error"]["message"]
        return answer[1]

    send("lease", 200, None, key="l", lease="x", bytes=100)
    before = facts(coordinator)
    for token in ({}, {"Authorization": "Bearer"}, {"Authorization": "Bearer " + TOKEN[:-1]},
                  {"Authorization": "Bearer " + TOKEN + "0"}, {"Authorization": TOKEN},
                  {"Authorization": "Basic " + TOKEN}):
        send("lease", 401, "bad_request", headers=token, key="t", lease="x", bytes=200)
        assert call(coordinator, "GET", "/v1/status", headers=token)[0] == 401
        assert call(coordinator, "GET", "/metrics", headers=token)[0] == 401
    for size in (-1, 0, 2**50 + 1, 2**63, -2**63, 2**64, 10**40, 1.5, 1e300, "1", None, True, [1]):
        send("lease", 400, "bad_request", key="s", lease="x", bytes=size)
        send("allocate", 400, "bad_request", key="s", bytes=size)
        if size != 0:
            send("heartbeat", 400, "bad_request", want=size, spare=0)
            send("heartbeat", 400, "bad_request", want=0, spare=size)
    for wrong in (0, epoch + 1, 2**62):
        send("unlease", 409, "stale_epoch", epoch=wrong, key="e", lease="x")
    send("heartbeat", 404, "unknown_party", party="nobody", want=0, spare=0)
    send("reclaim", 404, "unknown_lease", key="u", lease="y", bytes=1)
    send("free", 404, "unknown_lease", key="u", lease="a/y", bytes=1)
    send("respond", 404, "unknown_lease", key="u", lease="z/x", bytes=1)
    send("lease", 409, "key_reused", key="l", lease="x", bytes=101)
    for text in ("", "{", "[]", "null", "[" * 10_000, '{"party":"a","party":"b"}', "\x00"):
        answer = call(coordinator, "POST", "/v1/lease", text)
        assert answer[0] == 400, (text[:40], answer)
    assert facts(coordinator) == before


def wait_for_grants(coordinator, epochs):
    """Until the coordinator gives memory, which it does not at first; its parties stay alive."""
    waits = True
    while waits:
        for name, epoch in epochs.items():
            code, answer = call(coordinator, "POST", "/v1/heartbeat",
                                {"party": name, "epoch": epoch, "want": 0, "spare": 0})
            assert code == 200, answer
        waits = answer["no_grants_for_ms"] > 0


def test_replays_change_nothing(coordinator):
    epochs = {name: party(coordinator, name) for name in ("a", "b")}

    def send(verb, name, **fields):
        code, answer = call(coordinator, "POST", f"/v1/{verb}",
                            {"party": name, "epoch": epochs[name], **fields})
        assert code == 200, answer
        return answer

    wait_for_grants(coordinator, epochs)
    send("lease", "a", key="l", lease="x", bytes=100)
    granted = send("allocate", "b", key="1", bytes=60)
    assert granted["granted"] == 60
    assert send("allocate", "b", key="1", bytes=60)["granted"] == 60
    assert lent(coordinator) == 60
    assert send("free", "b", key="2", lease="a/x", bytes=20)["loans"][0]["bytes"] == 40
    for _ in range(3):
        assert send("free", "b", key="2", lease="a/x", bytes=20)["loans"][0]["bytes"] == 40
        assert send("lease", "a", key="l", lease="x", bytes=100)["leases"][0]["bytes"] == 100
        assert send("allocate", "b", key="1", bytes=60)["granted"] == 60
    assert lent(coordinator) == 40
    # A copy of the join is the same process; one with another key fences it.
    assert party(coordinator, "b") == epochs["b"]
    code, answer = call(coordinator, "POST", "/v1/join",
                        {"party": "b", "key": "later", "device": "other"})
    assert code == 200 and answer["epoch"] != epochs["b"]
    code, answer = call(coordinator, "POST", "/v1/allocate",
                        {"party": "b", "epoch": epochs["b"], "key": "1", "bytes": 60})
    assert (code, answer["error"]["code"]) == (409, "stale_epoch")


def test_pages_are_revoked_by_their_lender_only(coordinator):
    epochs = {"l": party(coordinator, "l", kind="pages", socket="here"),
              "b": party(coordinator, "b", kind="pages"), "x": party(coordinator, "x")}

    def send(verb, name, expected=200, **fields):
        code, answer = call(coordinator, "POST", f"/v1/{verb}",
                            {"party": name, "epoch": epochs[name], **fields})
        assert code == expected, (verb, fields, answer)
        return answer

    wait_for_grants(coordinator, epochs)
    send("lease", "l", key="1", lease="pages", bytes=100)
    assert send("allocate", "x", key="1", bytes=60)["granted"] == 0  # the other kind
    loan = send("allocate", "b", key="1", bytes=60)["loans"][0]
    assert loan == {"lease": "l/pages", "lender": "l", "bytes": 60, "keep": 60, "socket": "here"}
    kinds = {item["party"]: (item["device"], item["kind"])
             for item in status(coordinator)["parties"]}
    assert kinds == {"l": ("other", "pages"), "b": ("other", "pages"), "x": ("other", "budget")}
    lease = send("reclaim", "l", key="2", lease="pages", bytes=70)["leases"][0]
    assert lease["holders"] == [{"party": "b", "bytes": 60, "keep": 30}]
    before = facts(coordinator)
    for name, wrong, expected in (("b", "pages", 404), ("x", "pages", 404), ("l", "other", 404),
                                  ("l", "", 404), ("l", "l/pages", 404)):
        send("revoke", name, expected, key="3", lease=wrong)
    send("revoke", "l", 400, key="3", lease="pages", bytes=1)
    send("revoke", "l", 400, lease="pages")
    for wrong in ({"kind": "page"}, {"kind": 1}, {"kind": None}, {"socket": "s"},
                  {"kind": "pages", "socket": "a/b"}, {"kind": "pages", "socket": 5},
                  {"kind": "pages", "socket": "s" * 65}):
        code, answer = call(coordinator, "POST", "/v1/join",
                            {"party": "y", "key": "j", "device": "other", **wrong})
        assert (code, answer["error"]["code"]) == (400, "bad_request"), (wrong, answer)
    assert facts(coordinator) == before
    for _ in range(3):  # repeats say what the first one did
        answer = send("revoke", "l", key="4", lease="pages")
        assert answer["returned"] == 30
        assert answer["leases"][0]["holders"] == [{"party": "b", "bytes": 30, "keep": 30}]
    assert send("heartbeat", "b", want=0, spare=0)["loans"][0]["bytes"] == 30
    send("lease", "x", key="5", lease="y", bytes=10)
    send("revoke", "x", 400, key="6", lease="y")  # its loans go back by consent
