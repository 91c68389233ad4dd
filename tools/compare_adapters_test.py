"""Tests of tools/compare_adapters.py: rounding to BF16, drawing numbers that round to one."""

import random
import struct
import unittest
from array import array

import compare_adapters


def words_of(*values):
    return array("I", struct.pack(f"<{len(values)}f", *values))


class CompareAdaptersTest(unittest.TestCase):
    def test_rounding_takes_the_nearest_and_of_two_the_even_one(self):
        # BF16 has steps of 1/128 at 1.
        rounded = compare_adapters.round_to_bf16(words_of(
            1, 1 + 0.9 / 256, 1 + 1 / 256, 1 + 1.1 / 256, 1 + 3 / 256, -1 - 1.1 / 256, 0))
        self.assertEqual(rounded, words_of(1, 1, 1, 1 + 1 / 128, 1 + 2 / 128, -1 - 1 / 128, 0))

    def test_drawn_numbers_round_to_what_they_were_drawn_for(self):
        numbers = random.Random(1)
        halves = array("H", [numbers.randrange(0x7f80) | numbers.getrandbits(1) << 15
                             for _ in range(20000)] + [0, 0x8000])
        drawn = compare_adapters.draw_f32(halves, 7)
        self.assertEqual(list(compare_adapters.round_to_bf16(drawn)),
                         [half << 16 for half in halves])
        self.assertEqual(list(drawn[-2:]), [0, 0x80000000])
        self.assertGreater(len({word & 0xffff for word in drawn}), 10000)


if __name__ == "__main__":
    unittest.main()
