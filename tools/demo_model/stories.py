"""Short stories: a plot is a list of beats, a beat is a list of sentence templates.

Every sentence holds several free choices, so that eight words in a row are hardly ever written
twice; the entities of the scene stay the same from the first sentence to the last.
"""

import grammar
from scene import Scene

OPENINGS = [
    "[Once|Long ago], a_ {h.trait} {h.kind} [named|called] {h} lived <near> the {p}.",
    "[One|On a_] <weather> [<daytime>|<weekday> [morning|afternoon|evening]], {h} the {h.trait} {h.kind} <motion> <adverb> [to|towards|past] the {p}.",
    "{h} was a_ {h.trait} {h.kind} who [lived|worked|had {h.his} home] <near> the {p}.",
    "<near> the {p} lived {h}, a_ {h.trait} {h.kind} who [loved|liked] <food> and <job>.",
    "There was once a_ {h.trait} {h.kind} [named|called] {h}, who spent every <daytime> <job> <near> the {p}.",
    "In the <season>, a_ {h.trait} {h.kind} called {h} [came|moved|<motion>] to the {p}.",
    "{h} the {h.kind} was [always|often|mostly] <good>, for {h.he} lived <near> the {p} with <number> <creatures>.",
    "Everyone <near> the {p} knew {h}, the {h.trait} {h.kind} with the <colour> [coat|hat|scarf|eyes|boots].",
    "It was a_ <weather> [<daytime>|<weekday> [morning|afternoon|evening]], and {h} the {h.trait} {h.kind} was <job> <near> the {p}.",
    "Once upon a time, a_ {h.trait} {h.kind} named {h} [lived|was <job>] <near> the {p}.",
]

MEET_FRIEND = [
    "{h.his} [best|oldest|dearest|only] friend was {f}, a_ {f.trait} {f.kind} who loved <job>.",
    "There {h.he} met {f}, a_ {f.trait} {f.kind} who was <adverb> eating <food>.",
    "<near> the {q} {h.he} saw {f} the {f.trait} {f.kind}, who was <job> <adverb>.",
    "{f} the {f.kind} lived <near> the {q} and was {f.trait}, but [always|often|sometimes] <felt>.",
    "On the way {h.he} met a_ {f.trait} {f.kind} called {f}, who carried <foodadj> <food> in a_ <oadj> bag.",
    "Then a_ {f.trait} {f.kind} <motion> <adverb> out of the {q}, and {f.his} name was {f}.",
    "{h.his} friend {f}, a_ {f.trait} {f.kind}, <motion> over from the {q} with <foodadj> <food>.",
]

SCENERY = [
    "<number> <colour> <creatures> <cverb> <over> the <plants>.",
    "The <weather> air smelled of <plants> and <foodadj> <food>.",
    "<over> the <plants>, <number> <creatures> <cverb> <adverb>.",
    "[The <daytime> was <weather>|It was a_ <weather> <daytime>], and <creatures> <cverb> <over> the <plantadj> <plants>.",
    "A_ <padj> path led past <plantadj> <plants> to the [{q}|{p}].",
    "Some <creatures> <cverb> <adverb> while the [wind|rain|sun|mist|snow] [touched|covered|reached] the <plants>.",
    "<adverb>, a_ <colour> [cloud|leaf|feather|shadow] drifted <over> the <plants>.",
    "Far away a_ <sadj> <sound> was heard, and <number> <creatures> <cverb> <near> the {q}.",
    "{h.he} counted <number> <creatures> and <number> <plantadj> <plants> <near> the [path|gate|wall|road].",
    "{h.ref} ate <foodadj> <food> and <adverb> <looked> at the <plantadj> <plants>.",
    "All around, <plantadj> <plants> [grew|shone|swayed] <adverb>, and the <creatures> <cverb>.",
    "Last <season> <number> <creatures> had <adverb> slept <near> the {p}.",
    "The <plants> were <colour> and <plantadj>, and a_ <sadj> <sound> came from the [{q}|{p}].",
    "<season> had come, and the <plantadj> <plants> smelled of <foodadj> <food>.",
    "A_ <colour> [bird|moth|beetle|butterfly|spider] sat <adverb> on the <plantadj> <plants> and <looked> at {h.him}.",
    "Someone had <adverb> painted <number> <creatures> on a_ <hadj> <hiding> <near> the [{q}|{p}].",
    "In the <weather> light, the {o.noun} looked almost <colour>, and {h.he} felt <felt>.",
]

