"""Tests of tools/perplexity.py: pieces of text, losses in answers, ratios of perplexities."""

import math
import unittest

import perplexity


def answer_of(*logprobs):
    positions = [None] + [{"7": {"logprob": value}, "8": {"logprob": -0.1}} for value in logprobs]
    return {"choices": [{"prompt_logprobs": positions}]}


class PerplexityTest(unittest.TestCase):
    def test_pieces_are_whole_lines_and_lose_nothing(self):
        line = "x" * 900 + "\n"
        pieces = perplexity.pieces_of(line * 5)
        self.assertEqual([len(piece) for piece in pieces], [1802, 1802, 901])
        self.assertEqual("".join(pieces), line * 5)
        self.assertEqual(perplexity.pieces_of("\n\n"), [])
        self.assertEqual(perplexity.pieces_of("one " * 1000), ["one " * 1000])

    def test_the_first_entry_of_a_position_is_its_token(self):
        self.assertEqual(perplexity.losses_in(answer_of(-2.0, -3.0)), [2.0, 3.0])

    def test_ratios_compare_token_by_token(self):
        reference = [1.0, 5.0, 3.0]
        value, ratio, error = perplexity.summary(reference, reference)
        self.assertAlmostEqual(value, math.exp(3.0))
        self.assertEqual((ratio, error), (1.0, 0.0))
        _, ratio, error = perplexity.summary([loss + 0.5 for loss in reference], reference)
        self.assertAlmostEqual(ratio, math.exp(0.5))
        self.assertAlmostEqual(error, 0.0)

    def test_other_tokenizers_are_refused(self):
        with self.assertRaises(SystemExit):
            perplexity.summary([1.0], [1.0, 2.0])

    def test_held_stories_are_the_same_each_time_and_not_of_the_training_text(self):
        stories = perplexity.held_stories(3)
        import corpus  # pylint: disable=import-outside-toplevel,import-error  # now on the path
        self.assertEqual(stories, perplexity.held_stories(3))
        trained = {corpus.text_of(corpus.document("train", index)) for index in range(30)}
        self.assertEqual(len(set(stories)), 3)
        self.assertFalse(trained & set(stories))


if __name__ == "__main__":
    unittest.main()
