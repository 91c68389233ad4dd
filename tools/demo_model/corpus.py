"""Writes the training text and turns it into token ids.

Document `i` of a split is made from the seed (split, i) alone, so any part of the text can be made
again. A document is a plain story or a conversation.
"""

import random

import chat
import lexicon
import special_tokens as special
import stories

# "lessons" has few stories and many questions.
SPLIT_SEEDS = {"train": 0, "heldout": 1, "tokenizer": 2, "lessons": 3}


def document(split, index):
    """Returns [(role, content), ...]; a plain story has the one role None."""
    rng = random.Random(index * 8 + SPLIT_SEEDS[split])
    kind = rng.random()
    if split == "lessons" and kind >= 0.1:
        return chat.conversation(rng, rng.choice((10, 30, 60, 120)), story_share=0.15)
    if kind < 0.25:
        length = rng.choice(("short", "medium", "medium", "long"))
        return [(None, stories.tell(rng, length=length)[0])]
    if kind < 0.65:
        return chat.conversation(rng, rng.choice((1, 10, 30, 60)))
    if kind < 0.94:
        return chat.conversation(rng, rng.choice((100, 150, 250)))
    if kind < 0.98:
        return chat.conversation(rng, 480)
    return chat.conversation(rng, 1250)


def text_of(messages):
    return "\n".join(content for _, content in messages)


def encode(messages, tokenizer):
    """Token ids of a document and, per id, whether the model is taught to predict it."""
    ids, taught = [special.BOS], [False]
    for role, content in messages:
        body = tokenizer.encode(content, add_special_tokens=False).ids
        if role is None:
            ids += body + [special.EOS]
            taught += [True] * (len(body) + 1)
        else:
            answer = role == "assistant"
            ids += [special.ROLES[role]] + body + [special.END]
            taught += [False] + [answer] * (len(body) + 1)
    return ids, taught


class CopyMarker:
    """Finds the tokens that repeat a name, kind, thing or place from earlier in the document.

    The trainer gives them more weight at first: looking back is the hardest skill to learn, and its
    small share of the loss is lost among the many free choices of the text.
    """

    WORDS = (lexicon.FEMALE_NAMES + lexicon.MALE_NAMES + lexicon.ANIMALS + lexicon.PEOPLE
             + lexicon.OBJECTS + lexicon.PLACES)

    def __init__(self, tokenizer):
        first = (tokenizer.encode(" " + word, add_special_tokens=False).ids for word in self.WORDS)
        self.entities = {ids[0] for ids in first if len(ids) == 1}

    def marks(self, ids):
        seen, marks = set(), []
        for token in ids:
            marks.append(token in seen)
            if token in self.entities:
                seen.add(token)
        return marks


def batches(split, first, count, tokenizer, context, tokens_per_batch, seed):
    """Yields (index of the next unread document, ids, targets, copies): documents `first`
    onwards, sorted by length within pools of documents so that little is padding; -100 marks what
    is not taught, `copies` is 1 where CopyMarker marks the target."""
    marker = CopyMarker(tokenizer)
    rng = random.Random(seed)
    pool_size = 2048
    for start in range(first, first + count, pool_size):
        end = min(start + pool_size, first + count)
        encoded = [encode(document(split, i), tokenizer) for i in range(start, end)]
        encoded = [(ids[:context + 1], taught[:context + 1]) for ids, taught in encoded]
        encoded.sort(key=lambda pair: len(pair[0]))
        groups = _grouped(encoded, tokens_per_batch)
        rng.shuffle(groups)
        for group in groups:
            yield end, *_padded(group, marker)


def _width(ids):
    """Rows are padded to a multiple of 32, so that only few shapes occur."""
    return (len(ids) - 1 + 31) // 32 * 32


def _grouped(encoded, tokens_per_batch):
    """Splits documents, shortest first, into groups that fill about one batch when padded."""
    groups, group = [], []
    for pair in encoded:
        if group and _width(pair[0]) * (len(group) + 1) > tokens_per_batch:
            groups.append(group)
            group = []
        group.append(pair)
    return groups + [group]


def _padded(group, marker):
    import numpy as np  # pylint: disable=import-outside-toplevel  # not needed for text
    width = max(_width(ids) for ids, _ in group)
    ids = np.full((len(group), width), special.PAD, dtype=np.int64)
    targets = np.full((len(group), width), -100, dtype=np.int64)
    copies = np.zeros((len(group), width), dtype=np.float32)
    for row, (document_ids, taught) in enumerate(group):
        n = len(document_ids) - 1
        ids[row, :n] = document_ids[:-1]
        goal = np.array(document_ids[1:])
        targets[row, :n] = np.where(taught[1:], goal, -100)
        copies[row, :n] = marker.marks(document_ids)[1:]
    return ids, targets, copies
