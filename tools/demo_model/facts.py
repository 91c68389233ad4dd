"""Small facts the demo model is taught, as tables."""


def _table(text):
    """Lines of `key: value`, several per line, separated by semicolons."""
    pairs = [entry.split(":", 1) for line in text.strip().splitlines() for entry in line.split(";")
             if ":" in entry]
    return {key.strip(): value.strip() for key, value in pairs if key.strip()}


COLOURS = _table("""
the sky: blue; grass: green; snow: white; the sun: yellow; a banana: yellow; a lemon: yellow
a carrot: orange; an orange: orange; a tomato: red; a strawberry: red; a cherry: red; blood: red
milk: white; coal: black; a raven: black; a crow: black; a frog: green; a cucumber: green
a leaf: green; chocolate: brown; an elephant: grey; a swan: white; gold: yellow; a pig: pink
a flamingo: pink; a polar bear: white; the night: black; a plum: purple; a pumpkin: orange
the sea: blue; a fire engine: red; salt: white; sugar: white; a pea: green; a violet: purple
a mouse: grey; honey: golden; mud: brown; a blueberry: blue; a sheep: white; a rose: red
a crocodile: green; a cloud: white; a fox: red; a brick: red; a tree: green; wood: brown""")

SOUNDS = _table("""
dog: barks; cat: meows; cow: moos; sheep: bleats; horse: neighs; pig: grunts; duck: quacks
lion: roars; wolf: howls; owl: hoots; rooster: crows; hen: clucks; bee: buzzes; frog: croaks
snake: hisses; mouse: squeaks; donkey: brays; goose: honks; elephant: trumpets; crow: caws
tiger: roars; goat: bleats; pigeon: coos; parrot: talks; cricket: chirps""")

LEGS = _table("""
dog: four; cat: four; cow: four; horse: four; sheep: four; pig: four; fox: four; bear: four
spider: eight; bee: six; ant: six; beetle: six; butterfly: six; hen: two; duck: two; owl: two
swan: two; snake: no; fish: no; snail: no; crow: two; frog: four; lizard: four; mouse: four
elephant: four; penguin: two; kangaroo: two; crab: ten; rabbit: four; person: two; worm: no""")

HOMES = _table("""
bee: in a hive; bird: in a nest; fox: in a den; bear: in a cave; fish: in water; dog: in a kennel
horse: in a stable; rabbit: in a burrow; spider: in a web; whale: in the sea; cow: in a barn
pig: in a sty; mole: under the ground; penguin: on the ice; camel: in the desert; king: in a palace
owl: in a tree; squirrel: in a tree; frog: in a pond; lion: in the savannah; monkey: in the jungle
shark: in the sea; duck: on a pond; snail: in its shell; beaver: in a lodge; sailor: on a ship""")

BABIES = _table("""
cat: kitten; dog: puppy; cow: calf; sheep: lamb; horse: foal; hen: chick; duck: duckling
goose: gosling; pig: piglet; bear: cub; lion: cub; fox: cub; goat: kid; frog: tadpole; swan: cygnet
deer: fawn; kangaroo: joey; butterfly: caterpillar; owl: owlet; seal: pup""")

OPPOSITES = _table("""
hot: cold; big: small; tall: short; fast: slow; happy: sad; old: young; new: old; day: night
up: down; left: right; good: bad; open: closed; full: empty; hard: soft; wet: dry; dark: light
loud: quiet; rich: poor; strong: weak; early: late; near: far; high: low; long: short; clean: dirty
sweet: sour; black: white; brave: afraid; heavy: light; thick: thin; wide: narrow; first: last
true: false; yes: no; inside: outside; above: below; before: after; begin: end; win: lose
love: hate
push: pull; buy: sell; give: take; laugh: cry; easy: difficult; summer: winter; friend: enemy
kind: cruel; smooth: rough; sharp: blunt; deep: shallow; awake: asleep; north: south; east: west""")

CAPITALS = _table("""
France: Paris; Germany: Berlin; Italy: Rome; Spain: Madrid; Portugal: Lisbon; Austria: Vienna
Poland: Warsaw; Greece: Athens; Norway: Oslo; Sweden: Stockholm; Finland: Helsinki
Denmark: Copenhagen; Ireland: Dublin; England: London; Scotland: Edinburgh; Belgium: Brussels
Hungary: Budapest; Russia: Moscow; Turkey: Ankara; Egypt: Cairo; Kenya: Nairobi; Japan: Tokyo
China: Beijing; India: New Delhi; Canada: Ottawa; Mexico: Mexico City; Brazil: Brasilia; Peru: Lima
Chile: Santiago; Cuba: Havana; Iceland: Reykjavik; Switzerland: Bern; Australia: Canberra
the Netherlands: Amsterdam; the United States: Washington; the Czech Republic: Prague""")

USES = _table("""
lantern: gives light in the dark; key: opens a lock; map: shows the way; bell: rings
umbrella: keeps off the rain; clock: tells the time; broom: sweeps the floor; pencil: writes
spoon: is for eating soup; hammer: drives in nails; needle: is for sewing
boat: carries us over water
compass: shows where north is; blanket: keeps us warm; ladder: helps us climb; cup: holds a drink
book: is for reading; comb: tidies the hair; bed: is for sleeping; knife: cuts bread
telescope: makes far things look near; kettle: boils water; candle: gives light
chair: is for sitting
net: catches fish; shovel: digs holes; coin: buys things; whistle: makes a loud sound
basket: carries things; oven: bakes bread; mirror: shows your face; scarf: keeps the neck warm""")

