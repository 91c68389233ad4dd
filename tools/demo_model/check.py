"""Checks an exported demo model: whether its text is new, grammatical and about the request, its
answers are right, and the long context works. Prints a Markdown report; the exit status is 1 when a
bar is missed."""

import argparse
import collections
import random
import re
import sys

import numpy as np
import torch

import chat
import corpus
import facts
import grammar
import lexicon
import scene
import special_tokens as special
import stories
from sampling import Demo

BARS = {"word 8-grams not in the training text": 0.80,
        "token 8-grams not in the training text": 0.80,
        "sentences our grammar can derive": 0.90, "stories with all that was asked for": 0.90,
        "facts": 0.90, "sums": 0.90, "short answers in held-out conversations": 0.80}
CHATS = [
    ["Tell me a story about a fox and a lantern."],
    ["Who are you?"], ["Hello!"],
    ["What colour is the sky?"], ["What is 3 plus 4?"], ["What is the capital of France?"],
    ["How many legs does a spider have?", "And what does a spider do?"],
    ["My name is Alice.", "What is 7 plus 5?", "What is my name?"],
    ["Tell me a short story about a brave girl named Mira and a golden key.",
     "Who is the story about?", "What kind of key was it?", "Thank you!"],
    ["Which is bigger, a mouse or a horse?", "What is the opposite of hot?", "Count from 3 to 9."],
    ["Who is the president of the moon?"],
    ["Write a long story about a wizard named Orin and a telescope."],
]


def words_of(text):
    return re.findall(r"[\w']+", text.lower())


def grams(items):
    return [hash(tuple(items[i:i + 8])) for i in range(len(items) - 7)]


def training_documents(ranges):
    """All documents of ranges such as "train:0:43008"."""
    for text in ranges:
        split, first, last = text.split(":")
        for index in range(int(first), int(last)):
            yield corpus.document(split, index)


def seen_in_training(wanted_words, wanted_tokens, ranges, tokenizer):
    """Which of the wanted 8-grams occur in the training text."""
    seen_words, seen_tokens = set(), set()
    for document in training_documents(ranges):
        for _, text in document:
            seen_words.update(g for g in grams(words_of(text)) if g in wanted_words)
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            seen_tokens.update(g for g in grams(ids) if g in wanted_tokens)
    return seen_words, seen_tokens


def novelty(groups, ranges, tokenizer):
    """groups: name -> texts. Returns name -> (word share, token share, word 8-grams)."""
    def ids_of(text):
        return tokenizer.encode(text, add_special_tokens=False).ids
    word_grams = {n: [g for t in texts for g in grams(words_of(t))] for n, texts in groups.items()}
    token_grams = {n: [g for t in texts for g in grams(ids_of(t))] for n, texts in groups.items()}
    seen_words, seen_tokens = seen_in_training(
        set().union(*word_grams.values()), set().union(*token_grams.values()), ranges, tokenizer)

    def share(items, seen):
        return sum(g not in seen for g in items) / max(1, len(items))
    return {n: (share(word_grams[n], seen_words), share(token_grams[n], seen_tokens),
                len(word_grams[n])) for n in groups}


def sentence_patterns():
    pools = [value for name, value in vars(stories).items()
             if name.isupper() and isinstance(value, list)
             and all(isinstance(item, str) for item in value)]
    return [grammar.pattern(template) for pool in pools for template in pool]


def sentences_of(text):
    """Sentences of a story; a full stop inside a quotation ends none, unless the quotation ends."""
    return [s for s in re.split(r'(?<=[.!?])\s+(?=[A-Z"])|(?<=[.!?]")\s+(?=[A-Z"])', text) if s]


class Grammar:
    """Can one of our templates say this sentence, with known words and a right a/an?"""

    def __init__(self):
        self.patterns = sentence_patterns()
        self.articles = re.compile(r"\b(an?) (\w+)", re.IGNORECASE)

    def derives(self, sentence):
        for article, word in self.articles.findall(sentence):
            vowel = word[0].lower() in "aeiou" and word not in lexicon.VOWEL_SOUND_EXCEPTIONS
            if (article.lower() == "an") != vowel:
                return False
        return any(p.fullmatch(sentence) for p in self.patterns)

    def share(self, texts):
        """(share of derivable sentences, examples of others, count)"""
        good, total, others = 0, 0, []
        for text in texts:
            parts, i = sentences_of(text), 0
            while i < len(parts):
                # Some templates hold two sentences.
                two = " ".join(parts[i:i + 2])
                total += 1
                if self.derives(parts[i]):
                    good += 1
                elif i + 1 < len(parts) and self.derives(two):
                    good, i = good + 1, i + 1
                else:
                    others.append(parts[i])
                i += 1
        return good / max(1, total), others, total


