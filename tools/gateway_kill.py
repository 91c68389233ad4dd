#!/usr/bin/env python3
"""Kills processes of `sluice gateway` at random moments under load, and reads its bill.

    tools/gateway_kill.py SLUICE MODEL SECONDS SEED [--rounds N] [--soak] [--agents N]
                          [--etcd] [--ray]

A round kills one process with SIGKILL: mostly a function or a warm worker, every tenth time the
gateway, which takes all of them along; then another gateway follows, with the same file of usage.
Rounds go on for SECONDS, or until there were N. The campaign checks all that kill_campaign.py does:
the end and the text of each call, and what is left behind. After most rounds the bill is read
(/v1/usage): it has each answered call of this gateway, no call that was not sent, and no more core
seconds than there were. A gateway that follows a killed one may lack the last seconds of that one,
and nothing that was ever read.

--soak: the gateway is never killed, and its resident memory may not grow.
--agents: functions run on N agents as well. Rounds kill these, too, with all their functions, or
stop them for a while; another process of the same name follows. They outlive their gateway, and end
their functions then.
--etcd: the gateway has a cluster of three etcd members, which rounds kill, too.
--ray: functions run also on agents that Ray keeps on two nodes (ray_nodes.py). Rounds kill raylets,
whole nodes, actors and agents there. In the end each node must have an agent again.
Exit status 1 if something was found.
"""

import bisect
import functools
import hashlib
import http.client
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time

import ray_nodes
from etcd_members import EtcdMembers, await_that
from hosts import enter_own_network
from kill_campaign import (KEYS, PATIENCE, PROCESSES, SERVER_EVERY, Counter, Failure, Load, Server,
                           arguments_of, bodies, control_groups, expected_texts, kill_one,
                           left_groups, run_under_load)
from ready_server import free_port

ADMIN = "sk-kill-admin-0123456789"
OWNERS = {"poet": "alice", "pirate": "bob"}  # the base model is everybody's
# The gateway writes its usage once a second. A busy machine may delay a write.
LOST_SECONDS = 10
SOAK_GROWTH = 64 << 20
AGENT_EXPIRY = 3  # seconds
AGENT_TOKEN = "agents-kill-0123456789"


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


def functions_file(model, folder):
    """Functions that end soon after their last call; no call is refused for its goal."""
    lines = ["[defaults]", "ttft_slo_ms = 600000", "idle_s = 1",
             "[admin]", f'key_sha256 = "{sha256(ADMIN)}"']
    for tenant, key in KEYS.items():
        lines += ["[[tenant]]", f'name = "{tenant}"', f'key_sha256 = "{sha256(key)}"']
    lines += ["[[backbone]]", 'name = "demo"', f'directory = "{os.path.abspath(model)}"',
              'tenants = ["*"]']
    for adapter, tenant in OWNERS.items():
        lines += ["[[adapter]]", f'name = "{adapter}"', 'backbone = "demo"',
                  f'tenant = "{tenant}"',
                  f'directory = "{os.path.abspath(model)}-adapters/{adapter}"']
    path = os.path.join(folder, "functions.toml")
    with open(path, "w", encoding="utf-8") as stream:
        stream.write("\n".join(lines) + "\n")
    return path


class Calls:
    """The calls of each tenant to one gateway: how many were sent, and when answers came."""

    def __init__(self):
        self.lock = threading.Lock()
        self.sent = dict.fromkeys(KEYS, 0)
        self.answers = {key: [] for key in KEYS}

    def send(self, key):
        with self.lock:
            self.sent[key] += 1

    def answered(self, key):
        with self.lock:
            self.answers[key].append(time.monotonic())

    def bounds(self):
        """{tenant: (answered, sent)} now."""
        with self.lock:
            return {key: (len(self.answers[key]), self.sent[key]) for key in KEYS}


