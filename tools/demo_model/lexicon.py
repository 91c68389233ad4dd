"""Words the story and question generators draw from. All of it is ours."""


def _words(text):
    """Splits a block of words; an underscore stands for a blank inside one entry."""
    return [w.replace("_", " ") for w in text.split()]


FEMALE_NAMES = _words("""
Ada Alma Amara Anka Anouk Asha Astrid Aurora Bella Berta Bianca Brisa Calla Carla Celia Chiara Clara
Cora Dalia Daria Dora Edda Elena Elin Elsa Emma Enya Esme Etta Fara Fern Fiona Flora Freya Gala
Gerda Gilda Greta Hana Hazel Hedda Helga Ida Ilka Ilse Ines Inga Iris Isla Ivy Jana Jasmin Jenna
Josie Juna Kaia Katya Kira Klara Lana Leila Lena Lila Linnea Lotte Lucia Luna Maja Mara Marta Maya
Meera Mila Mina Mira Nadia Nella Nina Nora Odette Olga Olive Paula Pearl Petra Pia Pola Ramona Rita
Romy Rosa Ruby Runa Sana Selma Senna Signe Sofia Stella Suri Tara Tessa Thea Tilda Una Vera Viola
Wanda Willa Yara Yuki Zara Zelda Zoe""")

MALE_NAMES = _words("""
Abel Adam Alvar Amos Anton Aron Arlo Axel Barnaby Basil Bela Benno Boris Bruno Caleb Carlo Casper
Cedric Cosmo Cyrus Dario David Davor Diego Dorian Edgar Edwin Elias Emil Enzo Erik Ezra Felix Fergus
Finn Florian Franz Gabor George Gideon Gregor Gus Hamid Hans Harald Hector Henry Hugo Igor Ilya
Isaac Ivan Jasper Joel Jonas Jory Jules Kaspar Kenji Kian Klaus Lars Leif Leo Levi Linus Lorenz
Lucas Luka Magnus Marco Mateo Max Milo Moritz Nico Niels Noah Odo Olaf Omar Orin Oscar Otto Owen
Pablo Percy Piet Quinn Rafi Ravi Remo Rocco Roland Rufus Samir Sami Silas Simon Stefan Sven Taro
Teo Theo Tobias Tomas Ulf Umar Viktor Vito Walter Wim Yannis Yusuf Zeno""")

ANIMALS = _words("""
fox owl bear hare mouse badger otter hedgehog squirrel wolf frog toad deer goat sheep cow horse
donkey pig duck goose hen rooster cat dog rabbit mole beaver raccoon lion tiger elephant giraffe
zebra monkey panda koala kangaroo penguin seal whale dolphin crab turtle tortoise snail lizard
snake crow raven sparrow robin swan heron stork eagle falcon parrot pigeon bat rat hamster camel
llama moose weasel lynx leopard crocodile dragon unicorn pony kitten puppy lamb""")

PEOPLE_F = _words("girl princess queen grandmother witch shepherdess")
PEOPLE_M = _words("boy prince king grandfather wizard fisherman")
PEOPLE = _words("""baker sailor farmer painter tailor miller gardener carpenter teacher doctor robot
knight giant clown pilot singer dancer weaver potter inventor explorer pirate blacksmith""")

TRAITS = _words("""
brave kind clever shy proud gentle lazy curious quiet cheerful grumpy patient honest lonely young
old tiny tall strong careful stubborn friendly merry hungry sleepy wise busy playful polite nervous
thoughtful bold dreamy humble jolly loyal modest noble restless sensible silly timid witty calm
eager generous graceful hopeful plump serious""")

OBJECTS = _words("""
lantern key map coin ring bell drum flute kite ball book basket blanket boat bottle bowl box broom
brush bucket button candle cap cart chair clock cloak comb compass cup diary doll feather fiddle
flag fork glove hammer hat horn jar jewel kettle ladder lamp letter locket mirror mug necklace
needle net paddle painting pan pearl pencil pillow pipe plate pot puppet puzzle quilt rope saddle
sail scarf shell shield shoe shovel sled spoon statue stone stool sword table teapot telescope tent
thimble top torch trumpet trunk umbrella vase violin wagon watch wheel whistle wreath bag bead
boot bracelet brooch cage chest crown cushion dish egg fan helmet hook jug mask medal oar parcel
purse rattle ribbon scroll seed spade star ticket toy tray wand""")

OBJECT_ADJECTIVES = _words("""
silver golden copper wooden glass iron velvet paper painted broken shiny dusty heavy tiny huge old
new strange magic plain pretty round striped spotted red blue green yellow purple orange white black
pink brown grey bright smooth rusty carved little odd precious simple splendid thin thick warm
antique crooked curious dented elegant fancy fragile marvellous muddy narrow polished rare secret
""")

PLACES = _words("""
mill river bridge castle forest lake hill barn garden harbour market tower well cave cottage meadow
mountain village island orchard pond road school shop station swamp temple valley beach church
cliff farm fountain gate hut inn library lighthouse marsh mine palace park path quarry ruin stable
stream tavern theatre tunnel vineyard wall waterfall windmill workshop bakery field canal chapel
crossroads dune fort glade grove hedge maze museum oak pier ravine shore square""")