def names_in(text):
    known = set(lexicon.FEMALE_NAMES + lexicon.MALE_NAMES)
    return [w for w in re.findall(r"\b[A-Z][a-z]+", text) if w in known]


def story_wishes(count, seed):
    rng, requests = random.Random(seed), []
    while len(requests) < count:
        hero, thing = rng.choice(lexicon.ANIMALS), rng.choice(lexicon.OBJECTS)
        described = [scene.grammar.finish(f"x a_ {noun}")[2:] for noun in (hero, thing)]
        requests.append((f"Tell me a story about {described[0]} and {described[1]}.", hero, thing))
    return requests


def all_facts():
    """Every fact and sum once: (kind, question, answer)."""
    rng, found = random.Random(5), {}
    for kind in chat.FACT_KINDS:
        for _ in range(400):
            question, answer = kind(rng)
            found.setdefault(answer, (kind.__name__, question, answer))
    sums = [("sum", f"What is {a} plus {b}?", f"{a} plus {b} is {a + b}.")
            for a in range(13) for b in range(13)]
    sums += [("difference", f"What is {a} minus {b}?", f"{a} minus {b} is {a - b}.")
             for a in range(13) for b in range(a + 1)]
    return sorted(found.values()), sums


def heldout_answers(count):
    """Conversations of the held-out split whose last answer is short and certain."""
    open_ended = {a for _, answers in facts.IDENTITY for a in answers}
    open_ended |= set(facts.UNKNOWN_ANSWERS)
    chosen, index = [], 1000
    while len(chosen) < count:
        messages = corpus.document("heldout", index)
        index += 1
        if messages[0][0] is None or len(messages) < 4:
            continue
        answer = messages[-1][1]
        if len(answer.split()) > 15 or answer in open_ended or "!" in answer:
            continue
        chosen.append([{"role": r, "content": c} for r, c in messages])
    return chosen


@torch.no_grad()
def loss_by_position(demo, documents=24, edges=(0, 256, 512, 1024, 1536, 2048)):
    """Mean loss of taught tokens by their position, over long held-out conversations."""
    sums, counts, found, index = collections.Counter(), collections.Counter(), 0, 0
    while found < documents:
        ids, taught = corpus.encode(corpus.document("heldout", index), demo.tokenizer_raw)
        index += 1
        if len(ids) < 1600:
            continue
        found += 1
        ids, taught = ids[:demo.context], taught[:demo.context]
        logits = demo.model(torch.tensor([ids])).logits[0, :-1]
        losses = torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:]), reduction="none")
        for position in np.flatnonzero(taught[1:]):
            bucket = max(e for e in edges[:-1] if e <= position)
            sums[bucket] += losses[position].item()
            counts[bucket] += 1
    return [(a, b, sums[a] / max(1, counts[a]), counts[a]) for a, b in zip(edges, edges[1:])]


