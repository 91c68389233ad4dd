"""Several gateways with a real etcd (docs/gateway-machines.md#several-gateways).

Quotas, the functions file, names, deaths of gateways and of etcd.

Leases end on a loaded machine, so ctest runs only tests that pass then, too (CMakeLists.txt). All:
make campaign NAME=etcd.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import time

import pytest
from agent_process import certificate_options, make_authority, make_certificate
from etcd_process import WAIT, Etcd, await_that
from gateway_test import KEYS, NO_GOALS, NOT_IDLE_SOON, ask, gateway, write_config
from serving import BINARY, free_port
from wire import Wire

pytestmark = pytest.mark.skipif(shutil.which("etcd") is None,
                                reason="SKIPPED: no etcd; run: tools/install.sh campaigns")
METRIC = "sluice:gateway_"
FILES = certificate_options("x", "x", "x", "--etcd-ssl")


def quota(line):
    return "requests_per_minute = 600\n\n[[backbone]]", f"{line}\n\n[[backbone]]"


@pytest.fixture
def etcd(tmp_path):
    running = Etcd(tmp_path / "etcd")
    yield running
    running.stop(signal.SIGKILL)


@pytest.fixture
def start(tmp_path, etcd):
    """Starts gateways, each with a file of its own."""
    with contextlib.ExitStack() as stack:
        def begin(name, *changes, url=etcd.url, options=(), **more):
            folder = tmp_path / f"{name}-{time.monotonic_ns()}"
            folder.mkdir()
            config = write_config(folder, NOT_IDLE_SOON, *NO_GOALS, *changes)
            return stack.enter_context(gateway(config, "--etcd", url, "--name", name, *options,
                                               **more))
        yield begin


def metric(server, name):
    for line in server.get("/metrics").text.splitlines():
        if line.startswith(METRIC + name + " "):
            return float(line.split()[1])
    raise AssertionError(name)


def await_group(size, *servers):
    await_that(lambda: all(metric(one, "group_size") == size for one in servers))


def refused_start(folder, name, url, *options):
    """Returns the error output of a gateway that cannot start."""
    folder = folder / f"refused-{time.monotonic_ns()}"
    folder.mkdir()
    done = subprocess.run(
        [BINARY, "gateway", "--config", str(write_config(folder)), "--port", "0", "--usage",
         str(folder / "usage.db"), "--etcd", url, "--name", name, *options],
        capture_output=True, text=True, check=False, timeout=WAIT)
    assert done.returncode != 0, done
    return done.stderr


def publish(etcd, path, *options):
    return subprocess.run([BINARY, "functions", "publish", str(path), "--etcd", etcd.url, *options],
                          capture_output=True, text=True, check=False)


def answered(server, tenant="b", model="demo", calls=1):
    return sum(ask(server, tenant, model, max_tokens=1).status == 200 for _ in range(calls))


def test_a_quota_counts_at_all_gateways(start):
    first = start("one", quota("requests_per_minute = 60"))
    second = start("two", quota("requests_per_minute = 60"))
    await_group(2, first, second)
    began = time.monotonic()
    assert answered(first, calls=50) == 50
    # The second one learns of those calls within two rounds and two answers.
    await_that(lambda: answered(second) == 0)
    refused = ask(second, "b", "demo", max_tokens=1)
    assert refused.status == 429 and "60 requests a minute" in refused.error()["message"], refused
    assert answered(second, "a") == 1, "another tenant has its own quota"
    # In all: a minute's amount, what has refilled since, and what the delay lets through.
    used = sum(int(row.split(",")[3]) for server in (first, second)
               for row in server.request("GET", "/v1/usage?format=csv", headers={
                   "Authorization": "Bearer " + KEYS["b"]}).text.splitlines()[1:])
    assert used <= 60 + (time.monotonic() - began) + 10, used


def usage_of(server, tenant, query=""):
    return server.request("GET", "/v1/usage" + query,
                          headers={"Authorization": "Bearer " + KEYS[tenant]})


def test_money_counts_at_all_gateways(tmp_path, start):
    """Ten calls at 0.6 each, at three gateways, of which one is killed."""
    prices = tmp_path / "prices.toml"
    prices.write_text('currency = "EUR"\nrequest = 1\n[[tier]]\nprice = 0.6\n')

    def one(name):
        return start(name, ("money_per_day = 1.50", "money_per_day = 6.0"),
                     options=("--prices", str(prices)))

    first, second, third = servers = [one(name) for name in ("one", "two", "three")]
    await_group(3, *servers)
    assert answered(first, "a", calls=4) == answered(second, "a", calls=4) == 4

    def is_refused(server):
        # Use is settled each second, and known elsewhere two rounds later.
        time.sleep(1)
        return answered(server, "a") == 0

    await_that(lambda: is_refused(third))
    for server in servers:
        await_that(lambda server=server: is_refused(server))
        refused = ask(server, "a", "demo", max_tokens=1)
        assert refused.status == 429 and refused.error()["code"] == "insufficient_quota", refused
        assert answered(server, "b") == 1
    await_that(lambda: len(usage_of(first, "a").json()["gateways"]) == 3)
    assert 10 <= usage_of(first, "a").json()["total"]["requests"] <= 14
    # The use of a dead gateway still counts, also at one that comes later.
    second.expected_status = -signal.SIGKILL
    second.process.kill()
    await_group(2, first, third)
    assert answered(third, "a") == 0
    fourth = one("four")
    await_that(lambda: is_refused(fourth))


def counts(rows):
    """Requests, tokens of prompts and of answers, by function."""
    return {row["function"]: (row["requests"], row["prompt_tokens"], row["output_tokens"])
            for row in rows}


class Calls:
    """Calls of tenant a, and what their answers say was used."""

    def __init__(self):
        self.used = {}

    def make(self, server, model, calls):
        for _ in range(calls):
            answer = ask(server, "a", model, max_tokens=2)
            assert answer.status == 200, answer
            usage = answer.json()["usage"]
            name = "ft:demo:a:poet" if model == "poet" else model
            before = self.used.get(name, (0, 0, 0))
            more = (1, usage["prompt_tokens"], usage["completion_tokens"])
            self.used[name] = tuple(map(sum, zip(before, more, strict=True)))

    def are_reported_by(self, *servers):
        return all(counts(usage_of(server, "a").json()["data"]) == self.used
                   for server in servers)


def test_each_gateway_reports_the_usage_of_all(tmp_path, etcd, start):
    wire = Wire(etcd.port)
    first = start("one", url=wire.url)
    second = start("two")
    third = start("three", usage=tmp_path / "three.db")
    await_group(3, first, second, third)
    calls = Calls()
    calls.make(first, "poet", 3)
    calls.make(second, "poet", 2)
    calls.make(third, "poet", 4)
    calls.make(third, "demo", 1)
    await_that(lambda: calls.are_reported_by(first, second, third))
    # Names are news of the last round, rows are read for the answer.
    await_that(lambda: usage_of(first, "a").json()["gateways"] == ["one", "three", "two"])
    report = usage_of(first, "a").json()
    assert report["other_gateways"] == []
    assert set(report["gateway_ages_s"]) == {"two", "three"}
    assert all(age <= WAIT for age in report["gateway_ages_s"].values())
    # A later answer never has less, and a killed gateway's sums stay.
    third.expected_status = -signal.SIGKILL
    third.process.kill()
    await_group(2, first, second)
    calls.make(second, "poet", 1)
    assert calls.are_reported_by(second), "its own rows are fresh"
    await_that(lambda: calls.are_reported_by(first, second))
    # The name is taken by one with a new file: what the old file had still counts.
    fresh = start("three")
    calls.make(fresh, "poet", 1)
    await_that(lambda: calls.are_reported_by(first, second, fresh))
    fresh.terminate()
    assert fresh.wait() == 0
    # One with the old file counts nothing twice.
    again = start("three", usage=tmp_path / "three.db")
    calls.make(again, "poet", 2)
    await_that(lambda: calls.are_reported_by(first, second, again))
    # The sums of a gateway that ends are there at once.
    calls.make(again, "poet", 1)
    again.terminate()
    assert again.wait() == 0
    assert calls.are_reported_by(second)
    # Without etcd, a gateway has its own rows and names the others.
    wire.cut(True)
    own = usage_of(first, "a")
    assert counts(own.json()["data"])["ft:demo:a:poet"][0] == 3
    assert own.json()["gateways"] == ["one"]
    assert own.json()["other_gateways"] == ["three", "two"]
    assert usage_of(first, "a", "?format=csv").headers["sluice-other-gateways"] == "three, two"
    assert calls.are_reported_by(second)
    wire.cut(False)
    await_that(lambda: calls.are_reported_by(first))
    ages = usage_of(first, "a", "?format=csv").headers["sluice-gateway-ages"]
    assert ages.startswith("three=") and ", two=" in ages, ages
    wire.end()


def test_etcd_by_https(tmp_path, monkeypatch):
    """OpenSSL's usual variable names the authority; a foreign one is refused by name."""
    certificates = tmp_path / "certificates"
    certificates.mkdir()
    for name in ("ours", "theirs"):
        make_authority(certificates, name)
    make_certificate(certificates, "etcd", "ours")
    running = Etcd(tmp_path / "etcd", certificates)
    try:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificates / "theirs.pem"))
        assert "certificate" in refused_start(tmp_path, "one", running.url)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificates / "ours.pem"))
        with contextlib.ExitStack() as stack:
            servers = []
            for name in ("one", "two"):
                folder = tmp_path / name
                folder.mkdir()
                config = write_config(folder, NOT_IDLE_SOON, *NO_GOALS)
                servers.append(stack.enter_context(
                    gateway(config, "--etcd", running.url, "--name", name)))
            await_group(2, *servers)
            folder = tmp_path / "new"
            folder.mkdir()
            changed = write_config(folder, NOT_IDLE_SOON, *NO_GOALS,
                                   ('name = "pirate"', 'name = "corsair"'))
            assert publish(running, changed).returncode == 0
            for server in servers:
                await_that(lambda server=server: answered(server, model="corsair"))
    finally:
        running.stop(signal.SIGKILL)