TALK = [
    '"Do you like <foodadj> <food>?" asked {f} <sayhow>.',
    '"I dreamed of <number> <colour> <creatures>," <said> {h} <sayhow>.',
    '"Have you ever seen such <plantadj> <plants>?" asked {f.ref}.',
    '"[Today|Tonight|This <daytime>|This <season>] I feel <felt>," <said> {h} to the {f.kind}.',
    '"My [uncle|aunt|brother|sister|cousin] has a_ <oadj> <object> <near> the <place>," <said> {f} <sayhow>.',
    '"We should bring some <food> and a_ <oadj> <object>," <said> {f.ref}.',
    '"A_ <trait> friend is better than a_ <oadj> <object>," <said> {h} <sayhow>.',
    '"<virtue> and <virtue> will help us," <said> {f} and <looked> at the <plants>.',
    '"I am tired of <job>, but never of <job>," <said> {f.ref} <sayhow>.',
    '"[When|Before] the <season> comes, I will learn <job> and <job>," <said> {f} <sayhow>.',
    '"These <plantadj> <plants> smell like <foodadj> <food>," <said> {h.ref} <sayhow>.',
    '"I once saw <number> <trait> <creatures> <near> the <place>," <said> {f.ref} <sayhow>.',
    '"Never [trust|wake|follow|feed] a_ <trait> <food> seller on a_ <weather> <daytime>," <said> {f} <sayhow>.',
    '"My feet are <bodyfelt>, but my heart is <good>," <said> {h.ref} <sayhow>.',
    '"If we are <trait>, we will soon be <good>," <said> {h} the {h.kind}.',
]

HERO_ALONE = [
    "{h.he} thought <adverb> about <job>, <food> and the {q}.",
    "{h} <motion> <adverb> <over> the <plants>, and {h.his} [feet|ears|legs|toes] grew <bodyfelt>.",
    "For <number> [hours|minutes|days] {h.ref} <motion> <adverb> past <plantadj> <plants>.",
    "{h.he} <looked> <adverb> at the <plants> and felt <bad>, then <good>.",
    "{h.ref} sat down <near> a_ <hadj> <hiding> and ate <foodadj> <food>.",
    "{h.he} hummed a song about <number> <creatures> and <foodadj> <food>.",
    "{h.his} <colour> [scarf|coat|hat|shirt] was [wet|warm|torn|dusty|thin], and {h.he} <adverb> thought of <foodadj> <food>.",
    "{h.ref} picked <number> <plantadj> <plants> <near> a_ <hadj> <hiding> and felt <felt>.",
    "{h.he} remembered a_ <oadj> <object> from the {q} and <looked> <adverb> at the <creatures>.",
    "{h.he} stopped <job>, <looked> at the {q} and <said> <sayhow>.",
]

HAVE_OBJECT = [
    "{h.his} [favourite|dearest|greatest] thing was a_ {o}, <adverb> kept <near> a_ <hadj> <hiding>.",
    "{h.he} owned a_ {o} and [cleaned|showed|carried|admired] it <adverb> every <daytime>.",
    "{h.he} had a_ {o} that smelled of <plants> and <food>.",
    "A_ <trait> [aunt|uncle|neighbour|cousin|grandmother] had <adverb> given {h.him} a_ {o} for <job>.",
]

FIND_OBJECT = [
    "<near> a_ <hadj> <hiding> {h.ref} [found|saw|discovered|noticed] a_ {o}.",
    "Under the <plantadj> <plants> lay a_ {o}, and {h.he} <looked> at it <adverb>.",
    "{h.ref} <motion> <adverb> to the {q} and found a_ {o} [inside|under|behind] a_ <hiding>.",
    "Something [shone|moved|glittered|lay] among the <plants>: it was a_ {o}, covered with [mud|dust|moss|frost].",
    "While <job> <near> the {q}, {h} [found|picked up|dug up|spotted] a_ {o}.",
]

LOSE_OBJECT = [
    "But one <weather> [<daytime>|<weekday> [morning|afternoon|evening]] the {o} was gone, and {h.ref} felt <bad>.",
    "Then a_ <weather> wind [took|carried|blew] the {o} away, <over> the <plants>.",
    "While {h.he} was <job>, <number> <creatures> <adverb> took the {o}.",
    "On the way to the {q}, {h.ref} <adverb> dropped the {o} among the <plants>.",
    "After <job> that <daytime>, {h} could not find the {o}, and {h.he} <said> <sayhow>.",
]

