"""Conversations: requests for stories, questions about them, facts, sums and small talk.

A conversation is a list of (role, content) pairs, user and assistant in turn, sometimes after a
system message.
"""

import facts
import grammar
import lexicon
import scene as scenes
import stories


def _a(words):
    return grammar.finish("x a_ " + words)[2:]


def _name(rng):
    if rng.random() < 0.15:
        return grammar.pseudo_word(rng).capitalize()
    return rng.choice(lexicon.FEMALE_NAMES + lexicon.MALE_NAMES)


# --- Stories -----------------------------------------------------------------------------------

STORY_VERBS = ["Tell me", "Please tell me", "Write", "Can you tell me", "Could you write",
               "I would like", "Give me", "Please write", "tell me", "Make up", "I want",
               "Can you write"]
STORY_NOUNS = {"short": ["short story", "very short story", "little tale", "short tale"],
               "medium": ["story", "story", "story", "tale", "bedtime story", "nice story"],
               "long": ["long story", "long tale", "very long story"]}


def _noun(rng, words):
    return grammar.pseudo_word(rng) if rng.random() < 0.08 else rng.choice(words)


def _wishes(rng):
    """Draws what the user asks for: (phrase, wishes for the scene)."""
    wishes, parts, place = {}, [], ""
    hero_kind = _noun(rng, lexicon.ANIMALS * 2 + lexicon.PEOPLE + lexicon.PEOPLE_F
                      + lexicon.PEOPLE_M)
    trait = rng.choice(lexicon.TRAITS) if rng.random() < 0.3 else None
    named = rng.random() < 0.25
    hero = scenes.draw_character(rng, kind=hero_kind, trait=trait)
    if named and rng.random() < 0.2:
        hero.name = grammar.pseudo_word(rng).capitalize()
    if rng.random() < 0.85:
        wishes["hero"] = hero
        described = _a(f"{trait} {hero_kind}" if trait else hero_kind)
        if named:
            described += f" {rng.choice(['named', 'called'])} {hero.name}"
        parts.append(described)
    if rng.random() < 0.6 or not parts:
        adjective = rng.choice(lexicon.OBJECT_ADJECTIVES) if rng.random() < 0.3 else None
        noun = _noun(rng, lexicon.OBJECTS)
        wishes["object"] = scenes.draw_object(rng, noun, adjective)
        parts.append(_a(f"{adjective} {noun}" if adjective else noun))
    elif rng.random() < 0.35:
        friend = scenes.draw_character(rng, female=not hero.female)
        if friend.kind != hero.kind and friend.trait != hero.trait:
            wishes["friend"] = friend
            parts.append(_a(friend.kind))
    if rng.random() < 0.15:
        wishes["place"] = scenes.draw_place(rng)
        place = (f" {rng.choice(lexicon.PREPOSITIONS)} the {wishes['place'].adjective} "
                 f"{wishes['place'].noun}")
    if "friend" not in wishes:
        rng.shuffle(parts)
    return f"{rng.choice(['about', 'about', 'about', 'with'])} {' and '.join(parts)}{place}", wishes


def story_request(rng, length=None):
    """Returns (question, answer, scene)."""
    length = length or rng.choice(("short", "short", "medium", "medium", "medium", "long"))
    verb, noun = rng.choice(STORY_VERBS), rng.choice(STORY_NOUNS[length])
    phrase, wishes = ("", {}) if rng.random() < 0.15 else _wishes(rng)
    question = f"{verb} {_a(noun)}{' ' + phrase if phrase else ''}"
    question += "?" if verb.startswith("C") else rng.choice([".", ".", ".", "!", ""])
    text, scene = stories.tell(rng, wishes, length)
    return question, text, scene


def story_questions(rng, scene, text):
    """Questions about a story that was just told, with their answers."""
    h, f, o, p = (scene.entities[k] for k in "hfop")
    asked = [
        (["Who is the story about?", "Who was the story about?", "Who is the hero of the story?"],
         f"The story is about {h.name} the {h.kind}."),
        ([f"What was the name of the {h.kind}?", f"What was the {h.kind} called?"],
         f"The {h.kind} was called {h.name}."),
        ([f"Who was {h.name}?", f"Who is {h.name}?"], f"{h.name} was {_a(h.trait)} {h.kind}."),
        ([f"Was {h.name} {_a(h.kind)}?"], f"Yes, {h.name} was {_a(h.kind)}."),
    ]
    if f.name in text:
        asked += [
            (["Who was the friend?", f"Who was the friend of {h.name}?", f"Who was {f.name}?"],
             f"{f.name} was {_a(f.trait)} {f.kind}." if f.trait in text
             else f"{f.name} was {_a(f.kind)}."),
            ([f"What was the name of the {f.kind}?"], f"The {f.kind} was called {f.name}."),
            ([f"Was {f.name} {_a(h.kind)}?"], f"No, {f.name} was {_a(f.kind)}."),
        ]
    if f"{o.adjective} {o.noun}" in text:
        asked += [(["What thing was in the story?", "Which thing was the story about?"],
                   f"It was {_a(o.adjective)} {o.noun}."),
                  ([f"How was the {o.noun}?", f"What kind of {o.noun} was it?"],
                   f"It was {_a(o.adjective)} {o.noun}.")]
    if f"{p.adjective} {p.noun}" in text:
        asked.append((["Where was it?", f"Where did it happen?", f"Where does the story begin?"],
                      f"It begins near the {p.adjective} {p.noun}."))
    questions, answer = rng.choice(asked)
    return rng.choice(questions), answer