def test_etcd_that_asks_for_certificates(tmp_path):
    certificates = tmp_path / "certificates"
    certificates.mkdir()
    for name in ("ours", "theirs"):
        make_authority(certificates, name)
    for name, authority in (("etcd", "ours"), ("gateway", "ours"), ("foreign", "theirs")):
        make_certificate(certificates, name, authority)
    running = Etcd(tmp_path / "etcd", certificates, asks=True)

    def files(name, authority="ours"):
        return certificate_options(certificates, name, authority, "--etcd-ssl")

    try:
        assert "certificate" in refused_start(tmp_path, "none", running.url)
        assert "certificate" in refused_start(tmp_path, "foreign", running.url, *files("foreign"))
        assert "certificate" in refused_start(tmp_path, "other", running.url,
                                              *files("gateway", "theirs"))
        folder = tmp_path / "one"
        folder.mkdir()
        with gateway(write_config(folder, NOT_IDLE_SOON, *NO_GOALS), "--etcd", running.url,
                     "--name", "one", *files("gateway")) as server:
            await_group(1, server)
            folder = tmp_path / "new"
            folder.mkdir()
            changed = write_config(folder, NOT_IDLE_SOON, *NO_GOALS,
                                   ('name = "pirate"', 'name = "corsair"'))
            assert publish(running, changed).returncode != 0
            assert publish(running, changed, *files("gateway")).returncode == 0
            await_that(lambda: answered(server, model="corsair"))
    finally:
        running.stop(signal.SIGKILL)