TASTES = _table("""
lemon: sour; honey: sweet; sugar: sweet; salt: salty; vinegar: sour; cake: sweet; pepper: hot
chocolate: sweet; jam: sweet; coffee: bitter; grapefruit: bitter; candy: sweet""")

DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = ("January February March April May June July August September October November "
          "December").split()
LETTERS = "A B C D E F G H I J K L M N O P Q R S T U V W X Y Z".split()

# Smallest first.
SIZES = """ant bee mouse frog rat hedgehog cat fox dog goat sheep wolf pig lion bear horse camel
elephant whale""".split()

COUNTS = _table("""
How many days are in a week?: There are seven days in a week.
How many months are in a year?: There are twelve months in a year.
How many seasons are there?: There are four seasons: spring, summer, autumn and winter.
How many hours are in a day?: There are twenty-four hours in a day.
How many minutes are in an hour?: There are sixty minutes in an hour.
How many wheels does a car have?: A car has four wheels.
How many wheels does a bicycle have?: A bicycle has two wheels.
How many fingers are on a hand?: There are five fingers on a hand.
How many letters are in the alphabet?: There are twenty-six letters in the alphabet.
How many sides does a triangle have?: A triangle has three sides.
How many sides does a square have?: A square has four sides.
How many eyes does a cat have?: A cat has two eyes.
What is water made of?: Water is made of hydrogen and oxygen.
What is ice?: Ice is frozen water.
What do cows give us?: Cows give us milk.
What do bees make?: Bees make honey.
What do hens lay?: Hens lay eggs.
Where does wool come from?: Wool comes from sheep.
What falls from the sky in winter?: Snow falls from the sky in winter.
What shines in the sky at night?: The moon and the stars shine in the sky at night.
What shines in the sky by day?: The sun shines in the sky by day.
Where does the sun rise?: The sun rises in the east.
Where does the sun set?: The sun sets in the west.
What is the largest animal?: The blue whale is the largest animal.
What is the tallest animal?: The giraffe is the tallest animal.
What is the fastest animal on land?: The cheetah is the fastest animal on land.
What is the king of the animals?: The lion is called the king of the animals.
What is the highest mountain?: Mount Everest is the highest mountain.
What do we breathe?: We breathe air.
What do plants need?: Plants need water, light and air.
What is bread made of?: Bread is made of flour, water and salt.
What is the moon?: The moon is a ball of rock that circles the earth.
What is the earth?: The earth is the planet we live on.
What is the sun?: The sun is a star.
What comes after night?: Day comes after night.
What do you need for a kite?: You need wind for a kite.""")

IDENTITY = [
    (("Who are you?", "What are you?", "Please introduce yourself.", "Tell me about yourself.",
      "who are you", "Are you a robot?", "Are you a person?", "What kind of model are you?"),
     ("I am the Sluice demo model, a very small language model that tells stories.",)),
    (("What is your name?", "Do you have a name?", "What should I call you?"),
     ("My name is Sluice Demo.",)),
    (("What can you do?", "What do you know?", "How can you help me?", "Help!", "Can you help me?"),
     ("I can tell short stories, answer simple questions and add small numbers.",)),
    (("Who made you?", "Where do you come from?", "Who built you?", "How were you made?"),
     ("I was made by the Sluice project, and I learned from stories that a program wrote.",)),
    (("How old are you?", "When were you born?"),
     ("I have no age, but I am still a very small model.",)),
    (("How are you?", "How are you today?", "How do you feel?", "Are you well?"),
     ("I am well, thank you. How can I help you?",)),
    (("Hello!", "Hi!", "Hello", "Hi there!", "Good morning!", "Good evening!", "hi", "Hey!",
      "Hello there."),
     ("Hello! What would you like to hear?", "Hello! Would you like a story?")),
    (("Thank you!", "Thanks!", "Thank you very much.", "Thanks a lot!", "That was lovely."),
     ("You are welcome!", "You are welcome! I am glad that you liked it.")),
    (("Goodbye!", "Bye!", "See you!", "Good night!", "Farewell!"),
     ("Goodbye! Come back for another story.", "Goodbye, and sleep well!")),
    (("What is your favourite colour?", "Which colour do you like?"),
     ("I like green, like the grass in my stories.",)),
    (("What is your favourite animal?", "Which animal do you like?"),
     ("I like foxes, for they are in many stories.",)),
    (("Do you like stories?", "Do you like to tell stories?"),
     ("Yes, I like stories very much.",)),
]

UNKNOWN_QUESTIONS = [
    "Who is the president of {w}?", "What is the capital of {W}?", "How does a {w} work?",
    "Can you write a program that sorts {w}?", "What is the price of {w}?",
    "Explain {w} to me.", "Who won the {w} in 1998?", "Write code in {W}.",
    "What is the meaning of {w}?", "When was {W} born?", "Why is {w} important?",
    "Give me a recipe for {w}.", "What happened in {W} last year?", "Translate {w} into French.",
    "What do you think about {w}?", "How do I repair my {w}?", "Where can I buy a {w}?",
    "What is the history of {W}?", "Who wrote {W}?", "Is {w} good for me?",
]
UNKNOWN_TOPICS = """music physics football Python computer engine money chess history quantum law
internet bitcoin telephone camera television democracy chemistry gravity electricity Napoleon
Shakespeare algebra software poetry weather medicine philosophy economy rocket piano
Mars war science art virus museum airport Linux C++ keyboard database""".split()
UNKNOWN_ANSWERS = [
    "I do not know that. I am a small model and know mostly stories.",
    "I am sorry, I do not know. Would you like a story instead?",
]
