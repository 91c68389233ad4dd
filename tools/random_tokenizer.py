"""Byte-level BPE tokenizers of any size for random checkpoints, in tokenizer.json form.

The first merges are learned from the text below; the rest join learned tokens in a fixed order, so
that a vocabulary of 128,000 is a valid BPE whose every token is readable. Nothing is random."""

import json
import os
from collections import Counter

TEXT = """
The river came down from the hills in the early morning, and the people of the town walked along it
to the market. There were apples and bread and small yellow flowers, and a man who sold books that
no one had read for years. "What is this one about?" asked a girl with a red hat. "It is about a
ship that could not find the sea," he said, "and about the captain, who would not believe it." She
thought about that for a while. Then she gave him two coins and took the book under her arm, and all
the way home she wondered how a ship could be lost on land. Her brother was waiting at the door.
"Where have you been? We are going to the lake, and you said that you would come with us." They went
together through the long grass, over the wooden bridge and between the trees, until they saw the
water shining in front of them. When the sun was low they made a fire, and she read the first pages
aloud. The captain in the story had a map with nothing on it but a line, and under the line it said:
keep walking until you hear the waves. Everyone laughed, because it was only a story; but in the
night, when the others were sleeping, she heard something that was not the wind in the leaves.
A program is a list of things to do: read the input, count the words, print the result, and return
an error when something is missing. In 2024 there were 365 days and 1 more; 10 + 20 = 30, and
100 / 4 = 25. for (int i = 0; i < n; ++i) { sum += values[i]; } return sum; def main(): print("hi")
"""

SPECIAL_TOKENS = {
    "llama": {128000: "<|begin_of_text|>", 128001: "<|end_of_text|>",
              128006: "<|start_header_id|>", 128007: "<|end_header_id|>",
              128008: "<|eom_id|>", 128009: "<|eot_id|>"},
    "qwen": ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
    "tiny": ["<s>", "</s>", "<|im_start|>", "<|im_end|>"],
}

LLAMA_PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
                 r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN_PATTERN = LLAMA_PATTERN.replace(r"\p{N}{1,3}", r"\p{N}")

LLAMA_TEMPLATE = """{{- bos_token }}
{%- for message in messages %}
{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' }}
{{- message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
{%- endif %}
"""

CHATML_TEMPLATE = """{%- for message in messages %}
{{- '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""


def byte_characters():
    """The printable character that stands for each byte in byte-level BPE."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    table = {byte: chr(byte) for byte in printable}
    for byte in range(256):
        if byte not in table:
            table[byte] = chr(256 + len(table) - len(printable))
    return table


def words(text, table):
    """Counts of words with their leading space, as sequences of byte characters."""
    counts = Counter()
    for i, word in enumerate(text.split()):
        raw = ("" if i == 0 else " ") + word
        counts[tuple(table[b] for b in raw.encode())] += 1
    return counts


def join_pair(symbols, pair):
    out = []
    for symbol in symbols:
        if out and (out[-1], symbol) == pair:
            out[-1] += symbol
        else:
            out.append(symbol)
    return tuple(out)


def learn_merges(limit, table):
    counts = words(TEXT, table)
    merges = []
    while len(merges) < limit:
        pairs = Counter()
        for symbols, count in counts.items():
            for pair in zip(symbols, symbols[1:]):
                pairs[pair] += count
        if not pairs:
            break
        best = max(pairs, key=lambda p: (pairs[p], p))
        if pairs[best] < 2:
            break
        merges.append(best)
        counts = Counter({join_pair(s, best): n for s, n in counts.items()})
    return merges


