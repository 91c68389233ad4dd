"""The bill's checks of gateway_kill, on bills that are made up, and what a hit waits for."""

import random
import subprocess
import time
import unittest
from unittest import mock

import gateway_kill
import ray_nodes


class MadeUpGateway:
    """Two calls of alice were sent and one of them is answered; it has started long ago."""

    def __init__(self, billed, core_seconds=0.0):
        self.calls = gateway_kill.Calls()
        self.calls.send("alice")
        self.calls.answered("alice")
        self.calls.send("alice")
        self.machines = 1
        self.started = time.monotonic() - 100
        self.billed = billed
        self.core_seconds = core_seconds

    def bill(self):
        return {"alice": self.billed, "bob": 0, "carol": 0}, self.core_seconds


class ChangingNode:
    """A node whose agent is replaced by another one after some looks at it."""

    def __init__(self, looks):
        self.looks = looks
        self.processes = [subprocess.Popen(["sleep", "60"]) for _ in range(2)]

    def agents(self):
        self.looks -= 1
        return [self.processes[self.looks < 0].pid]

    def raylets(self):
        return []

    actors = raylets

    def ended(self):
        return [process for process in self.processes if process.poll() is not None]

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()


class Hits(unittest.TestCase):
    def test_only_what_was_hit_must_end(self):
        for looks in (1, 2):
            node = ChangingNode(looks)
            self.addCleanup(node.end)
            nodes = ray_nodes.RayNodes.__new__(ray_nodes.RayNodes)
            nodes.nodes, nodes.kills = [node], {"agents of nodes": 0}
            nodes.tend = lambda: None
            with mock.patch.object(ray_nodes, "await_that", self.await_soon):
                nodes.hit_one(random.Random(1))
            node.processes[looks < 2].wait(10)
            self.assertEqual(len(node.ended()), 1)

    def await_soon(self, test, what):
        end = time.monotonic() + 5
        while not test():
            self.assertLess(time.monotonic(), end, what)
            time.sleep(0.01)


class Readings(unittest.TestCase):
    def setUp(self):
        self.bills = gateway_kill.Bills()

    def test_a_bill_has_what_is_answered_and_at_most_what_was_sent(self):
        for billed in (1, 2):
            self.bills.check(MadeUpGateway(billed))
        for billed in (0, 3):
            with self.assertRaises(gateway_kill.Failure):
                self.bills.check(MadeUpGateway(billed))

    def test_a_bill_has_no_more_core_seconds_than_there_were(self):
        with self.assertRaises(gateway_kill.Failure):
            self.bills.check(MadeUpGateway(1, core_seconds=1e9))


class Kills(unittest.TestCase):
    def setUp(self):
        self.bills = gateway_kill.Bills()
        self.killed = MadeUpGateway(0)

    def follow(self, billed, seconds_later=0.0):
        self.bills.follow(self.killed, time.monotonic() + seconds_later, MadeUpGateway(billed))

    def test_the_last_answers_may_be_missing_and_are_counted(self):
        self.follow(0, seconds_later=0.5)
        self.assertEqual(self.bills.lost, 1)
        self.assertGreaterEqual(self.bills.most_lost_seconds, 0.5)

    def test_older_answers_may_not(self):
        with self.assertRaises(gateway_kill.Failure):
            self.follow(0, seconds_later=gateway_kill.LOST_SECONDS + 1)

    def test_what_was_read_is_never_lost(self):
        self.bills.check(MadeUpGateway(2))
        with self.assertRaises(gateway_kill.Failure):
            self.follow(1)

    def test_nothing_counts_twice(self):
        self.follow(2)
        self.bills.check(MadeUpGateway(3))
        with self.assertRaises(gateway_kill.Failure):
            self.bills.check(MadeUpGateway(5))


if __name__ == "__main__":
    unittest.main()
