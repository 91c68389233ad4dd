#!/usr/bin/env python3
"""Runs `sluice agent` on each node of a Ray cluster that has a backbone of the gateway.

    examples/ray/sluice_ray.py --resource sluice_demo -- sluice agent --join URL --token-file F ...

A node offers its checkpoint by a custom resource:

    ray start --address HEAD:6379 --resources '{"sluice_demo": 1}'

Each such node gets one actor, and the actor one agent, which is named after the node. Nodes that
join later get one, too. A node whose actor dies gets another actor, and an actor whose agent ends
starts another agent. The agent dies with its actor. SIGTERM and SIGINT drain all agents.

Ray's ports run code for everyone who reaches them: bind them to the cluster's own network
(ray start --node-ip-address), and let no other machine into that network.
"""

import argparse
import signal
import subprocess
import sys
import threading
import time

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

PAUSE_S = 1
DRAIN_S = 60


@ray.remote(num_cpus=0)
class AgentActor:
    """Keeps one agent running on its node."""

    def __init__(self, command):
        # The kernel ends the agent when the thread ends that has started it.
        self.command = ["setpriv", "--pdeathsig", "KILL", *command]
        self.process = None
        self.draining = False
        self.failure = ""
        self.thread = threading.Thread(target=self.keep, daemon=True)
        self.thread.start()

    def keep(self):
        while not self.draining:
            try:
                self.run()
            except OSError as error:
                self.failure = str(error)
            time.sleep(PAUSE_S)

    def run(self):
        with subprocess.Popen(self.command, stdin=subprocess.DEVNULL) as process:
            self.process = process
            if self.draining:
                process.terminate()
            if status := process.wait():
                self.failure = f"'{self.command[3]}' ended with status {status}"

    def last_failure(self):
        """Why no agent could be started, or the last one ended; empty: it has not."""
        return self.failure

    def drain(self):
        """Returns once the agent has left its gateway."""
        self.draining = True
        if self.process is not None:
            self.process.terminate()
        self.thread.join(DRAIN_S)
        return not self.thread.is_alive()


def nodes_with(resource):
    return {node["NodeID"] for node in ray.nodes()
            if node["Alive"] and node["Resources"].get(resource, 0) >= 1}


def start_agent(node, resource, command):
    """The resource keeps a second actor off the node."""
    place = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
    return AgentActor.options(scheduling_strategy=place, resources={resource: 1}).remote(
        [*command, "--name", "ray-" + node[:24]])


class Nodes:
    """The actors of all nodes that have the resource."""

    def __init__(self, resource, command):
        self.resource, self.command = resource, command
        self.actors = {}    # by node
        self.asked = {}     # answers that are to come, by node: these end with their actor
        self.failures = {}  # that were printed last, by node

    def follow(self):
        """Starts an actor on each node without one; forgets the actors that have died."""
        present = nodes_with(self.resource)
        for node in set(self.actors) - present:
            self.forget(node, "the node is gone, and its agent with it")
        for node in present - set(self.actors):
            self.actors[node] = start_agent(node, self.resource, self.command)
            say(node, "the node gets an agent")
        for node in list(self.actors):
            self.look_at(node)

    def look_at(self, node):
        if node not in self.asked:
            self.asked[node] = self.actors[node].last_failure.remote()
        if not ray.wait([self.asked[node]], timeout=0)[0]:
            return
        try:
            failure = ray.get(self.asked.pop(node))
        except ray.exceptions.RayActorError:
            self.forget(node, "the actor is gone, and its agent with it")
            return
        if failure != self.failures.get(node, ""):
            self.failures[node] = failure
            say(node, failure)

    def forget(self, node, why):
        """Ray ends an actor without a handle, also one that waits to be started."""
        say(node, why)
        for parts in (self.actors, self.asked, self.failures):
            parts.pop(node, None)


def say(node, what):
    print(f"node {node[:8]}: {what}", flush=True)


def drain(actors):
    """Whether all agents have left their gateway, except those whose node is gone."""
    drained = True
    for node, end in [(node, actor.drain.remote()) for node, actor in actors.items()]:
        try:
            drained = ray.get(end, timeout=2 * DRAIN_S) and drained
        except ray.exceptions.RayActorError:
            say(node, "the actor is gone, and its agent with it")
    return drained


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--address", default="auto", help="of the Ray cluster")
    parser.add_argument("--resource", required=True,
                        help="a custom resource of the nodes that have the checkpoint")
    parser.add_argument("command", nargs="+", help="sluice agent --join URL --token-file F ...")
    arguments = parser.parse_args()
    stop = threading.Event()
    ray.init(address=arguments.address, log_to_driver=False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    nodes = Nodes(arguments.resource, arguments.command)
    while not stop.is_set():
        nodes.follow()
        stop.wait(PAUSE_S)
    print("draining all agents", flush=True)
    drained = drain(nodes.actors)
    ray.shutdown()
    return 0 if drained else 1


if __name__ == "__main__":
    sys.exit(main())
