#!/usr/bin/env python3
"""Runs the commands of docs/gateway-machines.md#three-hosts on three hosts, and tries what the page
says of them.

    tests/integration/three_hosts.py SLUICE [--ray]

The hosts are network namespaces of this machine (tools/hosts.py), each with its own /etc/sluice
and /var/lib/sluice. A line of a block that begins with `$` or `>` is a command; the comment before
it names the hosts. --ray: agents by Ray on two hosts instead of the third host's own. Exit
status 1, and what the hosts said, if something is not as the page says. As root: make campaign
NAME=three-hosts.
"""

import argparse
import contextlib
import functools
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "tools"))

# pylint: disable=wrong-import-position
from etcd_members import await_that
from hosts import RAY_FOLDER, Host, enter_own_network, ip
from kill_campaign import PROCESSES, Failure
from ready_server import children_of

PAGE = os.path.join(ROOT, "docs", "gateway-machines.md")
ADDRESSES = ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
OWN = ["/etc/sluice", "/var/lib/sluice", RAY_FOLDER]
KEYS = {"a": "sk-example-tenant-a-0001", "b": "sk-example-tenant-b-0001"}
FUNCTIONS = [("a", "demo"), ("a", "poet"), ("b", "demo"), ("b", "pirate")]
READY = {"etcd": "ready to serve client requests", "sluice gateway": "ready: ",
         "sluice agent": "joined: "}  # what a command says
PORT = 8000
PATIENCE = 120  # seconds; a machine may be busy
EXPIRY = 5      # of an agent's lease, the default
IDLE = 5        # seconds after which a function of the example ends


class Block:
    """Commands of the page, and the addresses of the hosts that run them."""

    def __init__(self, text):
        lines = text.splitlines()
        self.addresses = ADDRESSES if lines[0] == "# on each host" else re.findall(
            r"10\.0\.0\.\d", lines[0])
        self.text = text
        self.script = "\n".join(line[2:] for line in lines if line[:2] in ("$ ", "> ")) + "\n"


def blocks_of(heading):
    """The blocks of a section that name their hosts."""
    with open(PAGE, encoding="utf-8") as stream:
        section = stream.read().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    blocks = [Block(text) for text in re.findall(r"^```\n(# on .*?)^```$", section, re.M | re.S)]
    if not blocks or not all(block.addresses for block in blocks):
        raise Failure(f"{PAGE}: '{heading}' has no blocks of commands that name their hosts")
    return blocks


class Hosts:
    def __init__(self, folder, sluice):
        self.folder = folder
        self.programs = os.path.join(folder, "programs")
        os.mkdir(self.programs)
        os.symlink(sluice, os.path.join(self.programs, "sluice"))
        # Instead of SSH: copies into the folder of another host.
        self.program("scp", f"""
            files=("${{@:2:$#-2}}"); target="${{@: -1}}"
            cp "${{files[@]}}" "{folder}/${{target%%:*}}/etc-sluice/"
        """)
        self.hosts = {address: Host(folder, address, OWN) for address in ADDRESSES}

    def program(self, name, script):
        path = os.path.join(self.programs, name)
        with open(path, "w", encoding="utf-8") as stream:
            stream.write("#!/bin/bash\n" + script)
        os.chmod(path, 0o755)

    def run(self, block):
        """Each host runs the block in a shell of its own. Processes in its background live on; what
        they say when they are ready is waited for."""
        for address in block.addresses:
            script = re.sub(r"^address=\S+", "address=" + address, block.script, flags=re.M)
            shell = self.hosts[address].start(
                "bash", "-eu", "-o", "pipefail", "-c",
                # As a terminal has it: each host remembers what earlier blocks have set.
                "[ ! -f /etc/sluice/shell ] || . /etc/sluice/shell\n" + script +
                "declare -p address > /etc/sluice/shell 2>/dev/null || true\n",
                PATH=self.programs + ":" + os.environ["PATH"])
            if (status := shell.wait(PATIENCE)) != 0:
                raise Failure(f"{address} ended with {status}:\n{script}")
        for command, words in READY.items():
            for address in block.addresses if f"$ {command}" in block.text else []:
                self.await_said(address, words)

    def await_said(self, address, text):
        await_that(lambda: text in self.hosts[address].said(), f"{address} says '{text}'", PATIENCE)

    def find(self, address, *words):
        """The processes of one host whose command line begins so."""
        return [pid for pid, line in self.hosts[address].processes().items()
                if [os.path.basename(line[0]), *line[1:len(words)]] == list(words)]

    def kill(self, address, how, *words):
        """Sends a signal to the one process whose command line begins so; returns its id."""
        [pid] = self.find(address, *words)
        os.kill(pid, how)
        return pid

    def end(self, address, *words):
        """The process ends after SIGTERM."""
        self.kill(address, signal.SIGTERM, *words)
        await_that(lambda: not self.find(address, *words), f"{words} ends", PATIENCE)

    def answer(self, address, tenant, model):
        """Status and body of a call at a gateway."""
        connection = http.client.HTTPConnection(address, PORT, timeout=PATIENCE)
        with contextlib.closing(connection):
            connection.request("POST", "/v1/completions", json.dumps(
                {"model": model, "prompt": "Once upon a time", "max_tokens": 8, "seed": 1}),
                {"Authorization": "Bearer " + KEYS[tenant]})
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())

    def expect(self, address, tenant, model, status=200):
        got, body = self.answer(address, tenant, model)
        if got != status:
            raise Failure(f"{model} of {tenant} at {address}: {got}, not {status}: {body}")
        return body["choices"][0]["text"] if got == 200 else None

    def expect_all(self, *addresses):
        for tenant, model in FUNCTIONS:
            texts = {self.expect(address, tenant, model) for address in addresses}
            if len(texts) != 1:
                raise Failure(f"{model} of {tenant} has several answers: {texts}")

    def functions_of_agents(self):
        return [child for address in ADDRESSES for pid in self.find(address, "sluice", "agent")
                for child in children_of(pid)]

    def expect_on_agents(self):
        """Idle functions end, so that each round of calls starts them anew."""
        def some():
            self.expect_all(ADDRESSES[0])
            return self.functions_of_agents() or time.sleep(1.5 * IDLE)
        await_that(some, "a function runs on an agent", PATIENCE)