ASK_HELP = [
    '"Will you help me look for my {o}?" asked {h} <sayhow>.',
    '"My {o} is gone, and I am so <bad>," <said> {h.ref} <sayhow>.',
    '"I will help you," <said> {f} <sayhow>, and put away the <foodadj> <food>.',
    "{h.he} told {f} <adverb> about the {o}, and the {f.kind} felt <bad>.",
    '"Did the <creatures> <near> the {r} see it?" asked {f.ref} <sayhow>.',
]

SEARCH = [
    "They looked <near> the {r}, <over> the <plants> and <near> the <hadj> <hiding>.",
    "Together they <motion> <adverb> to the {r} and asked <number> <trait> <creatures>.",
    "First {f.ref} <looked> into a_ <hadj> <hiding>, but found only <foodadj> <food>.",
    "{h.ref} climbed <adverb> over a_ <padj> wall, while {f} <motion> <over> the <plants>.",
    "A_ <trait> old <object> seller <near> the {r} shook {h.his} hand and <said> <sayhow>.",
    "Behind the {r} there were <plantadj> <plants>, <number> <creatures> and a_ <hadj> <hiding>, but no {o.noun}.",
]

FOUND_AGAIN = [
    "At last {f.ref} saw the {o} <near> a_ <hadj> <hiding>, covered with <plants>.",
    "Then {h} <looked> <over> the <plantadj> <plants>, and there was the {o}!",
    '"Here is your {o}!" <said> {f} <sayhow>, and {h.ref} felt <good>.',
    "<number> <trait> <creatures> <adverb> brought the {o} back to {h.him} <near> the {r}.",
    "<adverb> {h.ref} opened a_ <hadj> <hiding>, and the {o} fell out with some <food>.",
]

OWNER = [
    "The {o} belonged to {f}, who had <adverb> lost it <near> the {q} in the <season>.",
    '"That {o} is mine," <said> {f} <sayhow>, "and I lost it while <job>."',
    "{f.ref} <looked> <adverb>, for the {o} had belonged to {f.his} <trait> [grandmother|grandfather|sister|brother].",
    "A_ <oadj> label on the {o} said that it belonged to {f} of the {r}.",
]

GIVE_BACK = [
    "{h.ref} was <felt> and wanted to keep it, but {h.he} <adverb> gave the {o} to {f}.",
    '"Please take it," <said> {h} <sayhow>, and put the {o} on a_ <hadj> <hiding>.',
    "{h} <motion> <adverb> to the {r} and gave the {o.noun} back to the {f.kind}.",
    "So {h.he} cleaned the {o} with <plantadj> <plants> and <adverb> gave it to {f.him}.",
]

THANKS = [
    "{f.ref} thanked {h.him} <adverb> and gave {h.him} <foodadj> <food> with <food>.",
    '"You are a <trait> friend," <said> {f} <sayhow> and offered {h.him} <foodadj> <food>.',
    "{f} felt <good> and <adverb> made <foodadj> <food> for {h} and the <creatures>.",
    '"Thank you, {h}!" <said> the {f.kind} <sayhow>, and <number> <creatures> <cverb> for joy.',
]

QUARREL = [
    '"It is mine!" <said> {f} <sayhow>, because {f.he} wanted the {o} for <job>.',
    "Both {h} and {f} pulled <adverb> at the {o}, while <number> <creatures> <looked> at them.",
    "{f.ref} wanted the {o} for <job>, but {h.ref} wanted it for <job>.",
    '"I saw the {o.noun} first," <said> {h} <sayhow>, and <looked> at the {f.kind}.',
    "They quarrelled <adverb> about the {o} until the <creatures> <near> the {q} <cverb> away.",
]

SHARE = [
    '"Let us share the {o}," <said> {f.ref} <sayhow>, "and eat <food> together."',
    "In the end {h} used the {o} every <daytime>, and {f} used it every <daytime>.",
    "{h.ref} <adverb> offered to share the {o}, and {f.ref} felt <good>.",
    "A_ <trait> old neighbour told them <adverb> to share the {o} and some <foodadj> <food>.",
    "So they <adverb> put the {o} <near> the {r}, where both could use it for <job>.",
]

