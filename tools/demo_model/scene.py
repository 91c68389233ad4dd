"""The entities of a story, drawn once and then kept through all its sentences."""

import dataclasses

import grammar
import lexicon


@dataclasses.dataclass
class Character:
    name: str
    kind: str
    trait: str
    female: bool

    def word(self, attribute, rng):
        if attribute == "name":
            return self.name
        if attribute == "ref":
            return self.name if rng.random() < 0.6 else f"the {self.kind}"
        if attribute == "kind":
            return self.kind
        if attribute == "trait":
            return self.trait
        pronouns = {"he": "she", "him": "her", "his": "her", "himself": "herself"}
        return pronouns[attribute] if self.female else attribute


@dataclasses.dataclass
class Thing:
    """An object or a place: an adjective and a noun."""
    adjective: str
    noun: str

    def word(self, attribute, rng):
        if attribute == "noun" or (attribute == "ref" and rng.random() < 0.45):
            return self.noun
        return f"{self.adjective} {self.noun}" if self.adjective else self.noun


class Scene:
    """The entities of one story. `{h}` hero, `{f}` friend, `{o}` object, `{p}` home,
    `{q}` and `{r}` two other places."""

    def __init__(self, rng, wishes=None):
        wishes = dict(wishes or {})
        self.rng = rng
        hero = wishes.get("hero") or draw_character(rng)
        friend = wishes.get("friend")
        while friend is None or friend.kind == hero.kind or friend.trait == hero.trait:
            friend = draw_character(rng, female=not hero.female)
        thing = wishes.get("object") or draw_object(rng)
        home = wishes.get("place") or draw_place(rng)
        places = [home]
        while len(places) < 3:
            place = draw_place(rng)
            if all(place.noun != other.noun for other in places) and place.noun != thing.noun:
                places.append(place)
        self.entities = {"h": hero, "f": friend, "o": thing,
                         "p": places[0], "q": places[1], "r": places[2]}

        self.mentioned = set()

    def lookup(self, key):
        """The text for `{key}`; a thing or place is named in full when first mentioned."""
        entity, _, attribute = key.partition(".")
        if entity in "opqr" and not attribute and entity not in self.mentioned:
            self.mentioned.add(entity)
            return self.entities[entity].word("full", self.rng)
        if not attribute:
            attribute = "name" if entity in "hf" else "ref"
        return self.entities[entity].word(attribute, self.rng)


def draw_character(rng, kind=None, female=None, trait=None, name=None):
    if female is None:
        if kind in lexicon.PEOPLE_F or kind in lexicon.PEOPLE_M:
            female = kind in lexicon.PEOPLE_F
        else:
            female = rng.random() < 0.5
    if kind is None:
        people = lexicon.PEOPLE + (lexicon.PEOPLE_F if female else lexicon.PEOPLE_M)
        kind = rng.choice(lexicon.ANIMALS if rng.random() < 0.7 else people)
    if name is None:
        name = rng.choice(lexicon.FEMALE_NAMES if female else lexicon.MALE_NAMES)
    return Character(name, kind, trait or rng.choice(lexicon.TRAITS), female)


def draw_object(rng, noun=None, adjective=None):
    if noun is None:
        noun = (grammar.pseudo_word(rng) if rng.random() < 0.01 else rng.choice(lexicon.OBJECTS))
    return Thing(adjective or rng.choice(lexicon.OBJECT_ADJECTIVES), noun)


def draw_place(rng, noun=None, adjective=None):
    return Thing(adjective or rng.choice(lexicon.PLACE_ADJECTIVES),
                 noun or rng.choice(lexicon.PLACES))