# --- Facts and sums ----------------------------------------------------------------------------

def _fact_colour(rng):
    thing, colour = rng.choice(list(facts.COLOURS.items()))
    question = rng.choice(["What colour is {}?", "Which colour is {}?", "What color is {}?",
                           "what colour is {}?", "Tell me the colour of {}."]).format(thing)
    return question, f"{thing[0].upper()}{thing[1:]} is {colour}."


def _fact_sound(rng):
    animal, sound = rng.choice(list(facts.SOUNDS.items()))
    return rng.choice([f"What sound does {_a(animal)} make?", f"What does {_a(animal)} do?",
                       f"What does {_a(animal)} say?"]), f"{_a(animal).capitalize()} {sound}."


def _fact_legs(rng):
    animal, count = rng.choice(list(facts.LEGS.items()))
    return f"How many legs does {_a(animal)} have?", f"{_a(animal).capitalize()} has {count} legs."


def _fact_home(rng):
    animal, home = rng.choice(list(facts.HOMES.items()))
    return rng.choice([f"Where does {_a(animal)} live?", f"Where can I find {_a(animal)}?"]), (
        f"{_a(animal).capitalize()} lives {home}.")


def _fact_baby(rng):
    animal, baby = rng.choice(list(facts.BABIES.items()))
    return rng.choice([f"What is a young {animal} called?", f"What is the baby of {_a(animal)}?",
                       f"What is a baby {animal} called?"]), (
        f"A young {animal} is called {_a(baby)}.")


def _fact_opposite(rng):
    word, other = rng.choice(list(facts.OPPOSITES.items()))
    return rng.choice([f"What is the opposite of {word}?", f"Tell me the opposite of {word}."]), (
        f"The opposite of {word} is {other}.")


def _fact_capital(rng):
    land, city = rng.choice(list(facts.CAPITALS.items()))
    return rng.choice([f"What is the capital of {land}?", f"Which city is the capital of {land}?",
                       f"Tell me the capital of {land}."]), f"The capital of {land} is {city}."


def _fact_use(rng):
    thing, use = rng.choice(list(facts.USES.items()))
    return rng.choice([f"What is {_a(thing)} for?", f"What does {_a(thing)} do?",
                       f"What do we need {_a(thing)} for?"]), f"{_a(thing).capitalize()} {use}."


def _fact_taste(rng):
    thing, taste = rng.choice(list(facts.TASTES.items()))
    return f"How does {thing} taste?", f"{thing.capitalize()} tastes {taste}."


def _fact_order(rng):
    items, what = rng.choice([(facts.DAYS, "day"), (facts.MONTHS, "month"),
                              (facts.LETTERS, "letter")])
    i = rng.randrange(len(items) - 1)
    if rng.random() < 0.6:
        return f"Which {what} comes after {items[i]}?", f"{items[i + 1]} comes after {items[i]}."
    return f"Which {what} comes before {items[i + 1]}?", f"{items[i]} comes before {items[i + 1]}."


def _fact_size(rng):
    i, j = sorted(rng.sample(range(len(facts.SIZES)), 2))
    small, big = _a(facts.SIZES[i]), _a(facts.SIZES[j])
    first, second = rng.sample([small, big], 2)
    if rng.random() < 0.5:
        return (f"Which is bigger, {first} or {second}?",
                f"{big.capitalize()} is bigger than {small}.")
    return f"Which is smaller, {first} or {second}?", f"{small.capitalize()} is smaller than {big}."


def _fact_other(rng):
    return rng.choice(list(facts.COUNTS.items()))


FACT_KINDS = [_fact_colour, _fact_colour, _fact_sound, _fact_legs, _fact_home, _fact_baby,
              _fact_opposite, _fact_capital, _fact_use, _fact_taste, _fact_order, _fact_size,
              _fact_other]