TROUBLE = [
    "<adverb> {f.ref} fell into a_ <hadj> hole <near> the {q} and [cried|called|shouted] <sayhow>.",
    "Then a_ <weather> storm came over the {q}, and {f} was <bad> and cold <over> the <plants>.",
    "<near> the {q}, {f} <adverb> got stuck between a_ <hadj> <hiding> and the <plants>.",
    "A_ <sadj> <sound> came from the {q}: {f} was lost among the <plantadj> <plants>.",
    "The [river|water|snow|mud] <near> the {q} rose <adverb>, and {f.ref} sat on a_ <hadj> <hiding>.",
]

RESCUE = [
    "{h} took the {o}, <motion> <adverb> to the {q} and pulled {f.him} out.",
    'With the {o} in [one hand|a_ <colour> bag], {h.ref} <motion> <adverb> and <said>, "Hold on, {f}!"',
    "{h.ref} used the {o} <adverb>, and soon {f} was safe <near> the <plants>.",
    "Thanks to the {o}, {h.he} found {f} <near> a_ <hadj> <hiding> and <adverb> led {f.him} home.",
    "{h.he} tied the {o} to a_ <hadj> <hiding>, and {f.ref} <adverb> climbed up.",
]

NOISE = [
    "Every <daytime> a_ <sadj> <sound> came from the {q}, and the <creatures> were <bad>.",
    "One <weather> <daytime>, {h.ref} heard a_ <sadj> <sound> <near> the {q} and felt <bad>.",
    '"Who is there?" <said> {h} <sayhow>, for a_ <sadj> <sound> came from <near> the <plants>.',
    "People [<near> the {r} |]<adverb> said that a_ <colour> [ghost|monster|shadow|beast] lived <near> the {q} and ate <food>.",
]

GO_LOOK = [
    "{h.he} took the {o}, ate some <foodadj> <food> and <motion> <adverb> to the {q}.",
    "With the {o} under {h.his} arm, {h.ref} <motion> <adverb> <over> the <plants>.",
    "{h} was <bad>, but {h.he} held the {o} <adverb> and <motion> on.",
    "Step by step {h.he} <motion> past the <plants>, and the {o} felt <bodyfelt> and heavy.",
]

ONLY_FRIEND = [
    "But it was only {f}, a_ {f.trait} {f.kind}, who was <adverb> <job> with <number> <creatures>!",
    "There sat {f}, a_ {f.trait} {f.kind}, <adverb> <job> <near> a_ <hadj> <hiding>.",
    "Behind a_ <hadj> <hiding> {h.he} found {f}, a_ {f.trait} {f.kind} with a_ <colour> nose.",
]

EXPLAIN = [
    '"I was only <job>," <said> {f} <sayhow>, "because I felt <bad>."',
    "{f.he} <adverb> told {h.him} that <job> every <daytime> made {f.him} <good>.",
    '"I am sorry about the <sound>," <said> {f.ref} <sayhow> and <looked> at the {o}.',
    "{f} was <bad>, for {f.he} had no [friends|home|bed] <near> the {q}, only <creatures>.",
]

WISH = [
    "{h.he} wanted to build a_ <badj> <building> of <material> <near> the {q}.",
    "All <season> {h.ref} had <adverb> dreamed of a_ <material> <building> with <colour> [walls|doors|paint].",
    '"I will build a_ <badj> <building> from <material>," <said> {h} <sayhow>.',
    "The <creatures> <near> the {q} needed a_ <badj> <building>, so {h} <adverb> began to draw one.",
]

BUILD = [
    "{f} <adverb> brought <number> pieces of <material>, and {h} brought the {o}.",
    "They worked <adverb> with <material> and <material> until the <weather> <daytime>.",
    "The first <building> fell <adverb> into the <plants>, and {h.ref} felt <bad>.",
    "{h.ref} used the {o} for the roof, while {f} <adverb> painted it <colour>.",
    "With the {o} and some <material>, {f.ref} <adverb> mended the <oadj> wheel.",
    '"It needs more <material>," <said> {f} <sayhow>, and <motion> off to the {r}.',
]

BUILT = [
    "After <number> [days|weeks|months] it stood <near> the {q}, <colour> and <oadj>, with the {o} on top.",
    "When it was ready, <number> <creatures> <adverb> <cverb> around the {o}, and {h.ref} felt <good>.",
    "At last it was <oadj> and <badj>, and they <adverb> ate <foodadj> <food> beside it.",
]