class Gateway(Server):
    """One gateway and the calls that it gets."""

    def __init__(self, arguments, folder, parts):  # pylint: disable=super-init-not-called
        agents, etcd, ray = parts
        self.port = free_port()
        self.calls = Calls()
        options = ["--max-functions", "4", "--warm-workers", "1"]
        if agents:
            options = ["--max-functions", "2", "--agents", agents.address, "--agents-token-file",
                       agents.token, "--agents-expiry", str(AGENT_EXPIRY),
                       *agents.options_of("gateway", "--agents-ssl")]
        if etcd:
            options += ["--etcd", etcd.urls, "--name", "killed"]
        self.machines = 1 + (len(agents.list) if agents else 0) + (len(ray.nodes) if ray else 0)
        self.said = open(  # pylint: disable=consider-using-with
            os.path.join(folder, "said"), "w+", encoding="utf-8")
        self.started = time.monotonic()
        self.process = PROCESSES.start(
            [arguments.sluice, "gateway", "--config", functions_file(arguments.model, folder),
             "--usage", os.path.join(folder, "usage.db"), "--port", str(self.port),
             "--access-log", "off", "--sandbox", "best-effort", "--kv-cache-memory", "64MiB",
             *options], self.said)
        end = time.monotonic() + PATIENCE
        while "\nready: " not in self.log():
            if self.process.poll() is not None or time.monotonic() > end:
                self.process.kill()
                raise Failure("the gateway did not start:\n" + self.log())
            time.sleep(0.02)

    def complete(self, key, body):
        self.calls.send(key)
        status, answer = super().complete(key, body)
        if status == 200:
            self.calls.answered(key)
        return status, answer

    def get(self, path):
        """The JSON that an administrator gets."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request("GET", path, None, {"Authorization": "Bearer " + ADMIN})
            answer = connection.getresponse()
            text = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise Failure(f"{path} is not answered: {error}") from error
        finally:
            connection.close()
        if answer.status != 200:
            raise Failure(f"{path}: status {answer.status}: {text}")
        return json.loads(text)

    def await_joined(self, prefix, count):
        """Waits until `count` agents whose names begin with `prefix` take functions."""
        def joined():
            agents = self.get("/gateway/state")["machine"]["agents"]
            return sum(agent["name"].startswith(prefix) and agent["state"] == "open"
                       for agent in agents) == count
        await_that(joined, f"{count} agents named {prefix}... have joined")

    def bill(self):
        """({tenant: requests}, core seconds of all), of all days."""
        report = self.get("/v1/usage?start_date=2020-01-01")
        requests = dict.fromkeys(KEYS, 0)
        for row in report["data"]:
            if row["tenant"] is not None:
                requests[row["tenant"]] += row["requests"]
        return requests, report["total"]["core_seconds"]

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/statm", encoding="ascii") as stream:
            return int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Agent(Server):
    """One agent; it may join later than it is made."""

    def __init__(self, agents, name):  # pylint: disable=super-init-not-called
        self.name = name
        self.said = open(  # pylint: disable=consider-using-with
            os.path.join(agents.folder, name), "w+", encoding="utf-8")
        self.process = PROCESSES.start([*agents.command, "--name", name], self.said)

    def await_log(self, text):
        end = time.monotonic() + PATIENCE
        while text not in self.log():
            if self.process.poll() is not None or time.monotonic() > end:
                raise Failure(f"{self.name} has not said '{text}':\n" + self.log())
            time.sleep(0.02)


class Agents:
    """The agents of gateways that follow each other at one address."""

    def __init__(self, arguments, folder):
        self.folder = folder
        self.certificates = ray_nodes.Certificates(folder) if arguments.ray else None
        host, scheme = (ray_nodes.GATEWAY, "https") if arguments.ray else ("127.0.0.1", "http")
        self.address = f"{host}:{free_port()}"
        self.token = os.path.join(folder, "agents.token")
        with open(os.open(self.token, os.O_CREAT | os.O_WRONLY, 0o600), "w",
                  encoding="ascii") as stream:
            stream.write(AGENT_TOKEN)
        self.command = [
            os.path.abspath(arguments.sluice), "agent", "--join", f"{scheme}://{self.address}",
            "--token-file", self.token, "--sandbox", "best-effort", "--kv-cache-memory", "64MiB",
            "--max-functions", "2", *self.options_of("agent", "--ssl")]
        self.list = [Agent(self, f"agent-{i}") for i in range(arguments.agents)]
        self.kills = self.stops = 0

    def options_of(self, name, prefix):
        return self.certificates.options(name, prefix) if self.certificates else []

    def hit_one(self, rng):
        """Kills one, which takes its functions along, or a function of one, or stops one."""
        index = rng.randrange(len(self.list))
        agent = self.list[index]
        if agent.process.poll() is not None:
            raise Failure(f"{agent.name} ended by itself:\n" + agent.log())
        what = rng.random()
        if what < 0.4:
            agent.end(signal.SIGKILL)
            self.list[index] = Agent(self, agent.name)
            self.kills += 1
        elif what < 0.6:
            agent.process.send_signal(signal.SIGSTOP)
            time.sleep(rng.uniform(0, 1.5 * AGENT_EXPIRY))
            agent.process.send_signal(signal.SIGCONT)
            self.stops += 1
        elif "joined: " in agent.log():  # a start fails if its first process is killed
            kill_one(agent, rng)

    def functions(self):
        return [pid for agent in self.list for pid in agent.functions()]

    def report(self):
        return f"{self.kills} agents killed, {self.stops} stopped for a while"

    def end(self):
        for agent in self.list:
            agent.await_log("joined: ")
            agent.end(signal.SIGTERM)


class GatewayLoad(Load):
    """Calls of tenants for their own functions."""

    def choose(self, rng):
        body = rng.choice(list(bodies()))
        return OWNERS.get(body["model"]) or rng.choice(list(KEYS)), body


class Bills:
    """The bills of gateways that follow each other on one file."""

    def __init__(self):
        self.before = dict.fromkeys(KEYS, 0)  # as the present gateway found it
        self.seen = dict.fromkeys(KEYS, 0)    # as it was read last
        self.alive = 0.0   # seconds of earlier gateways
        self.readings = 0
        self.lost = 0      # calls that were answered and never billed
        self.most_lost_seconds = 0.0

    def check(self, gateway):
        """Reads the bill while calls run.

        It must have the calls that were answered before, and none that were sent later.
        """
        least = {key: answered for key, (answered, _) in gateway.calls.bounds().items()}
        requests, core_seconds = gateway.bill()
        most = {key: sent for key, (_, sent) in gateway.calls.bounds().items()}
        for key, count in requests.items():
            if not self.before[key] + least[key] <= count <= self.before[key] + most[key]:
                raise Failure(f"{key} is billed {count} calls: {self.before[key]} before, then "
                              f"{least[key]} answered and {most[key]} sent")
        cores = len(os.sched_getaffinity(0)) * gateway.machines
        alive = self.alive + time.monotonic() - gateway.started
        if core_seconds > cores * alive:
            raise Failure(f"{core_seconds} core seconds are billed, in {alive} s on {cores} cores")
        self.seen = requests
        self.readings += 1

    def follow(self, old, killed_at, gateway):
        """The bill that `gateway` finds after `old` was killed, before it has a call."""
        self.alive += killed_at - old.started
        requests, _ = gateway.bill()
        for key, count in requests.items():
            answers = sorted(old.calls.answers[key])
            sent = old.calls.sent[key]
            if not self.seen[key] <= count <= self.before[key] + sent:
                raise Failure(f"after a kill {key} is billed {count} calls: {self.seen[key]} were "
                              f"read, {self.before[key]} were before, {sent} were sent")
            self.note_lost(answers[:bisect.bisect(answers, killed_at)],
                           count - self.before[key], killed_at)
        self.before = self.seen = requests

    def note_lost(self, answers, counted, killed_at):
        """The bill has the first `counted` calls at most: an answer after them may be missing."""
        if counted >= len(answers):
            return
        seconds = killed_at - answers[counted]
        self.lost += len(answers) - counted
        self.most_lost_seconds = max(self.most_lost_seconds, seconds)
        if seconds > LOST_SECONDS:
            raise Failure(f"{len(answers) - counted} calls are lost, of up to {seconds:.1f} s")


def pause(rng):
    time.sleep(rng.uniform(0.02, 0.6))


def await_idle(parts):
    """Without a gateway no function is left."""
    end = time.monotonic() + PATIENCE
    while left := [pid for part in parts for pid in part.functions()]:
        if time.monotonic() > end:
            raise Failure(f"functions outlive their gateway: {left}")
        time.sleep(0.02)


def kill_functions(gateway, rng, load, bills, count, parts):
    """Rounds of one gateway."""
    agents, etcd, ray = parts
    for _ in range(SERVER_EVERY - 1):
        pause(rng)
        if etcd and rng.random() < 0.2:
            etcd.hit_one(rng)
        elif ray and rng.random() < 0.3:
            ray.hit_one(rng)
        elif agents and rng.random() < 0.6:
            agents.hit_one(rng)
        else:
            kill_one(gateway, rng)
        count(1)
        if load.failures:
            return
        if gateway.process.poll() is not None:
            raise Failure("the gateway ended by itself:\n" + gateway.log())
        if rng.random() < 0.7:
            bills.check(gateway)


def run(arguments, folder, load, bills, count, parts):
    """Calls `count` after each round. `parts`: agents, etcd and Ray, or None."""
    rng = random.Random(arguments.seed)
    before = control_groups()
    end = time.monotonic() + arguments.seconds
    agents, etcd, ray = parts
    gateway = Gateway(arguments, folder, parts)
    memory = []
    while (count() < arguments.rounds if arguments.rounds else time.monotonic() < end):
        load.server = gateway
        kill_functions(gateway, rng, load, bills, count, parts)
        if load.failures:
            break
        if arguments.soak:
            memory.append(gateway.resident_bytes())
            continue
        pause(rng)
        load.server = None
        killed_at = time.monotonic()
        gateway.end(signal.SIGKILL)
        count(1)
        await_idle([part for part in (agents, ray) if part])
        follower = Gateway(arguments, folder, parts)
        bills.follow(gateway, killed_at, follower)
        gateway = follower
    load.server = None
    status, answer = gateway.complete("alice", next(iter(bodies())))
    if status != 200:
        raise Failure(f"status {status} after the last round: {answer}")
    if ray:
        ray.end(functools.partial(gateway.await_joined, "ray-"))
        print(ray.report())
    if agents:
        agents.end()
        print(agents.report())
    gateway.end(signal.SIGTERM)
    if etcd:
        etcd.check_end()
        print(f"{etcd.kills} members of etcd killed")
    if left := left_groups(before, control_groups()):
        raise Failure(f"control groups are left: {left}")
    if memory:
        check_memory(memory)


def check_memory(sizes):
    """Grows while caches fill, in the first quarter; not later."""
    first, last = sizes[len(sizes) // 4], sizes[-1]
    print(f"resident memory: {first >> 20} MiB, then {last >> 20} MiB")
    if last - first > SOAK_GROWTH:
        raise Failure(f"resident memory grew: {[size >> 20 for size in sizes]} MiB")


def run_with_parts(arguments, folder, load, bills, count):
    etcd = EtcdMembers(folder) if arguments.etcd else None
    agents = Agents(arguments, folder) if arguments.agents else None
    ray = ray_nodes.RayNodes(folder, agents.command) if arguments.ray else None
    run(arguments, folder, load, bills, count, (agents, etcd, ray))


def summary(rounds, load, bills):
    return (f"{rounds} rounds: {load.answers} answers, {load.errors} calls with an error, "
            f"{load.lost} lost with their gateway; {bills.readings} bills read, "
            f"{bills.lost} answered calls not billed, of the last "
            f"{bills.most_lost_seconds:.2f} s before a kill")


def main():
    parser = arguments_of(__doc__)
    parser.add_argument("--soak", action="store_true")
    parser.add_argument("--agents", type=int, default=0)
    parser.add_argument("--etcd", action="store_true")
    parser.add_argument("--ray", action="store_true", help="needs --agents")
    arguments = parser.parse_args()
    if arguments.ray:
        if not arguments.agents:
            parser.error("--ray needs --agents")
        enter_own_network(ray_nodes.GATEWAY)
    bills, rounds = Bills(), Counter()
    with tempfile.TemporaryDirectory() as folder:
        found, load = run_under_load(
            lambda: GatewayLoad(expected_texts(arguments, folder), arguments.seed),
            lambda load: run_with_parts(arguments, folder, load, bills, rounds))
    if load is not None:
        print(summary(rounds(), load, bills))
    return 1 if found or load.answers == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