def try_gateways(hosts):
    """Calls, with and without Ray."""
    hosts.expect_all(*ADDRESSES[:2])
    for address in ADDRESSES[:2]:
        hosts.expect(address, "b", "poet", 404)  # another tenant's
    hosts.expect_on_agents()
    print("calls are answered at both gateways, and run on agents", flush=True)


def try_publish(hosts):
    # Directories are relative to the file that is published, and to each gateway's own.
    os.mkdir(os.path.join(hosts.folder, "examples"))
    os.symlink(os.path.join(ROOT, "models"), os.path.join(hosts.folder, "models"))
    path = os.path.join(hosts.folder, "examples", "published.toml")
    with open(os.path.join(ROOT, "examples", "functions.toml"), encoding="utf-8") as stream:
        text = stream.read()
    with open(path, "w", encoding="utf-8") as stream:
        stream.write(text.replace('name = "pirate"', 'name = "corsair"'))
    hosts.run(Block(f"# on {ADDRESSES[1]}\n$ sluice functions publish {path} --etcd "
                    + ",".join(f"https://{address}:2379" for address in ADDRESSES)
                    + " --etcd-ssl-certfile /etc/sluice/host.pem"
                    + " --etcd-ssl-keyfile /etc/sluice/host.key"
                    + " --etcd-ssl-cafile /etc/sluice/ca.pem"))

    def follows(address):
        time.sleep(0.5)  # a tenant has 600 requests a minute
        return hosts.answer(address, "b", "corsair")[0] == 200

    for address in ADDRESSES[:2]:
        await_that(functools.partial(follows, address), f"{address} follows the published file",
                   PATIENCE)
        hosts.expect(address, "b", "pirate", 404)
    FUNCTIONS[-1] = ("b", "corsair")
    print("both gateways follow a published file", flush=True)


def try_cut(hosts):
    """The third host's link is cut for longer than a lease."""
    link = "host3"
    ip("link", "set", link, "down")
    time.sleep(1.8 * EXPIRY)
    hosts.expect_all(ADDRESSES[0])
    if left := hosts.functions_of_agents():
        raise Failure(f"functions of an agent that is cut off live on: {left}")
    joined = hosts.hosts[ADDRESSES[2]].said().count("joined: ")
    ip("link", "set", link, "up")
    await_that(lambda: hosts.hosts[ADDRESSES[2]].said().count("joined: ") > joined,
               "the agent joins again", PATIENCE)
    hosts.expect_on_agents()
    print("an agent that was cut off has joined again", flush=True)


