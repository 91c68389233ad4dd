"""The Ray nodes that tools/gateway_kill.py kills, each with an agent by examples/ray/sluice_ray.py.

Ray allows one node a machine: two of them would share Ray's temporary folder, where they take each
other's sockets, and the numbers of their workers' ports. So each node is a host (hosts.py).
"""

import os
import signal
import subprocess
import time

from etcd_members import await_that
from hosts import RAY_FOLDER, Host, kill
from kill_campaign import PATIENCE, Failure, is_running
from ready_server import children_of

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
BIN = os.path.join(ROOT, "build", "venv-ray", "bin")
DRIVER = os.path.join(ROOT, "examples", "ray", "sluice_ray.py")
NETWORK = "10.78.0"
GATEWAY = NETWORK + ".254"
RESOURCE = "sluice_demo"
NODES = 2
START = 2 * PATIENCE  # for all that Ray does on a busy machine
# Ray's own defaults notice a dead node after 15 s.
SETTINGS = {"RAY_health_check_period_ms": "1000", "RAY_health_check_timeout_ms": "3000",
            "RAY_health_check_failure_threshold": "3", "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_DEDUP_LOGS": "0", "PATH": BIN + ":" + os.environ["PATH"]}


def openssl(folder, *words):
    subprocess.run(["openssl", *words], cwd=folder, check=True, capture_output=True)


class Certificates:
    """One authority, and certificates of the gateway and of all agents."""

    KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")

    def __init__(self, folder):
        self.folder = folder
        openssl(folder, "req", "-x509", *self.KEY, "-keyout", "ca.key", "-out", "ca.pem", "-days",
                "2", "-subj", "/CN=ca")
        for name in ("gateway", "agent"):
            openssl(folder, "req", *self.KEY, "-keyout", f"{name}.key", "-out", f"{name}.csr",
                    "-subj", f"/CN={name}")
            with open(os.path.join(folder, "names"), "w", encoding="ascii") as stream:
                stream.write(f"subjectAltName=IP:{GATEWAY}\n")
            openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey",
                    "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names", "-out",
                    f"{name}.pem")

    def options(self, name, prefix="--ssl"):
        path = os.path.join(self.folder, name)
        return [prefix + "-certfile", path + ".pem", prefix + "-keyfile", path + ".key",
                prefix + "-cafile", os.path.join(self.folder, "ca.pem")]


def descendants_of(pid):
    """A process and all that it and they have started."""
    found = [pid]
    for child in children_of(pid):
        found += descendants_of(child)
    return found


class Node:
    """A machine whose `ray start` is started again when it ends, as by a service manager."""

    def __init__(self, host, options):
        self.host, self.options = host, options
        self.start()

    def start(self):
        self.starts_before = self.starts()
        self.process = self.host.start(
            "ray", "start", "--block", "--disable-usage-stats", "--object-store-memory", "80000000",
            "--node-ip-address", self.host.address, *self.options, **SETTINGS)

    def tend(self):
        if self.process.poll() is not None:
            self.start()

    def starts(self):
        return self.host.said().count("Ray runtime started")

    def has_started(self):
        return self.starts() > self.starts_before

    def find(self, test):
        return [pid for pid, words in self.host.processes().items()
                if is_running(pid) and test(words)]

    def raylets(self):
        return self.find(lambda words: words[0].endswith("/raylet"))

    def actors(self):
        return self.find(lambda words: words[0].startswith("ray::AgentActor"))

    def agents(self):
        return self.find(lambda words: "agent" in words[1:2])


class RayNodes:
    """A head, which lives on, and nodes with an agent each."""

    def __init__(self, folder, command):
        self.kills = {"raylets": 0, "nodes": 0, "actors": 0, "agents of nodes": 0}
        hosts = [Host(folder, f"{NETWORK}.{number + 1}", [RAY_FOLDER])
                 for number in range(1 + NODES)]
        self.head = Node(hosts[0], ["--head", "--port", "6379", "--include-dashboard", "false",
                                    "--num-cpus", "0"])
        await_that(self.head.has_started, "the head of Ray has started", START)
        address = hosts[0].address + ":6379"
        self.nodes = [Node(host, ["--address", address, "--num-cpus", "1", "--resources",
                                  f'{{"{RESOURCE}": 1}}']) for host in hosts[1:]]
        self.driver = hosts[0].start(os.path.join(BIN, "python"), DRIVER, "--address", address,
                                     "--resource", RESOURCE, "--", *command, **SETTINGS)
        self.await_agents()

    def tend(self):
        for part in (self.head, self.driver):
            if getattr(part, "process", part).poll() is not None:
                raise Failure("Ray's head or the driver ended by itself:\n" + self.head.host.said())
        for node in self.nodes:
            node.tend()

    def await_agents(self):
        def each_has_one():
            self.tend()
            return all(len(node.agents()) == 1 for node in self.nodes)
        await_that(each_has_one, "each node has one agent", START)

    def hit_one(self, rng):
        """Kills a raylet, all processes of a node, an actor, or an agent."""
        self.tend()
        node = rng.choice(self.nodes)
        # Ray may end a node by itself on a busy machine: for a moment it has an old one, too.
        await_that(lambda: len(node.agents()) <= 1, "a node has one agent at most")
        what = rng.choice(list(self.kills))
        pids = {"raylets": node.raylets, "actors": node.actors, "nodes": node.raylets,
                "agents of nodes": node.agents}[what]()
        if not pids or (what == "raylets" and not node.has_started()):
            return
        self.kills[what] += 1
        agents = node.agents()
        if what == "nodes":
            node.host.kill_all()
        else:
            target = rng.choice(pids)
            agents = [pid for pid in descendants_of(target) if pid in agents]
            kill(target)
        if what in ("nodes", "raylets"):
            node.process.wait(PATIENCE)
            time.sleep(rng.uniform(0, 2))
            node.start()
        await_that(lambda: not any(map(is_running, agents)), f"agents end with their {what}")

    def functions(self):
        return [pid for node in self.nodes for agent in node.agents()
                for pid in children_of(agent)]

    def report(self):
        return ", ".join(f"{count} {what}" for what, count in self.kills.items()) + " killed"

    def end(self, await_joined):
        """Each node gets its agent back, and all agents leave when the driver is told to end."""
        self.await_agents()
        await_joined(NODES)
        self.driver.send_signal(signal.SIGTERM)
        if (status := self.driver.wait(START)) != 0:
            raise Failure(f"sluice_ray.py ended with {status}:\n" + self.head.host.said())
        if left := [pid for node in self.nodes for pid in node.agents()]:
            raise Failure(f"agents outlive their driver: {left}")
        for node in (self.head, *self.nodes):
            node.host.kill_all()
