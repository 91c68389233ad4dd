"""Coordinators whose state is in a real etcd (docs/elastic-memory.md#state-in-etcd).

Leases of 2 seconds end on a loaded machine, so ctest does not run it: make campaign NAME=etcd.
"""

import concurrent.futures
import json
import re
import shutil
import signal
import subprocess
import time
import urllib.error
import urllib.request

import pytest
from etcd_process import WAIT, Etcd, await_that
from jumping_clock import JumpingClock, needs_faketime
from serving import BINARY, ROOT, free_port
from wire import Wire

pytestmark = pytest.mark.skipif(shutil.which("etcd") is None,
                                reason="SKIPPED: no etcd; run: tools/install.sh campaigns")
TOKEN = "0123456789abcdef0123456789abcdef"
BUDGET = 1000


class Coordinator:
    def __init__(self, folder, etcd_url, prefix=()):
        token = folder / "token"
        token.write_text(TOKEN + "\n")
        token.chmod(0o600)
        log = folder / f"coordinator-{time.monotonic_ns()}"
        with log.open("w") as stderr:
            self.process = subprocess.Popen(
                [*prefix, BINARY, "coordinator", "--port", "0", "--token-file", str(token),
                 "--budget", f"cpu={BUDGET}", "--expiry", "4", "--etcd", etcd_url],
                stderr=stderr, cwd=ROOT)
        line = re.compile(r"listening on http://127.0.0.1:(\d+);")
        await_that(lambda: line.search(log.read_text()))
        self.port = int(line.search(log.read_text()).group(1))

    def post(self, verb, **body):
        return self.call(f"/v1/{verb}", json.dumps(body).encode())

    def call(self, path, body=None):
        """Status and body of an answer."""
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data=body,
                                         headers={"Authorization": f"Bearer {TOKEN}"})
        try:
            with urllib.request.urlopen(request, timeout=WAIT) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.load(error)

    def leads(self):
        return self.call("/v1/status")[0] == 200

    def grants(self):
        status, answer = self.call("/v1/status")
        return status == 200 and answer["no_grants_for_ms"] == 0

    def lent(self):
        status, answer = self.call("/v1/status")
        assert status == 200, answer
        return answer["leases"][0]["lent"]

    def stop(self, by=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(by)
        self.process.wait(timeout=WAIT)


@pytest.fixture
def etcd(tmp_path):
    running = Etcd(tmp_path / "etcd")
    yield running
    running.stop(signal.SIGKILL)


@pytest.fixture
def start(tmp_path, etcd):
    started = []

    def begin(url=etcd.url, prefix=()):
        started.append(Coordinator(tmp_path, url, prefix))
        return started[-1]
    yield begin
    for coordinator in started:
        coordinator.stop()


class Party:
    """A party that keeps its loans by heartbeats for as long as a test waits."""

    def __init__(self, coordinator, name):
        self.at, self.name, self.keys = coordinator, name, 0
        self.loan = 0
        status, answer = self.post("join", device="cpu")
        assert status == 200, answer
        self.epoch = answer["epoch"]

    def post(self, verb, **body):
        self.keys += 1
        fields = {"party": self.name, **body}
        if verb != "heartbeat":
            fields["key"] = f"{self.name}.{self.keys}"
        if verb != "join":
            fields["epoch"] = self.epoch
        return self.at.post(verb, **fields)

    def beat(self):
        status, answer = self.post("heartbeat", want=0, spare=0)
        return status == 200 and sum(loan["bytes"] for loan in answer["loans"]) == self.loan

    def borrow(self, amount):
        status, answer = self.post("allocate", bytes=amount)
        assert status == 200, answer
        self.loan += answer["granted"]
        return answer["granted"]


def first_loan(coordinator):
    """Joins and borrows; beats through the first expiry, in which nothing is granted."""
    await_that(coordinator.leads)
    party = Party(coordinator, "a")
    await_that(lambda: party.beat() and coordinator.grants())
    assert party.borrow(600) == 600
    return party


def test_another_coordinator_goes_on_where_a_killed_one_was(start):
    first = start()
    party = first_loan(first)
    second = start()
    status, answer = second.post("heartbeat", party="a", epoch=party.epoch, want=0, spare=0)
    assert (status, answer["error"]["code"]) == (503, "not_leading")
    first.stop(signal.SIGKILL)
    await_that(second.leads)
    # The same process, the same loan, the same epoch; grants are made at once.
    party.at = second
    assert party.beat()
    assert second.grants()
    assert second.lent() == 600
    assert Party(second, "b").borrow(700) == 400
    # One that ends in order gives the lead back.
    third = start()
    second.stop()
    await_that(third.leads)
    party.at = third
    assert party.beat()
    assert third.lent() == BUDGET


def test_a_repeat_after_a_kill_changes_nothing(start):
    first = start()
    party = first_loan(first)
    body = {"party": "a", "epoch": party.epoch, "key": "same", "lease": "budget/cpu", "bytes": 100}
    assert first.post("respond", **body)[0] == 200
    first.stop(signal.SIGKILL)
    second = start()
    await_that(second.leads)
    assert second.post("respond", **body)[0] == 200
    assert second.lent() == 500


def test_nothing_is_answered_that_etcd_does_not_have(etcd, start):
    first = start()
    party = first_loan(first)
    etcd.process.send_signal(signal.SIGSTOP)
    # The answer waits until the lease ends, and says then that this coordinator does not lead.
    status, answer = party.post("allocate", bytes=100)
    assert (status, answer["error"]["code"]) == (503, "not_leading"), answer
    assert party.post("heartbeat", want=0, spare=0)[0] == 503
    etcd.process.send_signal(signal.SIGCONT)
    await_that(first.leads)
    party.loan = first.lent()
    assert party.loan in (600, 700)  # the request may have arrived, or not
    assert party.beat()


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGKILL])
def test_a_restart_of_etcd_loses_nothing(etcd, start, by):
    first = start()
    party = first_loan(first)
    etcd.stop(by)
    etcd.start()
    await_that(lambda: first.leads() and first.grants())
    assert party.beat()
    assert first.lent() == 600