PLACE_ADJECTIVES = _words("""
old ruined quiet misty green tall empty hidden narrow wide sunny dark crooked stony mossy windy busy
sleepy lonely little great ancient white red grey frozen wild pretty dusty forgotten peaceful sandy
shady silent steep famous northern southern eastern western""")

WEATHER = _words("""
foggy sunny rainy windy stormy snowy cloudy frosty warm cold mild icy bright grey golden quiet hot
cool misty clear damp dull fresh gloomy lovely pale silent strange wet wild""")
DAYTIMES = _words("""
morning afternoon evening day""")
SEASONS = _words("spring summer autumn winter")

ADVERBS = _words("""
slowly quickly quietly gently happily proudly bravely carefully calmly eagerly
gladly nervously patiently secretly shyly silently sadly anxiously cheerfully cleverly
curiously gracefully hastily merrily neatly sleepily timidly wearily""")

MOTION = _words("""
walked ran hurried wandered crept marched strolled rushed trotted tiptoed travelled went raced
stumbled skipped sneaked paced limped hiked roamed""")
SAID = _words("""said whispered cried answered called muttered shouted laughed replied sighed
murmured announced declared mumbled""")
LOOKED = _words("looked stared gazed peeked glanced peered blinked squinted")
GOOD_FELT = _words("""
happy proud grateful cheerful calm peaceful lucky relieved delighted glad
joyful merry content pleased safe hopeful excited warm""")

CREATURES = _words("""beetles bees moths sparrows butterflies crickets ants swallows mice frogs
snails ducks geese pigeons spiders fireflies dragonflies ladybirds crows gulls rabbits lizards
wrens finches""")
CREATURE_VERBS = _words("""
danced rested played slept sang waited hid gathered chattered wandered whispered""")
PLANTS = _words("""
clover ferns roses nettles thistles reeds daisies ivy tulips poppies brambles
lilies heather moss mushrooms violets pines willows birches sunflowers grass cabbages pumpkins
lavender barley bluebells buttercups hazels marigolds rushes""")
COLOURS = _words("red blue green yellow purple orange white black pink brown grey golden silver")
NUMBERS = _words("two three four five six seven eight nine ten")
FOODS = _words("""soup bread cake honey cheese porridge apples pancakes biscuits berries nuts pie
stew jam plums dumplings carrots noodles rice pudding figs waffles tea cocoa milk lemonade butter
beans corn raisins toast chestnuts""")
FOOD_ADJECTIVES = _words("""
warm sweet fresh hot tasty cold delicious plain homemade excellent simple wonderful""")
SOUNDS = _words("""bell drum whistle thunder song knock splash roar footstep voice cough crash
squeak howl creak laugh""")
PREPOSITIONS = ["near", "behind", "beside", "close to", "not far from", "by", "next to"]
OVER = ["above", "under", "among", "beside", "around", "behind", "near"]
JOBS = _words("""sweeping cooking digging painting singing baking fishing reading sewing counting
washing drawing sleeping whistling dancing planting carving knitting mending dreaming thinking
resting""")
MATERIALS = _words("""wood clay stone wool straw paper leather bricks rope silk sand tin copper
bamboo felt linen""")
BUILDINGS = _words("""house raft bridge nest boat tower fence hut kite wagon oven sled bench shelf
tent clock garden swing mill ladder""")
VIRTUES = _words("""kindness courage patience honesty friendship sharing trust luck hope wisdom
laughter gratitude generosity practice""")
HIDING = _words("""
log stone bush barrel fence root rock branch crate bench tree haystack cupboard
stump wall pot box ladder bucket ditch""")

WEEKDAYS = _words("""
Monday Tuesday Wednesday Thursday Friday Saturday Sunday""")

SPEECH_ADVERBS = _words("""
slowly quickly quietly gently softly happily sadly proudly bravely
calmly eagerly gladly nervously politely patiently shyly warmly wisely angrily anxiously
cheerfully curiously firmly hastily honestly kindly loudly merrily sleepily solemnly thoughtfully
timidly wearily""")

BAD_FELT = _words("""
sad lonely tired angry afraid worried jealous ashamed nervous confused foolish
guilty restless puzzled small unhappy upset helpless cross gloomy""")

BODY_FELT = _words("""
tired cold warm heavy wet sore stiff numb muddy dusty""")

PLANT_ADJECTIVES = _words("""
tall wet green wild yellow white red sweet thick dry soft young frozen
fresh tiny purple pink bent dark golden old pale dusty tangled""")

HIDING_ADJECTIVES = _words("""
old big small broken low wide round dark dusty heavy crooked mossy fallen little
dry grey green wet""")

BUILDING_ADJECTIVES = _words("""
fine splendid strong little pretty round new tall big cosy sturdy simple clever tiny
proper perfect""")

SOUND_ADJECTIVES = _words("""
loud strange soft low long deep sudden odd faint terrible sharp hollow""")

WORD_SYLLABLES = _words("""ba be bo bra da do dri fa fen flo ga gli go gru ka kel ki la lo lum ma mi
mo na nor pa pel pi ra ri ro sa sel ta tin to tru va vel vi wa wi za zo zu ny sk th ch el or um ix
en ar""")

VOWEL_SOUND_EXCEPTIONS = {"unicorn", "useful"}
