"""What the generated prompts are about."""

from __future__ import annotations


def _listed(text: str) -> tuple[str, ...]:
    return tuple(" ".join(part.split()) for part in text.split(";") if part.strip())


SUBJECTS = _listed(
    """
    volcanoes; coral reefs; the water cycle; honey bees; migration of birds; whales; deserts;
    glaciers; photosynthesis; vaccines; antibiotics; the human heart; sleep; memory; dreams;
    nutrition; running a marathon; yoga; chess; jazz; the piano; painting with watercolours;
    photography; pottery; knitting; gardening on a balcony; composting; baking bread; coffee; tea;
    cheese; olive oil; street food; the Roman Empire; ancient Egypt; the Silk Road; the Vikings;
    the Renaissance; the printing press; the industrial revolution; the French Revolution;
    the space race; the moon; Mars; black holes; comets; the Big Bang; gravity; magnetism;
    electricity; batteries; solar power; wind turbines; nuclear energy; electric cars; bicycles;
    high-speed trains; bridges; skyscrapers; lighthouses; sailing ships; maps; compasses; clocks;
    the calendar; money; inflation; banks; insurance; taxes; budgeting; startups; remote work;
    job interviews; teamwork; leadership; time management; public speaking; writing a novel;
    poetry; theatre; film music; animation; video games; board games; football; tennis; swimming;
    climbing; camping; hiking in the mountains; fishing; dogs; cats; horses; parrots; ants; spiders;
    sharks; dinosaurs; fossils; forests; rivers; earthquakes; hurricanes; snow; rainbows; climate;
    recycling; plastic in the oceans; cities; public transport; libraries; museums; schools;
    learning a language; mathematics; prime numbers; statistics; probability; geometry; algebra;
    computers; the internet; encryption; passwords; search engines; robots; machine learning;
    social media; smartphones; satellites; GPS; 3D printing; genetics; DNA; evolution; cells;
    the immune system; the brain; friendship; happiness; stress; meditation; parenting; weddings;
    holidays in Italy; a trip to Japan; travelling by train; packing a suitcase; moving house;
    houseplants; fitness at home; healthy breakfasts; vegetarian cooking; soups; desserts; spices;
    wine; chocolate; fashion; furniture; architecture; photography at night; philosophy; ethics;
    democracy; elections; the United Nations; human rights; journalism; advertising; law;
    medicine; nursing; dentistry; veterinary work; farming; beekeeping; carpentry; plumbing
    """
)

TASKS = _listed(
    """
    reverses a string; checks whether a word is a palindrome; counts the vowels in a text;
    finds the largest number in a list; removes duplicates from a list; merges two sorted lists;
    computes the factorial of a number; computes the n-th Fibonacci number;
    checks whether a number is prime; lists all primes below n; sorts a list with bubble sort;
    sorts a list with quicksort; does a binary search; counts the words in a file;
    reads a CSV file and prints the sum of a column; writes a dictionary to a JSON file;
    converts Celsius to Fahrenheit; converts a number to binary; converts Roman numerals;
    computes the greatest common divisor; flattens a nested list; rotates a matrix;
    multiplies two matrices; transposes a matrix; finds the most common word in a text;
    groups words that are anagrams; validates an email address; generates a random password;
    counts the days between two dates; parses a date; formats a number with thousands separators;
    implements a stack; implements a queue; implements a linked list; implements a binary tree;
    walks a directory and lists all files; downloads a web page; retries a function when it fails;
    measures how long a function takes; caches the results of a function; splits a list in chunks;
    computes the average of a list; computes the median; computes the standard deviation;
    simulates rolling two dice; plays rock, paper, scissors; draws a triangle of stars;
    solves the towers of Hanoi; finds the shortest path in a graph; does a breadth-first search;
    checks whether brackets are balanced; computes the power of a number; encodes a Caesar cipher;
    counts how often each letter occurs; finds the second largest value; swaps two variables;
    prints a multiplication table; converts minutes to hours and minutes; joins a list of names;
    replaces spaces by underscores; capitalises each word; sums the digits of a number;
    checks whether a year is a leap year; finds missing numbers in a range; filters even numbers;
    zips two lists into a dictionary; inverts a dictionary; sorts a dictionary by value;
    creates a bank account class; creates a class for rectangles; models a library of books;
    keeps a shopping cart; logs messages to a file; reads command line arguments
    """
)

LANGUAGES = ("Python", "Python", "Python", "JavaScript", "Java", "C", "C++", "Go", "SQL", "bash")

PEOPLE = _listed(
    """
    Anna; Ben; Carla; David; Elif; Farid; Grace; Hugo; Ines; Jonas; Karin; Leo; Maria; Noah; Olga;
    Pedro; Rosa; Samuel; Tara; Uwe; Vera; Wang; Yusuf; Zoe; Mr. Olsen; Mrs. Bianchi; Dr. Mehta;
    Captain Reyes; Professor Lind; Aunt May
    """
)

PLACES = _listed(
    """
    Paris; Lisbon; Oslo; Nairobi; Lima; Kyoto; Toronto; Sydney; Cairo; Mumbai; Prague; Dublin;
    Boston; Havana; Hanoi; Seville; Tallinn; Bergen; Accra; Quito; Vienna; Zagreb; the old harbour;
    a small village; the city library; the market square; the northern coast; the valley
    """
)

THINGS = _listed(
    """
    apples; books; pencils; tickets; marbles; cookies; chairs; eggs; stamps; bottles; oranges;
    flowers; coins; stickers; cups; shirts; boxes; bricks; candles; balls; pizzas; sandwiches
    """
)

ROLES = _listed(
    """
    a pirate; a detective; a chef; a history teacher; a doctor; a travel guide; a scientist;
    a poet; a football coach; a wise old monk; a librarian; a salesperson; a robot; a king;
    a news reporter; a tour guide in a museum; a farmer; an astronaut; a lawyer; a gardener
    """
)

SENTENCES = _listed(
    """
    The train leaves at seven in the morning; My sister works in a hospital; We are going to the
    beach tomorrow; Where is the nearest pharmacy?; I would like a table for two, please; It has
    been raining for three days; The children are playing in the garden; He forgot his keys at the
    office; Can you help me carry this box?; The museum is closed on Mondays; I have never been to
    Spain; She is reading a book about the sea; This soup is too salty; Our neighbours have a new
    dog; The meeting was moved to Thursday afternoon; Please close the window before you leave;
    They bought a small house near the lake; I am learning to play the guitar; The bread is fresh
    and still warm; He asked me what time it was; We waited for an hour at the station; My brother
    wants to become a teacher; The lights went out during the storm; You can pay with a card or in
    cash; The mountain is covered with snow; I lost my umbrella on the bus; The shop opens at nine;
    She speaks four languages; We need more time to finish the report; The cat sleeps on the sofa
    """
)

TONGUES = ("French", "Spanish", "German", "Italian", "Portuguese", "Dutch")
