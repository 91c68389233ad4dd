"""Messages to a coordinator that are wrong, that come again, or only in part: nothing changes. And
a coordinator that is killed or stopped while parties borrow."""

import http.client
import json
import random
import signal
import socket
import subprocess
import threading
import time

import pytest
from lend_test import TOKEN, Coordinator
from serving import BINARY, LONG_WAIT, PATIENCE, ROOT, Server

SECRET = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture(name="coordinator")
def fixture_coordinator(tmp_path):
    running = Coordinator(tmp_path)
    yield running
    running.stop()


def call(at, method, path, body=None, headers=SECRET, timeout=120):
    """Status and body of an answer of the coordinator. `body`: JSON, or a text as it is."""
    connection = http.client.HTTPConnection("127.0.0.1", at.port, timeout=timeout)
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


def test_answers_are_as_the_document_says(coordinator):
    jsonschema = pytest.importorskip("jsonschema")
    code, document = call(coordinator, "GET", "/openapi.json", headers={})
    assert code == 200

    def check(path, method, expected, body=None):
        answer = call(coordinator, method.upper(), path, body)
        assert answer[0] == expected, (path, body, answer)
        described = document["paths"][path][method]
        schema = described["responses"][str(expected)]["content"]["application/json"]["schema"]
        jsonschema.validate(answer[1], {**schema, "components": document["components"]})
        if body is not None:
            sent = described["requestBody"]["content"]["application/json"]["schema"]
            validator = jsonschema.Draft202012Validator(sent)
            assert validator.is_valid(body) == (expected != 400), (path, body)
        return answer[1]

    epochs = {}
    for name, more in (("l", {"kind": "pages", "socket": "here"}), ("b", {"kind": "pages"})):
        joined = check("/v1/join", "post", 200, {"party": name, "key": "join", "device": "other",
                                                 "earlier_joins": ["before"], **more})
        epochs[name] = joined["epoch"]
    wait_for_grants(coordinator, epochs)

    def post(verb, name, expected=200, **fields):
        return check(f"/v1/{verb}", "post", expected,
                     {"party": name, "epoch": epochs[name], **fields})

    post("lease", "l", key="1", lease="pages", bytes=100)
    assert post("allocate", "b", key="1", bytes=60)["loans"][0]["socket"] == "here"
    assert post("reclaim", "l", key="2", lease="pages", bytes=70)["leases"][0]["holders"]
    for verb in ("lease", "reclaim"):
        post(verb, "l", 400, key="3", lease="pages", bytes=0)
    post("allocate", "b", 400, key="3", bytes=-1)
    post("respond", "b", 400, key="3", lease="l/pages", bytes=2**50 + 1)
    post("respond", "b", 404, key="3", lease="l/other", bytes=1)
    post("allocate", "b", 409, key="1", bytes=61)
    check("/v1/status", "get", 200)
    post("respond", "b", key="4", lease="l/pages", bytes=30)
    post("free", "b", key="5", lease="l/pages", bytes=10)
    post("revoke", "l", key="6", lease="pages")
    post("unlease", "l", key="7", lease="pages")
    post("heartbeat", "l", want=0, spare=0)
    post("leave", "l")
    check("/v1/status", "get", 200)
    for path in ("/v1/status", "/metrics"):
        assert call(coordinator, "GET", path, headers={})[0] == 401
        assert "401" in document["paths"][path]["get"]["responses"]


def message(verb, body):
    """A request as its bytes."""
    text = json.dumps(body)
    return (f"POST /v1/{verb} HTTP/1.1\r\nHost: coordinator\r\n"
            f"Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(text)}\r\n\r\n{text}").encode()


def test_a_request_that_is_cut_off_changes_nothing(coordinator):
    epochs = {name: party(coordinator, name) for name in ("a", "b")}
    wait_for_grants(coordinator, epochs)
    call(coordinator, "POST", "/v1/lease",
         {"party": "a", "epoch": epochs["a"], "key": "l", "lease": "x", "bytes": 100})
    before = facts(coordinator)
    whole = message("allocate", {"party": "b", "epoch": epochs["b"], "key": "1", "bytes": 60})
    for end in ("close", "reset", "shutdown"):
        for size in (1, 20, whole.index(b"\r\n\r\n") + 4, len(whole) - 1):
            with socket.create_connection(("127.0.0.1", coordinator.port)) as link:
                link.sendall(whole[:size])
                if end == "reset":
                    link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                elif end == "shutdown":
                    link.shutdown(socket.SHUT_WR)
                    assert b'"granted"' not in link.recv(1 << 16)
    large = json.dumps({"party": "b", "key": "x" * (1 << 20)})
    assert call(coordinator, "POST", "/v1/allocate", large)[0] == 413
    for name, epoch in epochs.items():  # they stay alive
        call(coordinator, "POST", "/v1/heartbeat", {"party": name, "epoch": epoch})
    assert facts(coordinator) == before
    # The key of a message that did not arrive is not used up.
    code, answer = call(coordinator, "POST", "/v1/allocate",
                        {"party": "b", "epoch": epochs["b"], "key": "1", "bytes": 60})
    assert (code, answer["granted"]) == (200, 60)


