"""The Python client of examples/lending, against a real coordinator."""

import os
import signal
import subprocess
import sys
import time

import pytest
from lend_fault_test import call, status
from lend_test import BUDGET, LEAST, MIB, TOKEN, Burst, await_metric, coordinator  # noqa: F401
from serving import PATIENCE, ROOT, Server

FOLDER = os.path.join(ROOT, "examples", "lending")
sys.path.insert(0, FOLDER)
from sluice_lend import Fenced, Lender, Refused  # noqa: E402

SPARE = 16 * MIB
WAIT = 60 * PATIENCE


def lease_of(at, name):
    return next((item for item in status(at)["leases"] if item["lease"] == name), None)


def await_that(test):
    deadline = time.monotonic() + WAIT
    while not (value := test()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return value


def lender(at, party="image"):
    return Lender(f"http://127.0.0.1:{at.port}", TOKEN, party)


def test_memory_is_offered_and_taken_back(coordinator):  # noqa: F811
    with lender(coordinator) as image:
        assert image.offer(SPARE, timeout=WAIT)
        assert lease_of(coordinator, "image/spare")["bytes"] == SPARE
        with pytest.raises(ValueError, match="take_back"):
            image.offer(SPARE - 1)
        assert image.take_back(timeout=WAIT)
        assert lease_of(coordinator, "image/spare") is None
        assert image.offer(SPARE, timeout=WAIT)
    assert not status(coordinator)["parties"]


def test_a_restarted_coordinator_is_told_again(coordinator):  # noqa: F811
    with lender(coordinator) as image:
        assert image.offer(SPARE, timeout=WAIT)
        coordinator.stop(signal.SIGKILL)
        coordinator.start()
        lease = await_that(lambda: lease_of(coordinator, "image/spare"))
        assert lease["bytes"] == SPARE
        # It may be used only when every borrower from before has had its time to come.
        assert image.take_back(timeout=WAIT)
        assert status(coordinator)["no_grants_for_ms"] == 0


def test_a_late_copy_of_its_own_join_does_not_fence_it(coordinator):  # noqa: F811
    joins = []

    class Recorded(Lender):
        def _send(self, verb, fields):
            if verb == "join":
                joins.append(dict(fields))
            return super()._send(verb, fields)
    with Recorded(f"http://127.0.0.1:{coordinator.port}", TOKEN, "image") as image:
        assert image.offer(SPARE, timeout=WAIT)
        coordinator.stop(signal.SIGKILL)
        coordinator.start()
        await_that(lambda: len(joins) > 1 and lease_of(coordinator, "image/spare"))
        code, answer = call(coordinator, "POST", "/v1/join", joins[0])
        assert (code, answer["error"]["code"]) == (409, "stale_epoch"), answer
        assert image.take_back(timeout=WAIT)


def test_a_later_process_of_the_same_name_fences_the_one_before(coordinator):  # noqa: F811
    with lender(coordinator) as first:
        assert first.offer(SPARE, timeout=WAIT)
        with lender(coordinator) as second:
            assert second.offer(SPARE, timeout=WAIT)
            await_that(lambda: isinstance(first.error, Fenced))
            with pytest.raises(Fenced):
                first.take_back(timeout=WAIT)


@pytest.mark.parametrize(("token", "party", "message"), [
    ("f" * 32, "image", "token"), (TOKEN, "an image", "party must be")])
def test_a_wrong_token_or_name_is_an_error(coordinator, token, party, message):  # noqa: F811
    with Lender(f"http://127.0.0.1:{coordinator.port}", token, party) as image:
        with pytest.raises(Refused, match=message):
            image.offer(SPARE, timeout=WAIT)
    assert not status(coordinator)["parties"]


def test_the_image_server_says_that_its_token_is_wrong(coordinator, tmp_path):  # noqa: F811
    wrong = tmp_path / "token"
    wrong.write_text("f" * 32 + "\n", encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, os.path.join(FOLDER, "image_server.py"), "--url",
         f"http://127.0.0.1:{coordinator.port}", "--token-file", str(wrong)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=WAIT, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith("image_server.py: ") and "token" in ended.stderr


def test_the_image_server_lends_to_a_server_and_gets_it_back(coordinator):  # noqa: F811
    options = coordinator.options()
    options[options.index("--kv-cache-memory") + 1] = f"{LEAST}-{LEAST + BUDGET + SPARE}"
    with Server(*options) as server:
        await_metric(server, "kv_lending_joined", lambda value: value == 1)
        image = subprocess.Popen(
            [sys.executable, os.path.join(FOLDER, "image_server.py"), "--url",
             f"http://127.0.0.1:{coordinator.port}", "--token-file", str(coordinator.token),
             "--memory-mib", "16", "--idle", "0.1"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        with image:
            assert image.stdout.readline() == "ready\n"
            assert image.stdout.readline() == "lent\n"
            burst = Burst(server, 120, 60, lasting=True)
            await_that(lambda: (lease_of(coordinator, "image/spare") or {}).get("lent"))
            image.stdin.write("draw 0\n")
            image.stdin.flush()
            assert image.stdout.readline() == "drawn\n"
            burst.join()
            image.stdin.close()
            assert image.wait(timeout=WAIT) == 0
        assert server.metrics()["kv_limit_bytes"] >= LEAST