GIFT_NEED = [
    "It was the birthday of {f}, a_ {f.trait} {f.kind}, and {h.ref} had no gift but <food>.",
    "{h} wanted to give {f} the {f.trait} {f.kind} something <oadj>, for {f.he} had been <bad> since <season>.",
    "{f} the {f.kind} had <adverb> helped {h.him} in the <season>, and now {h.he} wanted to give {f.him} something <oadj>.",
]

GIFT_MAKE = [
    "{h.he} made a_ {o} from <material>, <plantadj> <plants> and a bit of <material>.",
    "At the market <near> the {q}, {h.ref} <adverb> bought a_ {o} for <number> <oadj> coins.",
    "For <number> days {h.he} worked <adverb> on a_ {o} and ate only <foodadj> <food>.",
    "<near> the {q}, a_ <trait> <object> maker <adverb> showed {h.him} how to make a_ {o}.",
]

GIFT_GIVE = [
    '"This {o} is for you," <said> {h} <sayhow>, and {f.ref} <looked> at it.',
    "{f.ref} opened the <colour> parcel <adverb>, and inside was the {o}.",
    "{h} hid the {o} under the <plants>, and {f} found it <adverb> that <daytime>.",
]

RACE = [
    '"My legs are <bodyfelt>, but I can reach the {q} before you," <said> {f} <sayhow>.',
    "The winner would get a_ {o} and <number> [bowls|plates|baskets] of <foodadj> <food>.",
    "A_ <trait> judge in a_ <colour> hat <adverb> held up the {o} <near> the {p}.",
    "<number> <creatures> <looked> <adverb> as {h} and {f} stood <near> the <plants>.",
]

RACING = [
    "{f} <motion> <adverb> past the {r}, but then {f.he} stopped for <foodadj> <food>.",
    "{h.ref} <motion> <adverb> <over> the <plants> and never <looked> back at the <creatures>.",
    "<near> the {r}, {h} jumped <adverb> over a_ <hadj> <hiding> and felt <felt>.",
    "{f.ref} slipped <adverb> on the <plants>, so {h} stopped and helped {f.him} up.",
    "The <weather> wind pushed {f.him} <adverb> into the <plantadj> <plants>.",
]

RACED = [
    "In the end both reached the {q} together, and {h.ref} <adverb> shared the <foodadj> <food> and <food>.",
    "{h} won the {o}, but {h.he} <adverb> gave <foodadj> <food> to {f}.",
    "{f} won, yet {f.he} <adverb> gave the {o} to {h.him}, for {h.he} had been <trait> and <trait>.",
]

MAP = [
    "Inside a_ <oadj> <object> {h.he} <adverb> found a_ <colour> map that led to a_ {o} <near> the {q}.",
    "A_ <trait> <food> seller had <adverb> told {h.him} of a_ {o} hidden <near> the {q}.",
    '"Somewhere <near> the {q} lies a_ {o}," <said> {f} <sayhow> over a plate of <food>.',
    "An old song said that a_ {o} slept <over> the <plantadj> <plants> of the {q}.",
]

JOURNEY = [
    "They packed <foodadj> <food>, a_ <oadj> <object> and a_ <colour> blanket and left <adverb>.",
    "For <number> days they <motion> <adverb> past the {r} and slept <over> the <plants>.",
    "They crossed a_ <padj> [river|valley|hill|marsh|bridge], and {f} <adverb> sang about <food>.",
    "A_ <weather> <daytime> came, so they hid <near> a_ <hadj> <hiding> and talked about <job>.",
    "<near> the {r}, <number> <trait> <creatures> <adverb> showed them the way.",
]

TREASURE = [
    "At last {f.ref} saw the {o} <near> a_ <hadj> <hiding>, covered with <plants>.",
    "Then {h} <looked> <over> the <plantadj> <plants>, and there was the {o}!",
    '"Here is the {o}!" <said> {f} <sayhow>, and {h.ref} felt <good>.',
    "<adverb> {h.ref} moved a_ <hadj> <hiding>, and under it lay the {o}.",
    "<number> <trait> <creatures> were <adverb> guarding the {o} <near> the {q}, but {h.ref} gave them <food>.",
]

