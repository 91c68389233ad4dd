"""A small template language for sentences.

`[a|b|c]`   one of the alternatives (they nest)
`<words>`   a random entry of a lexicon list
`{h.his}`   an attribute of an entity of the scene (see scene.py)
`a_ `       "a" or "an", whichever fits the next word

Everything is drawn from the `random.Random` handed in, so a seed names a text.
"""

import functools
import re

import lexicon

LISTS = {
    "adverb": lexicon.ADVERBS, "weather": lexicon.WEATHER, "daytime": lexicon.DAYTIMES,
    "season": lexicon.SEASONS, "motion": lexicon.MOTION, "said": lexicon.SAID,
    "looked": lexicon.LOOKED, "felt": lexicon.GOOD_FELT + lexicon.BAD_FELT,
    "good": lexicon.GOOD_FELT,
    "creatures": lexicon.CREATURES, "cverb": lexicon.CREATURE_VERBS, "plants": lexicon.PLANTS,
    "colour": lexicon.COLOURS, "number": lexicon.NUMBERS, "food": lexicon.FOODS,
    "foodadj": lexicon.FOOD_ADJECTIVES, "sound": lexicon.SOUNDS, "near": lexicon.PREPOSITIONS,
    "over": lexicon.OVER, "job": lexicon.JOBS, "material": lexicon.MATERIALS,
    "building": lexicon.BUILDINGS, "virtue": lexicon.VIRTUES, "hiding": lexicon.HIDING,
    "trait": lexicon.TRAITS, "oadj": lexicon.OBJECT_ADJECTIVES, "object": lexicon.OBJECTS,
    "weekday": lexicon.WEEKDAYS, "sayhow": lexicon.SPEECH_ADVERBS, "bad": lexicon.BAD_FELT,
    "bodyfelt": lexicon.BODY_FELT, "plantadj": lexicon.PLANT_ADJECTIVES,
    "hadj": lexicon.HIDING_ADJECTIVES, "badj": lexicon.BUILDING_ADJECTIVES,
    "sadj": lexicon.SOUND_ADJECTIVES,
    "padj": lexicon.PLACE_ADJECTIVES, "place": lexicon.PLACES,
}

_TOKEN = re.compile(r"\[|\]|\||<\w+>|\{[\w.]+\}|[^\[\]|<{]+")
_ARTICLE = re.compile(r"\b([Aa])_ (\w+)")
_SENTENCE_START = re.compile(r'(^|[.!?] |(?:^| )")([a-z])')


@functools.lru_cache(maxsize=None)
def _parse(template):
    """Turns a template into nested tuples: ("seq", ...), ("alt", ...), ("list"|"ref"|"text", s)."""
    tokens = _TOKEN.findall(template)
    if "".join(tokens) != template:
        raise ValueError(f"bad template: {template}")
    position = 0

    def sequence(depth):
        nonlocal position
        parts = []
        while position < len(tokens):
            token = tokens[position]
            if token in ("]", "|"):
                if depth == 0:
                    raise ValueError(f"stray {token} in template: {template}")
                break
            position += 1
            if token == "[":
                options = [sequence(depth + 1)]
                while tokens[position] == "|":
                    position += 1
                    options.append(sequence(depth + 1))
                position += 1
                parts.append(("alt", tuple(options)))
            elif token[0] == "<":
                parts.append(("list", token[1:-1]))
            elif token[0] == "{":
                parts.append(("ref", token[1:-1]))
            else:
                parts.append(("text", token))
        return ("seq", tuple(parts))

    return sequence(0)


def _render(node, rng, scene, out):
    kind, value = node
    if kind == "text":
        out.append(value)
    elif kind == "seq":
        for part in value:
            _render(part, rng, scene, out)
    elif kind == "alt":
        _render(rng.choice(value), rng, scene, out)
    elif kind == "list":
        out.append(rng.choice(LISTS[value]))
    else:
        out.append(scene.lookup(value))


def _article(match):
    letter, word = match.group(1), match.group(2)
    vowel = word[0].lower() in "aeiou" and word not in lexicon.VOWEL_SOUND_EXCEPTIONS
    return f"{letter}n {word}" if vowel else f"{letter} {word}"


def finish(text):
    """Chooses a/an and capitalises the starts of sentences."""
    text = _ARTICLE.sub(_article, text)
    return _SENTENCE_START.sub(lambda m: m.group(1) + m.group(2).upper(), text)


def expand(template, rng, scene=None):
    out = []
    _render(_parse(template), rng, scene, out)
    return finish("".join(out))


def pattern(template, anything=r"[\w' -]+?"):
    """A regular expression for what a template can say (entities match `anything`)."""
    def walk(node):
        kind, value = node
        if kind == "text":
            return re.sub(r"\b([Aa])_", r"\1n?", re.escape(value))
        if kind == "seq":
            return "".join(map(walk, value))
        if kind == "alt":
            return "(?:" + "|".join(map(walk, value)) + ")"
        if kind == "list":
            return "(?:" + "|".join(map(re.escape, LISTS[value])) + ")"
        return anything
    return re.compile(walk(_parse(template)), re.IGNORECASE)


def pseudo_word(rng):
    """An invented word, so that the model learns to copy and not only to recite."""
    return "".join(rng.choice(lexicon.WORD_SYLLABLES) for _ in range(rng.choice((2, 2, 3))))