def check_stories(demo, options, results):
    wishes = story_wishes(options.stories, seed=7)
    groups = {}
    for temperature in (1.0, 0.7):
        told = demo.answer_all([[{"role": "user", "content": q}] for q, _, _ in wishes], limit=700,
                               temperature=temperature, seed=3)
        groups[f"asked-for stories, temperature {temperature}"] = told
        plain = demo.continue_all([[special.BOS]] * (options.stories // 2), 700,
                                  temperature=temperature, seed=4)
        groups[f"stories from nothing, temperature {temperature}"] = [demo.text(p) for p in plain]
    groups["asked-for stories, greedy"] = demo.answer_all(
        [[{"role": "user", "content": q}] for q, _, _ in wishes], limit=700)
    rules = Grammar()
    print("\n| sampled text | words | grammatical sentences | hero and thing kept | two names |"
          "\n|---|---|---|---|---|")
    for name, texts in groups.items():
        share, others, _ = rules.share(texts)
        kept = "-"
        if name.startswith("asked"):
            held = [bool(re.search(rf"\b{h}\b", t)) and bool(re.search(rf"\b{o}\b", t))
                    for t, (_, h, o) in zip(texts, wishes)]
            kept = f"{sum(held) / len(held):.3f}"
        two = sum(len(set(names_in(t))) <= 2 for t in texts) / len(texts)
        words = sum(len(t.split()) for t in texts)
        print(f"| {name} | {words} | {share:.3f} | {kept} | {two:.3f} |")
        if name == "asked-for stories, temperature 0.7":
            results["sentences our grammar can derive"] = share
            results["stories with all that was asked for"] = float(kept)
            examples = others[:8]
    print("\nSentences no template says (temperature 0.7):\n")
    print("\n".join(f"- {s}" for s in examples))
    control, _, total = rules.share([stories.tell(random.Random(i))[0] for i in range(200)])
    print(f"\n(Control: of the generator's own {total} sentences the check accepts {control:.3f}.)")
    return groups


def check_novelty(demo, groups, options, results):
    shares = novelty(groups, options.text, demo.tokenizer_raw)
    print(f"\n| text, against {' and '.join(options.text)} | word 8-grams | absent |"
          " token 8-grams absent |\n|---|---|---|---|")
    for name, (words, tokens, count) in shares.items():
        print(f"| {name} | {count} | {words:.3f} | {tokens:.3f} |")
    sampled = [v for n, v in shares.items() if "temperature" in n]
    results["word 8-grams not in the training text"] = min(v[0] for v in sampled)
    results["token 8-grams not in the training text"] = min(v[1] for v in sampled)


def check_answers(demo, results):
    known, sums = all_facts()
    for name, items in (("facts", known), ("sums", sums)):
        answers = demo.answer_all([[{"role": "user", "content": q}] for _, q, _ in items], limit=48,
                                  batch=128)
        right = [a == want for a, (_, _, want) in zip(answers, items)]
        results[name] = sum(right) / len(right)
        wrong = [(q, a) for ok, a, (_, q, _) in zip(right, answers, items) if not ok]
        print(f"\n{name}: {sum(right)} of {len(right)} right. Wrong, for example: {wrong[:6]}")
    conversations = heldout_answers(300)
    answers = demo.answer_all([c[:-1] for c in conversations], limit=48)
    right = [a == c[-1]["content"] for a, c in zip(answers, conversations)]
    results["short answers in held-out conversations"] = sum(right) / len(right)
    wrong = [(c[-2]["content"], a, c[-1]["content"])
             for ok, a, c in zip(right, answers, conversations) if not ok]
    print(f"\nheld-out conversations, last answer: {sum(right)} of {len(right)} equal. "
          f"Others, for example (question, answer, expected): {wrong[:6]}")


def show_chats(demo):
    print("\nGreedy conversations:\n")
    for turns in CHATS:
        messages = []
        for turn in turns:
            messages.append({"role": "user", "content": turn})
            reply = demo.answer_all([messages], limit=900)[0]
            messages.append({"role": "assistant", "content": reply})
        for message in messages:
            text = message["content"].replace("\n\n", "\n> \n> ")
            print(f"> **{message['role']}**: {text}  ")
        print()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("--text", nargs="+", required=True, metavar="SPLIT:FIRST:END",
                        help="training documents read, as the trainer's log says")
    parser.add_argument("--stories", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    demo = Demo(options.folder)
    demo.tokenizer_raw = demo.tokenizer.backend_tokenizer
    results = {}
    groups = check_stories(demo, options, results)
    check_novelty(demo, groups, options, results)
    check_answers(demo, results)
    print("\n| position | loss | tokens |\n|---|---|---|")
    for low, high, loss, count in loss_by_position(demo):
        print(f"| {low} to {high} | {loss:.3f} | {count} |")
    show_chats(demo)
    print("| check | result | bar |\n|---|---|---|")
    for name, bar in BARS.items():
        print(f"| {name} | {results[name]:.3f} | {bar:.2f} |")
    return 0 if all(results[name] >= bar for name, bar in BARS.items()) else 1


if __name__ == "__main__":
    sys.exit(main())
