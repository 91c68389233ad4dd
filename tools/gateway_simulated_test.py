"""Tests of tools/gateway_simulated.py: the lines that it measures, and its calls."""

import os
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


class PromptTest(unittest.TestCase):
    def test_prompts_give_the_times_of_tokens_and_of_pairs_whatever_their_calls_take(self):
        def seconds(tokens):
            steps = tokens / gateway_simulated.STEP
            of_call = 0.003
            return of_call + 0.001 * steps + 2e-5 * tokens + 1e-8 * tokens * (tokens + 1) / 2
        token, pair = gateway_simulated.prompt_times(0.001, map(seconds, gateway_simulated.HOT))
        self.assertAlmostEqual(token, 2e-5, 12)
        self.assertAlmostEqual(pair, 1e-8, 15)


class MarginTest(unittest.TestCase):
    def test_a_margin_is_what_a_step_is_shorter_than_its_limit(self):
        self.assertAlmostEqual(gateway_simulated.step_margin(0.002, 0.001), 2)
        self.assertEqual(gateway_simulated.step_margin(0.002, 0.010), 1)
        self.assertEqual(gateway_simulated.step_margin(0.002, 0), 3)

    def test_steps_of_more_than_one_token_are_counted(self):
        text = "\n".join(
            ['# TYPE sluice:iteration_tokens_total histogram'] +
            [f'sluice:iteration_tokens_total_bucket{{model_name="gateway",le="{le}"}} {count}'
             for le, count in (("1", 40), ("2", 41), ("+Inf", 45))] +
            ['sluice:iteration_tokens_total_sum{model_name="gateway"} 300'])
        self.assertEqual(gateway_simulated.longer_steps(text), 5)


class HandoverTest(unittest.TestCase):
    def test_turns_after_another_function_are_all_but_the_first_one(self):
        self.assertAlmostEqual(gateway_simulated.handed_turn(4, 0.004, 0.004 + 3 * 0.001), 0.001)


class RestTest(unittest.TestCase):
    def test_factors_are_of_what_turns_take_more_than_warm_ones(self):
        factors = gateway_simulated.rest_factors(0.002, 0.003, [0.001, 0.0025, 0.006])
        for factor, expected in zip(factors, (0, 0.5, 4)):
            self.assertAlmostEqual(factor, expected)

    def test_without_a_difference_all_rests_are_alike(self):
        self.assertEqual(gateway_simulated.rest_factors(0.003, 0.003, [0.001, 0.006]), [1, 1])


class KvTest(unittest.TestCase):
    def test_the_demo_model_has_a_kilobyte_of_kv_for_each_token(self):
        root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        # 4 layers, keys and values of 2 heads of 32 numbers, 2 bytes each.
        self.assertEqual(gateway_simulated.token_bytes(os.path.join(root, "models", "demo")), 1024)

    def test_only_whole_blocks_of_computed_tokens_stay(self):
        self.assertEqual(gateway_simulated.kept_tokens(300, 32), 320)
        self.assertEqual(gateway_simulated.kept_tokens(16, 1), 16)
        self.assertEqual(gateway_simulated.kept_tokens(15, 1), 0)


class TimesTest(unittest.TestCase):
    times = gateway_simulated.Times(
        {"wake_s": 0.0003, "handover_s": 0.0001, "http_s": 0.002, "call_cpu_s": 0.001,
         "kernels_s": 0.04, "prefill_token_s": 0.0001, "prefill_pair_s": 1e-8,
         "wake_token_s": 1e-6, "decode_step_s": 0.002, "decode_sequence_s": 0.0005}, 12e6, 1024,
        [(factor, 0.004 * factor) for factor in (0.25, 0.5, 1, 2, 4)])

    def test_means_of_measurements(self):
        other = gateway_simulated.Times({key: 3 * value for key, value in
                                         self.times.seconds.items()}, 14e6, 1024,
                                        [(factor, 0.002) for factor in (0.25, 1.5, 1, 4, 8)])
        mean = gateway_simulated.mean_of([self.times, other])
        self.assertAlmostEqual(mean.seconds["decode_step_s"], 0.004)
        self.assertEqual((mean.memory, mean.token_memory), (13e6, 1024))
        # The other turns take three times as much more.
        for (factor, http), expected, outside in zip(mean.rests, (0.25, 1.25, 1, 3.5, 7),
                                                     (0.0015, 0.002, 0.003, 0.005, 0.009)):
            self.assertAlmostEqual(factor, expected)
            self.assertAlmostEqual(http, outside)

    def test_a_call_alone(self):
        # A step with the prompt, and ten that decode.
        self.assertAlmostEqual(self.times.of_call(100, 11),
                               0.0003 + 0.002 + 0.01 + 1e-8 * 5050 + 1e-4 + 10 * 0.0025)

    def test_the_cluster_is_one_machine_of_cores(self):
        text = self.times.cluster("demo", 2, 5_000_000)
        for line in ("cores = 2",
                     'backbone = "demo"', "memory = 5000000", "instance_memory = 12000000",
                     "kernels_s = 0.04", "decode_sequence_s = 0.0005", "token_memory = 1024"):
            self.assertIn(line + "\n", text)
        self.assertIn("[[rest]]\nseconds = 0.25\nfactor = 2\nhttp_s = 0.008\n", text)
        self.assertNotIn("devices", text)
        for key in ("wake_s", "handover_s", "http_s", "call_cpu_s"):
            self.assertLess(text.index(key), text.index("[[model]]"))
        self.assertGreater(text.index("kernels_s"), text.index("[[model]]"))


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
