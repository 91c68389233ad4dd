"""Tests of tools/gateway_simulated.py: the lines that it measures, and its calls."""

import types
import unittest

import gateway_simulated


class LineTest(unittest.TestCase):
    def test_a_line_goes_through_both_points(self):
        constant, slope = gateway_simulated.line(64, 0.010, 1024, 0.106)
        self.assertAlmostEqual(slope, 0.0001)
        self.assertAlmostEqual(constant, 0.0036)

    def test_noise_makes_nothing_negative(self):
        self.assertEqual(gateway_simulated.line(1, 0.2, 4, 0.1), (0.2, 0.0))
        self.assertEqual(gateway_simulated.line(1, 0.1, 4, 0.7)[0], 0.0)


class TimesTest(unittest.TestCase):
    times = gateway_simulated.Times(0.04, 12e6, (0.001, 0.0001), (0.002, 0.0005))

    def test_a_call_alone(self):
        self.assertAlmostEqual(self.times.of_call(100, 11), 0.001 + 0.01 + 10 * 0.0025)

    def test_the_cluster_is_one_machine_of_cores(self):
        text = self.times.cluster(2, 5_000_000)
        for line in ("cores = 2", "memory = 5000000", "instance_memory = 12000000",
                     "kernels_s = 0.040000", "decode_sequence_s = 0.000500000"):
            self.assertIn(line + "\n", text)
        self.assertNotIn("devices", text)


class CallsTest(unittest.TestCase):
    options = types.SimpleNamespace(functions=3, seconds=50, prompt=10, output=4)

    def test_each_round_has_its_calls_in_order(self):
        for kind in ("poisson", "bursty"):
            one, same, other = (gateway_simulated.made_calls(self.options, kind, 2.0, seed)
                                for seed in (1, 1, 2))
            dues = [call.due for call in one]
            self.assertEqual(dues, sorted(dues))
            self.assertEqual(dues, [call.due for call in same])
            self.assertNotEqual(dues, [call.due for call in other])
            self.assertEqual({call.tenant for call in one}, {0, 1, 2})
            self.assertLess(dues[-1], 50)
            self.assertLess(abs(len(one) - 300), 100)


if __name__ == "__main__":
    unittest.main()
