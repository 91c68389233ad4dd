#!/usr/bin/env python3
"""Runs `sluice agent` on each node of a Ray cluster that has a backbone of the gateway.

    examples/ray/sluice_ray.py --resource sluice_demo -- sluice agent --join URL --token-file F ...

A node offers its checkpoint by a custom resource:

    ray start --address HEAD:6379 --resources '{"sluice_demo": 1}'

Each such node gets one actor, and the actor one agent, which is named after the node. Nodes that
join later get one, too. Ray starts an actor again whose process dies, and the actor an agent that
ends. The agent dies with its actor. SIGTERM and SIGINT drain all agents.

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


@ray.remote(num_cpus=0, max_restarts=-1)
class AgentActor:
    """Keeps one agent running on its node."""

    def __init__(self, command):
        # The kernel ends the agent when the thread ends that has started it.
        self.command = ["setpriv", "--pdeathsig", "KILL", *command]
        self.process = None
        self.draining = False
        self.starts = 0
        self.thread = threading.Thread(target=self.keep, daemon=True)
        self.thread.start()

    def keep(self):
        while not self.draining:
            with subprocess.Popen(self.command, stdin=subprocess.DEVNULL) as process:
                self.starts += 1
                self.process = process
                if self.draining:
                    process.terminate()
                process.wait()
            time.sleep(PAUSE_S)

    def look(self):
        """The process's id, and how often one was started."""
        return (self.process.pid if self.process else None), self.starts

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


def follow_nodes(resource, command, stop):
    """Agents on all nodes that are there, until `stop` is set; returns the actors by node."""
    actors = {}
    while not stop.is_set():
        present = nodes_with(resource)
        for node in set(actors) - present:
            print(f"node {node[:8]} is gone, and its agent with it", flush=True)
            del actors[node]
        for node in present - set(actors):
            actors[node] = start_agent(node, resource, command)
            print(f"node {node[:8]} gets an agent", flush=True)
        stop.wait(PAUSE_S)
    return actors


def drain(actors):
    """Whether all agents have left their gateway, except those whose node is gone."""
    drained = True
    for node, end in [(node, actor.drain.remote()) for node, actor in actors.items()]:
        try:
            drained = ray.get(end, timeout=2 * DRAIN_S) and drained
        except ray.exceptions.RayActorError:
            print(f"node {node[:8]} is gone, and its agent with it", flush=True)
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
    actors = follow_nodes(arguments.resource, arguments.command, stop)
    print("draining all agents", flush=True)
    drained = drain(actors)
    ray.shutdown()
    return 0 if drained else 1


if __name__ == "__main__":
    sys.exit(main())