def test_a_leader_leads_on_when_a_member_of_etcd_dies(etcd, start):
    """The first member is dead from the start, the second one dies meanwhile. A second coordinator
    waits."""
    wire = Wire(etcd.port)
    first = start(f"http://127.0.0.1:{free_port()},{wire.url},{etcd.url}")
    party = first_loan(first)
    epoch = party.epoch
    second = start()
    wire.cut(True)
    for _ in range(20):
        assert party.borrow(1) == 1
        time.sleep(0.2)
    assert first.leads() and not second.leads()
    assert party.beat() and party.epoch == epoch
    first.stop()  # which gives leadership back through the member that lives
    await_that(second.leads)
    party.at = second
    assert party.beat()
    wire.end()


def test_a_leader_that_is_cut_off_stops_before_another_leads(etcd, start):
    wire = Wire(etcd.port)
    first = start(wire.url)
    party = first_loan(first)
    second = start()
    wire.cut(True)
    both = []

    def second_leads():
        leads = second.leads()
        both.append(leads and first.leads())
        return leads
    await_that(second_leads)
    assert not any(both)
    party.at = second
    assert party.beat()
    wire.cut(False)
    assert not first.leads()
    assert second.leads()
    wire.end()


@needs_faketime
def test_a_leader_whose_clock_jumps_leads_on(start, tmp_path):
    clock = JumpingClock(tmp_path)
    first = start(prefix=clock.prefix)
    assert clock.is_used_by(first.process)
    party = first_loan(first)
    second = start()
    for offset in ("+1d", "-1d", "+400d", "+0"):
        clock.jump(offset)
        end = time.monotonic() + 3  # a second until it is seen, and a lease of two
        while time.monotonic() < end:
            assert party.beat()
            assert not second.leads()
            time.sleep(0.1)
    assert first.lent() == 600


def test_a_killed_leader_with_many_requests_in_flight(start):
    first = start()
    first_loan(first)
    answered = {}  # by party: what it was granted; None: that it does not know

    def work(index):
        try:
            party = Party(first, f"p{index}")
            answered[party.name] = None
            answered[party.name] = party.borrow(10)
            party.post("free", lease="budget/cpu", bytes=3)
        except (OSError, AssertionError, ValueError):
            pass  # its coordinator has died
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for index in range(200):
            pool.submit(work, index)
        await_that(lambda: len(answered) > 50)
        first.stop(signal.SIGKILL)
    second = start()
    await_that(second.leads)
    status = second.call("/v1/status")[1]
    held = {party["party"]: party["held"] for party in status["parties"]}
    assert set(answered) <= set(held)  # each join that was answered
    for name, granted in answered.items():
        # A party gets a part of the last bytes. It has less only by what it gave back.
        most = 10 if granted is None else granted
        least = 0 if granted is None else max(granted - 3, 0)
        assert least <= held[name] <= most, (name, granted)
    assert second.lent() <= BUDGET
