"""The members of etcd that tools/gateway_kill.py kills."""

import contextlib
import json
import os
import random
import socket
import time
import urllib.request

from kill_campaign import PATIENCE, PROCESSES, Failure

MEMBERS = 3


def await_that(test, what, seconds=PATIENCE):
    end = time.monotonic() + seconds
    while not test():
        if time.monotonic() > end:
            raise Failure(f"still not after {seconds} s: {what}")
        time.sleep(0.05)


def steady_ports(count):
    """Free ports that the kernel gives to no other process while theirs is down."""
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as stream:
        first = int(stream.read().split()[0])
    ports = set()
    while len(ports) < count:
        port = random.randrange(first // 2, first)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                ports.add(port)
            except OSError:
                continue
    return sorted(ports)


class EtcdMembers:
    """One cluster of etcd, with data that outlives its members."""

    def __init__(self, folder):
        ports = steady_ports(2 * MEMBERS)
        self.clients, self.peers = ports[:MEMBERS], ports[MEMBERS:]
        self.folder, self.kills = folder, 0
        self.members = [self.start(i) for i in range(MEMBERS)]
        self.urls = ",".join(f"http://127.0.0.1:{port}" for port in self.clients)
        await_that(self.is_healthy, "etcd answers")

    def start(self, index):
        client, peer = (f"http://127.0.0.1:{ports[index]}" for ports in (self.clients, self.peers))
        cluster = ",".join(f"m{i}=http://127.0.0.1:{port}" for i, port in enumerate(self.peers))
        with open(os.path.join(self.folder, f"etcd-{index}.log"), "a", encoding="utf-8") as log:
            return PROCESSES.start(
                ["etcd", "--name", f"m{index}", "--data-dir",
                 os.path.join(self.folder, f"etcd-{index}"), "--listen-client-urls", client,
                 "--advertise-client-urls", client, "--listen-peer-urls", peer,
                 "--initial-advertise-peer-urls", peer, "--initial-cluster", cluster], log)

    def ask(self, path, body=None):
        """The answer of the first member that answers; None: no member does."""
        for port in self.clients:
            call = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body)
            with contextlib.suppress(OSError), urllib.request.urlopen(call, timeout=5) as answer:
                return json.load(answer)
        return None

    def is_healthy(self):
        health = self.ask("/health")
        return health is not None and health["health"] == "true"

    def hit_one(self, rng):
        """Kills a member; it is back after a while."""
        index = rng.randrange(MEMBERS)
        self.members[index].kill()
        self.members[index].wait()
        self.kills += 1
        time.sleep(rng.uniform(0, 2))
        self.members[index] = self.start(index)

    def has_no_lease(self):
        leases = self.ask("/v3/lease/leases", b"{}")
        return leases is not None and not leases.get("leases")

    def check_end(self):
        """A gateway that has ended leaves no lease behind."""
        await_that(self.has_no_lease, "no lease is left in etcd")