class Borrower(threading.Thread):
    """A party that borrows and gives back at random, as fast as answers come. It keeps to the rules
    of docs/elastic-memory.md: it uses less before it says so, and nothing after half of an expiry
    without an answer. It cuts some of its messages off, and does not await some of the answers."""

    ALL = 1000  # bytes of the lease

    def __init__(self, at, name, lock):
        super().__init__(daemon=True)
        self.at, self.name, self.lock = at, name, lock
        self.random = random.Random(name)
        self.loans, self.used = {}, 0  # bytes by lease; `used` is read under the lock
        self.epoch, self.keys, self.joins = None, 0, []
        self.answered = time.monotonic()
        self.grants = self.refused = 0
        self.ends = threading.Event()
        self.error = None
        self.start()

    def use(self, loans):
        with self.lock:
            self.loans = dict(loans)
            self.used = sum(loans.values())

    def run(self):
        try:
            while not self.ends.is_set():
                self.step()
        except Exception as error:
            self.error = error
            raise

    def step(self):
        if time.monotonic() > self.answered + self.at.expiry / 2:
            self.use({})
            self.epoch = None
        verb, body = self.next()
        sent = time.monotonic()
        if self.random.random() < 0.05:
            text = message(verb, body)
            # Nothing may be given back without knowing it: the next answer would show it as held.
            whole = verb in ("join", "allocate") and self.random.random() < 0.5
            return self.send(text if whole else text[:self.random.randrange(1, len(text))])
        try:
            code, answer = call(self.at, "POST", f"/v1/{verb}", body, timeout=self.at.expiry / 2)
        except (OSError, http.client.HTTPException, ValueError):
            time.sleep(0.005)
            return
        if code == 200:
            self.answered = sent
            self.epoch = answer["epoch"]
            self.grants += answer["granted"] > 0
            self.use({loan["lease"]: loan["bytes"] for loan in answer["loans"]})
        elif answer["error"]["code"] == "unknown_party":
            self.epoch = None
        else:
            assert answer["error"]["code"] in ("unknown_lease", "bad_request"), answer
            self.refused += 1

    def send(self, text):
        """Closes the connection at once."""
        try:
            with socket.create_connection(("127.0.0.1", self.at.port), 5) as link:
                link.sendall(text)
        except OSError:
            pass

    def next(self):
        body = {"party": self.name, "key": f"{self.name}-{self.keys}"}
        self.keys += 1
        if self.epoch is None:
            body["device"] = "cpu"
            body["held"] = [{"lease": lease, "bytes": size} for lease, size in self.loans.items()]
            body["earlier_joins"] = self.joins[-16:]
            self.joins.append(body["key"])
            return "join", body
        body["epoch"] = self.epoch
        if self.loans and self.random.random() < 0.5:
            lease, size = self.random.choice(list(self.loans.items()))
            back = self.random.randint(1, size)
            self.use({**self.loans, lease: size - back} if back < size else
                     {name: left for name, left in self.loans.items() if name != lease})
            return self.random.choice(("free", "respond")), {**body, "lease": lease, "bytes": back}
        return "allocate", {**body, "bytes": self.random.randint(1, self.ALL)}


@pytest.mark.parametrize("fault", ["kill", "stop"])
def test_no_fault_of_the_coordinator_lends_memory_twice(tmp_path, fault):
    at = Coordinator(tmp_path, budget=Borrower.ALL, expiry=1)
    lock = threading.Lock()
    parties = [Borrower(at, f"party-{index}", lock) for index in range(6)]
    try:
        for turn in range(4):
            grants = sum(each.grants for each in parties)
            deadline = time.monotonic() + LONG_WAIT * PATIENCE
            while sum(each.grants for each in parties) < grants + 40:
                assert time.monotonic() < deadline, [each.error for each in parties]
                with lock:
                    used = [each.used for each in parties]
                assert sum(used) <= Borrower.ALL, used
                time.sleep(0.001)
            if fault == "kill":
                at.stop(signal.SIGKILL)
                at.start()
            else:
                at.process.send_signal(signal.SIGSTOP)
                time.sleep(1.5 if turn % 2 else 0.3)
                at.process.send_signal(signal.SIGCONT)
        for each in parties:
            each.ends.set()
            each.join(LONG_WAIT * PATIENCE)
        assert [each.error for each in parties] == [None] * len(parties)
        # Memory that they gave back without saying so is free after an expiry.
        deadline = time.monotonic() + LONG_WAIT * PATIENCE
        while (state := status(at))["parties"] or state["loans"]:
            assert time.monotonic() < deadline, state
            time.sleep(0.02)
        assert [lease["lent"] for lease in state["leases"]] == [0]
    finally:
        at.process.send_signal(signal.SIGCONT)
        at.stop()


def test_a_server_says_what_a_late_coordinator_refuses(coordinator, tmp_path):
    coordinator.stop()
    wrong = tmp_path / "wrong"
    wrong.write_text("f" * 32 + "\n", encoding="utf-8")
    wrong.chmod(0o600)
    options = coordinator.options()
    options[options.index("--lend-token-file") + 1] = str(wrong)
    with Server(*options) as server:
        server.await_stderr("does not lend (cannot connect")
        coordinator.start()
        server.await_stderr("does not lend (the header Authorization must be")


def test_a_coordinator_says_that_etcd_does_not_answer(tmp_path):
    token = tmp_path / "token"
    token.write_text(TOKEN + "\n", encoding="utf-8")
    token.chmod(0o600)
    command = [BINARY, "coordinator", "--port", "0", "--token-file", str(token)]
    with subprocess.Popen([*command, "--etcd", "http://127.0.0.1:1"], stderr=subprocess.PIPE,
                          text=True, cwd=ROOT) as coordinator:
        for line in coordinator.stderr:
            if "lends nothing until etcd answers: cannot connect to 127.0.0.1 port 1" in line:
                break
        else:
            raise AssertionError("it ended")
        coordinator.terminate()
    alone = subprocess.run([*command, "--etcd-prefix", "/x"], capture_output=True, text=True,
                           timeout=LONG_WAIT * PATIENCE, check=False)
    assert alone.returncode == 2 and "--etcd-prefix" in alone.stderr and "--etcd" in alone.stderr