def try_dead_member(hosts):
    """The member of etcd dies that gateways call first."""
    def losses(address):
        return hosts.hosts[address].said().count("etcd does not answer (")

    before = {address: losses(address) for address in ADDRESSES[:2]}
    hosts.kill(ADDRESSES[0], signal.SIGKILL, "etcd")
    time.sleep(2 * EXPIRY)  # leases end that are not renewed
    for address in ADDRESSES[:2]:
        hosts.await_said(address, "trying the member at")
        if losses(address) > before[address]:
            raise Failure(f"{address} has lost etcd")
    hosts.expect_all(*ADDRESSES[:2])
    print("the gateways go on with another member of etcd", flush=True)


def reaches(address, port):
    """Whether this process, which is none of the hosts, can connect to a port of one."""
    with socket.socket() as probe:
        probe.settimeout(2)
        return probe.connect_ex((address, port)) == 0


def try_firewall(hosts, block):
    """Strangers reach all ports before it and that of clients after it. Later steps show
    that the hosts reach each other."""
    ports = [(ADDRESSES[0], 8001), *((address, port) for address in ADDRESSES
                                     for port in (2379, 2380))]
    for address, port in ports:
        if not reaches(address, port):
            raise Failure(f"without a firewall {address}:{port} cannot be reached")
    hosts.run(block)
    for address, port in ports:
        if reaches(address, port):
            raise Failure(f"the firewall lets strangers reach {address}:{port}")
    for address in ADDRESSES[:2]:
        if not reaches(address, PORT):
            raise Failure(f"the firewall keeps clients from {address}:{PORT}")
    print("the firewall keeps strangers from all ports but that of clients", flush=True)


def try_end(hosts):
    for address, word in ((ADDRESSES[2], "agent"), (ADDRESSES[0], "gateway"),
                          (ADDRESSES[1], "gateway")):
        if hosts.find(address, "sluice", word):
            hosts.end(address, "sluice", word)
    for address in ADDRESSES:
        if left := hosts.find(address, "sluice"):
            raise Failure(f"processes are left at {address}: {left}")


def with_agent(hosts, blocks):
    for block in blocks:
        if "nft " in block.script:
            try_firewall(hosts, block)
        else:
            hosts.run(block)
    try_gateways(hosts)
    try_publish(hosts)
    try_cut(hosts)
    try_dead_member(hosts)


def with_ray(hosts, blocks):
    """Ray keeps the agents; that of the page is left out."""
    for block in blocks:
        if "sluice agent" in block.script:
            continue
        hosts.run(block)
    for block in blocks_of("Agents by Ray"):
        if "pip install" not in block.script:  # make venv-ray has done it
            hosts.run(block)

    def each_has_one():
        return all(len(hosts.find(address, "sluice", "agent")) == 1 for address in ADDRESSES[1:])

    await_that(each_has_one, "each node has an agent", PATIENCE)
    try_gateways(hosts)
    hosts.kill(ADDRESSES[2], signal.SIGKILL, "raylet")
    await_that(lambda: not hosts.find(ADDRESSES[2], "sluice", "agent"), "an agent ends", PATIENCE)
    hosts.expect_all(*ADDRESSES[:2])
    print("a killed raylet has taken its agent along", flush=True)
    hosts.end(ADDRESSES[0], "python3", "examples/ray/sluice_ray.py")
    if left := hosts.find(ADDRESSES[1], "sluice", "agent"):
        raise Failure(f"an agent outlives sluice_ray.py: {left}")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sluice")
    parser.add_argument("--ray", action="store_true")
    arguments = parser.parse_args()
    arguments.sluice = os.path.abspath(arguments.sluice)
    os.chdir(ROOT)
    enter_own_network("10.0.0.254")
    hosts = None
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with tempfile.TemporaryDirectory() as folder:
        try:
            hosts = Hosts(folder, arguments.sluice)
            (with_ray if arguments.ray else with_agent)(hosts, blocks_of("Three hosts"))
            try_end(hosts)
        except (Failure, subprocess.TimeoutExpired) as failure:
            for address in ADDRESSES if hosts else []:
                print(f"--- {address} said:\n{hosts.hosts[address].said()[-6000:]}")
            print(failure)
            return 1
        finally:
            PROCESSES.end()
    print("all is as the page says")
    return 0


if __name__ == "__main__":
    sys.exit(main())