def test_all_gateways_follow_the_published_file(tmp_path, etcd, start):
    first = start("one")
    # A gateway that comes later takes the group's file, whatever lies beside it.
    second = start("two", ('name = "pirate"', 'name = "corsair"'))
    assert answered(second, model="pirate") == 1
    assert answered(second, model="corsair") == 0
    folder = tmp_path / "new"
    folder.mkdir()
    renamed = ('name = "pirate"', 'name = "corsair"')
    changed = write_config(folder, NOT_IDLE_SOON, *NO_GOALS, renamed)
    done = publish(etcd, changed)
    assert done.returncode == 0 and "published:" in done.stdout, done
    await_that(lambda: answered(first, model="corsair") and answered(second, model="corsair"))
    assert answered(first, model="pirate") == 0
    # A bad file is not published; one that gateways cannot follow changes nothing there.
    text = changed.read_text()
    changed.write_text(text.replace('tenant = "b"', 'tenant = "nobody"'))
    bad = publish(etcd, changed)
    assert bad.returncode != 0 and "functions.toml" in bad.stderr, bad
    changed.write_text(text.replace("demo-adapters", "demo-adapters/../demo-adapters")
                       .replace('name = "demo"', 'name = "other"')
                       .replace('backbone = "demo"', 'backbone = "other"')
                       .replace('"demo"', '"other"'))
    assert publish(etcd, changed).returncode == 0
    for one in (first, second):
        await_that(lambda one=one: "the backbones have changed" in one.stderr())
        assert answered(one, model="corsair") == 1
    # SIGHUP publishes nothing: the group's file counts.
    first.process.send_signal(signal.SIGHUP)
    await_that(lambda: first.stderr().count("the backbones have changed") > 1)