PLUS = ["What is {} plus {}?", "What is {} + {}?", "How much is {} plus {}?", "Add {} and {}.",
        "{} + {}", "what is {} plus {}"]
MINUS = ["What is {} minus {}?", "What is {} - {}?", "How much is {} minus {}?"]


def sum_question(rng):
    kind = rng.random()
    if kind < 0.55:
        a, b = rng.randint(0, 12), rng.randint(0, 12)
        return rng.choice(PLUS).format(a, b), f"{a} plus {b} is {a + b}."
    if kind < 0.8:
        a, b = sorted((rng.randint(0, 12), rng.randint(0, 12)), reverse=True)
        return rng.choice(MINUS).format(a, b), f"{a} minus {b} is {a - b}."
    if kind < 0.9:
        a, b = rng.sample(range(21), 2)
        return f"Which is larger, {a} or {b}?", f"{max(a, b)} is larger than {min(a, b)}."
    a = rng.randint(0, 15)
    b = a + rng.randint(2, 8)
    return f"Count from {a} to {b}.", ", ".join(str(i) for i in range(a, b + 1)) + "."


# --- Small talk and memory ---------------------------------------------------------------------

def small_talk(rng):
    questions, answers = rng.choice(facts.IDENTITY)
    return rng.choice(questions), rng.choice(answers)


def unknown(rng):
    topic = grammar.pseudo_word(rng) if rng.random() < 0.5 else rng.choice(facts.UNKNOWN_TOPICS)
    question = rng.choice(facts.UNKNOWN_QUESTIONS)
    text = question.replace("{w}", topic).replace("{W}", topic[0].upper() + topic[1:])
    return text, rng.choice(facts.UNKNOWN_ANSWERS)


def repeat(rng):
    pool = [t for t in stories.SCENERY + stories.MEET_FRIEND if "{h" not in t]
    sentence = grammar.expand(rng.choice(pool), rng, scenes.Scene(rng))
    return rng.choice(["Repeat after me: ", "Say: ", "Please repeat: "]) + sentence, sentence


def memory(rng):
    """Two turns: the user says something about themselves and asks for it later."""
    name, kind = _name(rng), rng.random()
    if kind < 0.5:
        told = rng.choice([f"My name is {name}.", f"I am {name}.", f"Hello, I am {name}.",
                           f"Hi, my name is {name}."])
        polite = rng.choice(["How can I help you?", "Nice to meet you."])
        return [(told, f"Hello, {name}! {polite}"),
                (rng.choice(["What is my name?", "Who am I?", "Do you know my name?"]),
                 f"Your name is {name}.")]
    if kind < 0.75:
        colour = rng.choice(lexicon.COLOURS)
        return [(f"My favourite colour is {colour}.", f"{colour.capitalize()} is a lovely colour!"),
                ("What is my favourite colour?", f"Your favourite colour is {colour}.")]
    animal = _noun(rng, lexicon.ANIMALS)
    return [(f"I have {_a(animal)} called {name}.", f"{name} is a lovely name for {_a(animal)}!"),
            (rng.choice([f"What is the name of my {animal}?", f"What is my {animal} called?"]),
             f"Your {animal} is called {name}.")]


SYSTEM = ["You are a helpful assistant.", "You are a story teller.", "Answer briefly.",
          "You are the Sluice demo model.", "You are a friendly assistant who tells stories.",
          "Be kind and polite."]


def conversation(rng, budget, story_share=1.0):
    """A conversation of about `budget` words; below 1.0, `story_share` of the requests for stories
    are left and the others become something else."""
    messages, words, pending = [], 0, []
    if rng.random() < 0.25:
        messages.append(("system", rng.choice(SYSTEM)))
    told = None
    while True:
        kind = rng.random()
        if kind < 0.33 and story_share < 1.0 and rng.random() >= story_share:
            kind = rng.uniform(0.33, 1.0)
        if pending and rng.random() < 0.4:
            question, answer = pending.pop()
        elif told and rng.random() < 0.6:
            question, answer = story_questions(rng, *told)
            told = told if rng.random() < 0.4 else None
        elif kind < 0.33:
            length = "short" if budget < 120 else None
            question, answer, scene = story_request(rng, length)
            told = (scene, answer)
        elif kind < 0.58:
            question, answer = rng.choice(FACT_KINDS)(rng)
        elif kind < 0.76:
            question, answer = sum_question(rng)
        elif kind < 0.84:
            question, answer = small_talk(rng)
        elif kind < 0.88:
            question, answer = unknown(rng)
        elif kind < 0.91:
            question, answer = repeat(rng)
        else:
            (question, answer), later = memory(rng)
            pending = [later]
        messages += [("user", question), ("assistant", answer)]
        words += len(question.split()) + len(answer.split())
        if words >= budget and not pending:
            return messages
