"""Trains the byte-level BPE tokenizer of the demo model on generated text."""

import argparse

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

import corpus
import special_tokens as special


def build(documents, vocabulary):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=special.TOKENS, show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()))
    texts = (corpus.text_of(corpus.document("tokenizer", i)) for i in range(documents))
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<|bos|> $A", pair="<|bos|> $A $B",
        special_tokens=[("<|bos|>", special.BOS)])
    return tokenizer


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=12000)
    parser.add_argument("--vocabulary", type=int, default=3072)
    parser.add_argument("output", help="tokenizer.json to write")
    options = parser.parse_args()
    build(options.documents, options.vocabulary).save(options.output)


if __name__ == "__main__":
    main()