def test_a_killed_gateway_leaves_the_others_and_its_name(etcd, start):
    first = start("one", quota("concurrency = 4"))
    second = start("two", quota("concurrency = 4"))
    await_group(2, first, second)
    first.expected_status = -signal.SIGKILL
    first.process.kill()
    assert answered(second) == 1
    await_group(1, second)
    # Its name is free when its lease is over, and the wait is said.
    third = start("one")
    await_group(2, second, third)
    assert answered(third) == 1


def test_a_name_belongs_to_one_process(tmp_path, etcd, start):
    first = start("one")
    assert "another gateway with the name 'one' lives" in refused_start(tmp_path, "one", etcd.url)
    # Stopped for longer than its lease: another process takes the name, and the first one ends.
    first.process.send_signal(signal.SIGSTOP)
    second = start("one")
    first.expected_status = 1
    first.process.send_signal(signal.SIGCONT)
    assert first.process.wait(WAIT) == 1
    assert "has taken this gateway's name" in first.stderr()
    assert answered(second) == 1


def test_a_lost_etcd_leaves_parts_of_the_quotas(etcd, start):
    line = quota("requests_per_minute = 40")
    wire = Wire(etcd.port)
    first = start("one", line, url=wire.url)
    second = start("two", line)
    await_group(2, first, second)
    wire.cut(True)
    await_that(lambda: metric(first, "etcd_lost") == 1)
    assert "etcd does not answer" in first.stderr()
    assert metric(second, "etcd_lost") == 0
    # Half of the quota, and what refills meanwhile.
    began = time.monotonic()
    got = answered(first, calls=40)
    assert 20 <= got <= 21 + (time.monotonic() - began) / 3, got
    await_group(1, second)
    wire.cut(False)
    await_that(lambda: metric(first, "etcd_lost") == 0)
    await_group(2, first, second)
    assert first.process.poll() is None
    # The second one learns what the first one has answered meanwhile.
    await_that(lambda: answered(second) == 0)
    wire.end()


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGKILL])
def test_gateways_go_on_through_a_restart_of_etcd(etcd, start, by):
    first = start("one")
    second = start("two")
    await_group(2, first, second)
    etcd.stop(by)
    await_that(lambda: metric(first, "etcd_lost") == 1 and metric(second, "etcd_lost") == 1)
    assert answered(first) == answered(second) == 1
    etcd.start()
    await_that(lambda: metric(first, "etcd_lost") == 0 and metric(second, "etcd_lost") == 0)
    await_group(2, first, second)
    assert first.process.poll() is None and second.process.poll() is None


