"""Three network namespaces whose links can fail: one in the middle, with a link to each other."""

import contextlib
import ctypes
import http.client
import os
import shutil
import socket
import subprocess
import threading

import pytest

from serving import Server

CLONE_NEWNET = 0x40000000
WRONG = "02:00:00:00:00:99"  # no interface has this address, so its frames are lost without a sign


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Namespace:
    def __init__(self, word):
        self.name = f"sluice-{os.getpid()}-{word}"
        ip("netns", "add", self.name)
        self.run("link", "set", "lo", "up")
        self.prefix = ("ip", "netns", "exec", self.name)

    def run(self, *words):
        ip("-n", self.name, *words)

    def end(self):
        subprocess.run(["ip", "netns", "del", self.name], check=False, capture_output=True)

    def call(self, what, *arguments):
        """The result of a call on a thread that is in the namespace; sockets that it makes stay."""
        results = []

        def enter():
            with open(f"/run/netns/{self.name}", encoding="ascii") as place:
                if ctypes.CDLL(None, use_errno=True).setns(place.fileno(), CLONE_NEWNET) != 0:
                    results.append(OSError(ctypes.get_errno(), "setns"))
                    return
            try:
                results.append(what(*arguments))
            except OSError as error:
                results.append(error)

        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        if isinstance(results[0], OSError):
            raise results[0]
        return results[0]

    def connection(self, port, timeout):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
        connection._create_connection = lambda *given: self.call(  # pylint: disable=W0212
            socket.create_connection, *given)
        return connection


class Apart(Server):
    """A server in a namespace, which clients there call."""

    def __init__(self, place, *options, **more):
        self.place = place
        super().__init__(*options, prefix=place.prefix, **more)

    def connection(self, timeout):
        return self.place.connection(self.port, timeout)


class Network:
    """The namespace in the middle has a link to each other one: 10.77.N.1 to 10.77.N.2."""

    def __init__(self):
        self.places = []
        try:
            self.middle, self.first, self.second = map(self.add, "cab")
            for number, end in ((1, self.first), (2, self.second)):
                ip("link", "add", f"m{number}", "netns", self.middle.name, "type", "veth", "peer",
                   "name", "e0", "netns", end.name)
                for place, link, last in ((self.middle, f"m{number}", 1), (end, "e0", 2)):
                    place.run("addr", "add", f"10.77.{number}.{last}/24", "dev", link)
                    place.run("link", "set", link, "up")
        except subprocess.CalledProcessError as error:
            self.end()
            pytest.skip(f"SKIPPED: no network namespaces here: {error.stderr.strip()}")

    def add(self, word):
        place = Namespace(word)
        self.places.append(place)
        return place

    def end(self):
        for place in self.places:
            place.end()

    # Faults of the link between the middle and the first one, and their ends.

    def cut(self):
        self.middle.run("link", "set", "m1", "down")
        return lambda: self.middle.run("link", "set", "m1", "up")

    def lose(self, place, link, address):
        place.run("neigh", "replace", address, "lladdr", WRONG, "dev", link, "nud", "permanent")
        return lambda: place.run("neigh", "del", address, "dev", link)

    def lose_answers(self):
        return self.lose(self.middle, "m1", "10.77.1.2")

    def lose_requests(self):
        return self.lose(self.first, "e0", "10.77.1.1")


@contextlib.contextmanager
def a_network():
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("SKIPPED: network namespaces need root and the program ip (iproute2)")
    network = Network()
    try:
        yield network
    finally:
        network.end()