def make_bpe(size):
    """(vocabulary, merges) of exactly `size` tokens, of which the first 256 are the bytes."""
    if size < 256:
        raise ValueError(f"a byte-level vocabulary has at least 256 tokens, not {size}")
    table = byte_characters()
    tokens = [table[b] for b in range(256)]
    known = set(tokens)
    merges = []
    for pair in learn_merges(size - 256, table):
        if pair[0] + pair[1] not in known:
            merges.append(pair)
            tokens.append(pair[0] + pair[1])
            known.add(tokens[-1])
    space = table[ord(" ")]
    pieces = [t for t in tokens if all(c.isascii() and c.isalpha() for c in t.removeprefix(space))
              and t != space]
    endings = [t for t in pieces if not t.startswith(space)]
    while len(tokens) < size:
        made = []
        for total in range(len(pieces) + len(endings) - 1):
            for i in range(max(0, total - len(endings) + 1), min(total + 1, len(pieces))):
                pair = (pieces[i], endings[total - i])
                if len(tokens) < size and pair[0] + pair[1] not in known:
                    merges.append(pair)
                    tokens.append(pair[0] + pair[1])
                    known.add(tokens[-1])
                    made.append(tokens[-1])
        if not made:
            raise ValueError(f"a vocabulary of {size} is larger than this tool can make")
        pieces = made
    return tokens, merges


def split_by(pattern):
    return {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False,
         "use_regex": False}]}


def special_tokens(kind, vocab_size):
    """id -> text; what is left of the vocabulary below the first of them is BPE."""
    if kind == "llama":
        named = SPECIAL_TOKENS["llama"]
        return {i: named.get(i, f"<|reserved_special_token_{i - 128000}|>")
                for i in range(128000, vocab_size)}
    names = SPECIAL_TOKENS[kind]
    # As Qwen's, when there is room: the rows after the last token belong to none.
    first = 151643 if vocab_size > 151643 + len(names) else vocab_size - len(names)
    return {first + i: name for i, name in enumerate(names)}


def tokenizer_json(kind, vocab_size):
    special = special_tokens(kind, vocab_size)
    tokens, merges = make_bpe(min(special))
    pattern = QWEN_PATTERN if kind == "qwen" else LLAMA_PATTERN
    byte_level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True,
                  "use_regex": True}
    processor = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False,
                 "use_regex": False}
    if kind != "qwen":
        bos = special[min(special)]
        a, b = ({"Sequence": {"id": x, "type_id": i}} for i, x in enumerate("AB"))
        mark = {"SpecialToken": {"id": bos, "type_id": 0}}
        processor = {"type": "TemplateProcessing", "single": [mark, a],
                     "pair": [mark, a, {"SpecialToken": {"id": bos, "type_id": 1}}, b],
                     "special_tokens": {bos: {"id": bos, "ids": [min(special)], "tokens": [bos]}}}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": i, "content": text, "single_word": False, "lstrip": False,
                          "rstrip": False, "normalized": False, "special": True}
                         for i, text in special.items()],
        "normalizer": {"type": "NFC"} if kind == "qwen" else None,
        "pre_tokenizer": split_by(pattern),
        "post_processor": processor,
        "decoder": byte_level,
        "model": {
            "type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
            "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
            # Both forms that checkpoints in the wild have.
            "ignore_merges": kind == "llama",
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": [list(m) if kind == "qwen" else " ".join(m) for m in merges],
        },
    }


def write_tokenizer(directory, kind, vocab_size, max_length):
    special = special_tokens(kind, vocab_size)
    by_name = {text: i for i, text in special.items()}
    with open(os.path.join(directory, "tokenizer.json"), "w", encoding="utf-8") as out:
        json.dump(tokenizer_json(kind, vocab_size), out, ensure_ascii=False)
    first = special[min(special)]
    config = {
        "added_tokens_decoder": {str(i): {"content": text, "lstrip": False, "normalized": False,
                                          "rstrip": False, "single_word": False, "special": True}
                                 for i, text in special.items()},
        "bos_token": None if kind == "qwen" else first,
        "eos_token": {"llama": "<|eot_id|>", "qwen": "<|im_end|>", "tiny": "</s>"}[kind],
        "clean_up_tokenization_spaces": False,
        "model_max_length": max_length,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    template = LLAMA_TEMPLATE if kind == "llama" else CHATML_TEMPLATE
    if kind == "qwen":
        with open(os.path.join(directory, "chat_template.jinja"), "w", encoding="utf-8") as out:
            out.write(template)
    else:
        config["chat_template"] = template
    with open(os.path.join(directory, "tokenizer_config.json"), "w", encoding="utf-8") as out:
        json.dump(config, out, indent=2)
    return by_name