def nobody():
    return f"http://127.0.0.1:{free_port()}"


def test_a_dead_first_member_of_etcd(tmp_path, etcd, start):
    """The option may be repeated or have commas; calls before and during the run go on."""
    with_comma = f"{nobody()},{etcd.url}"
    first = start("one", url=with_comma)
    second = start("two", url=nobody(), options=("--etcd", etcd.url))
    await_group(2, first, second)
    for server in (first, second):
        said = server.stderr()
        assert f"trying the member at 127.0.0.1 port {etcd.port}" in said, said
        assert f"the member at 127.0.0.1 port {etcd.port} answers" in said, said
        assert said.count("trying the member at") == 1, said
    folder = tmp_path / "new"
    folder.mkdir()
    renamed = ('name = "pirate"', 'name = "corsair"')
    changed = write_config(folder, NOT_IDLE_SOON, *NO_GOALS, renamed)
    done = subprocess.run([BINARY, "functions", "publish", str(changed), "--etcd", with_comma],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "trying the member at" in done.stderr, done
    for server in (first, second):
        await_that(lambda server=server: answered(server, model="corsair"))


def test_a_member_of_etcd_dies_meanwhile(etcd, start):
    """Each member is a wire to the same etcd. The name's lease goes on, and so does the usage."""
    wires = [Wire(etcd.port), Wire(etcd.port)]
    first = start("one", url=",".join(wire.url for wire in wires))
    second = start("two")
    await_group(2, first, second)
    for dead, alive in (wires, reversed(wires)):
        port = alive.at.rpartition(":")[2]
        alive.cut(False)
        dead.cut(True)
        await_that(lambda port=port: f"the member at 127.0.0.1 port {port} answers"
                   in first.stderr())
        end = time.monotonic() + 6  # a lease has 5 s
        while time.monotonic() < end:
            assert metric(first, "etcd_lost") == 0
            assert metric(second, "group_size") == 2
            time.sleep(0.2)
    assert answered(first) == 1
    await_that(lambda: usage_of(second, "b").json()["total"]["requests"] == 1)
    for wire in wires:
        wire.cut(True)
    await_that(lambda: metric(first, "etcd_lost") == 1)
    wires[1].cut(False)
    await_that(lambda: metric(first, "etcd_lost") == 0)
    for wire in wires:
        wire.end()


def test_a_gateway_does_not_start_without_etcd(tmp_path):
    said = refused_start(tmp_path, "one", f"http://127.0.0.1:{free_port()}")
    assert "trying again" in said and "--etcd: " in said, said


def test_sigterm_frees_the_name(start):
    first = start("one")
    first.process.send_signal(signal.SIGTERM)
    assert first.process.wait(WAIT) == 0
    assert "waiting for the end of its lease" not in start("one").stderr()


def test_options_are_checked(tmp_path):
    config = write_config(tmp_path)
    for options, text in ((("--name", "x"), "--etcd"),
                          (("--etcd", "http://127.0.0.1:1", "--name", "a/b"), "--name"),
                          (("--etcd", "http://127.0.0.1:1,127.0.0.1:2"), "'127.0.0.1:2' is not an "
                           "address of etcd"),
                          (("--etcd", "http://127.0.0.1:x"), "--etcd: 'http://127.0.0.1:x': 'x' is "
                           "not a port"),
                          (("--etcd", "https://127.0.0.1:1", "--etcd-ssl-keyfile", "x"),
                           "need each other"),
                          (("--etcd", "http://127.0.0.1:1", *FILES), "got 'http://127.0.0.1:1'"),
                          (FILES, "needs --etcd https://HOST:PORT, got none"),
                          (("--etcd", "http://127.0.0.1:1", "--etcd-prefix", "/x/"),
                           "--etcd-prefix")):
        done = subprocess.run([BINARY, "gateway", "--config", str(config), "--port", "0",
                               "--usage", os.path.join(tmp_path, "u.db"), *options],
                              capture_output=True, text=True, check=False)
        assert done.returncode != 0 and text in done.stderr, done