ENDINGS = [
    "From that <daytime> on, {h} and {f} shared their <food> and were <good>.",
    "That <daytime> {h.ref} fell asleep <adverb>, with the {o} beside the <colour> pillow.",
    "And {h} the {h.kind} <adverb> learned that <virtue> and <virtue> are worth more than a_ {o}.",
    "They ate <foodadj> <food> <near> the {p}, and even the <creatures> were <good>.",
    "Since then the {o} has [stood|hung|lain] <near> the {p}, and {h} is <good>.",
    "{h} and {f} <motion> home <adverb>, <good> and full of <foodadj> <food>.",
    "After that, {h} was never <bad> again, for {f} <motion> over every <daytime> with <foodadj> <food>.",
    'So {h} <looked> at the {o} and <said> <sayhow>, "<virtue> made us <good>."',
    "<number> [days|weeks|months|years] later {h} and {f} still told the <creatures> <adverb> about the {o}.",
    "The <daytime> ended <adverb>, and {h.ref} was <good> <near> the {p}.",
]

# The beats of each plot; a beat named twice says two of its sentences.
PLOTS = {
    "found": [FIND_OBJECT, MEET_FRIEND, OWNER, GIVE_BACK, THANKS],
    "lost": [HAVE_OBJECT, LOSE_OBJECT, MEET_FRIEND, ASK_HELP, SEARCH, SEARCH, FOUND_AGAIN],
    "quarrel": [MEET_FRIEND, FIND_OBJECT, QUARREL, QUARREL, SHARE],
    "rescue": [HAVE_OBJECT, MEET_FRIEND, TROUBLE, RESCUE, THANKS],
    "noise": [HAVE_OBJECT, NOISE, GO_LOOK, ONLY_FRIEND, EXPLAIN],
    "build": [HAVE_OBJECT, MEET_FRIEND, WISH, BUILD, BUILD, BUILT],
    "gift": [GIFT_NEED, GIFT_MAKE, GIFT_GIVE, THANKS],
    "race": [MEET_FRIEND, RACE, RACE, RACING, RACING, RACED],
    "treasure": [MEET_FRIEND, MAP, JOURNEY, JOURNEY, TREASURE],
}

# A sentence that names the friend may only follow a beat that introduces the friend.
INTRODUCES_FRIEND = (MEET_FRIEND, ONLY_FRIEND, GIFT_NEED)
INTRODUCES_OBJECT = (FIND_OBJECT, HAVE_OBJECT, GIFT_MAKE, RACE, MAP)


class _Teller:
    """Writes the sentences of one story and avoids using a template twice."""

    def __init__(self, scene, rng):
        self.scene, self.rng = scene, rng
        self.used, self.sentences = set(), []
        self.friend_known = self.object_known = False

    def say(self, templates):
        fresh = [t for t in templates if t not in self.used] or templates
        template = self.rng.choice(fresh)
        self.used.add(template)
        self.sentences.append(grammar.expand(template, self.rng, self.scene))
        return template

    def filler(self):
        pools = [SCENERY, HERO_ALONE] + ([TALK, TALK] if self.friend_known else [])
        pool = self.rng.choice(pools)
        if not self.object_known:
            pool = [t for t in pool if "{o" not in t]
        self.say(pool)

    def beat(self, templates):
        template = self.say(templates)
        self.friend_known |= templates in INTRODUCES_FRIEND
        self.object_known |= "{o" in template


def fillers_for(length, rng):
    """Chance of a filler sentence after each beat, as a list of counts to draw from."""
    return {"short": (0, 0, 0, 1), "medium": (0, 1, 1, 2), "long": (2, 3, 4, 5)}[length]


def _paragraphs(sentences, rng):
    """Joins the sentences of a long story, a blank line after every few."""
    text, left = sentences[0], rng.randint(3, 6)
    for sentence in sentences[1:]:
        left -= 1
        text += (" " if left else "\n\n") + sentence
        left = left or rng.randint(4, 7)
    return text


def tell(rng, wishes=None, length="medium"):
    """Returns (text, scene) of a new story."""
    scene = Scene(rng, wishes)
    teller = _Teller(scene, rng)
    counts = fillers_for(length, rng)
    teller.beat(OPENINGS)
    for beat in rng.choice(list(PLOTS.values())):
        for _ in range(rng.choice(counts)):
            teller.filler()
        teller.beat(beat)
    for _ in range(rng.choice(counts) // 2):
        teller.filler()
    teller.beat(ENDINGS)
    return _paragraphs(teller.sentences, rng) if length == "long" else " ".join(
        teller.sentences), scene
