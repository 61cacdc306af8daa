"""Requests with gaps; a gap's name says what fills it (see ``generate``)."""

from __future__ import annotations

CHAT = (
    "What do you think about {subject}?",
    "Explain {subject} to a ten-year-old.",
    "Give me five tips about {subject}.",
    "I would like to learn more about {subject}. Where should I start?",
    "What are common misconceptions about {subject}?",
    "Why do people care so much about {subject}?",
    "Compare {subject} and {subject}.",
    "Write a short introduction to {subject} for beginners.",
    "What are the advantages and disadvantages of {subject}?",
    "Tell me something surprising about {subject}.",
    "Plan a one-day workshop about {subject}.",
    "How has {subject} changed in the last hundred years?",
    "Make a list of ten facts about {subject}.",
    "Pretend to be {role} and tell me about {subject}.",
    "You are {role}. A visitor asks about {subject}. What do you say?",
    "I am worried about {subject}. Can you give me some advice?",
    "What would you ask an expert on {subject}?",
    "How can I explain {subject} to my grandmother?",
)

WRITING = (
    "Write a short story about {person} and {subject}.",
    "Write a poem about {subject}.",
    "Write a blog post about {subject}.",
    "Write an email in which {person} asks {person} about {subject}.",
    "Write a news article about {subject} in {place}.",
    "Write a dialogue between {person} and {person} about {subject}.",
    "Write a product description for something to do with {subject}.",
    "Write a letter of complaint about {subject} from {person} in {place}.",
    "Describe {place} on an early morning in autumn.",
    "Write a speech by {role} on {subject}.",
    "Write the opening paragraph of a novel set in {place}.",
    "Write an essay on {subject} with an introduction, three arguments and a conclusion.",
    "Write a travel report about {place}.",
    "Write a diary entry of {person}, who has just learned about {subject}.",
    "Write a report of a meeting about {subject} in {place}, with names and dates.",
    "Write a biography of an imaginary expert on {subject} called {person}.",
)

CODE = (
    "Write a {language} function that {task}.",
    "Write a {language} program that {task}. Explain how it works.",
    "How do I write code in {language} that {task}?",
    "Write a Python function that {task} and add a docstring and two examples.",
    "Write a Python class with a method that {task}.",
    "Show me two different ways to write a Python function that {task}.",
    "Write unit tests for a Python function that {task}.",
    "Write a Python script that {task} and then {task}.",
)

QA = (
    "What is {subject}?",
    "Who first wrote about {subject}?",
    "When did people begin to study {subject}?",
    "What is the most important thing to know about {subject}?",
    "Where can one see {subject}?",
    "How does {subject} work?",
    "What is the difference between {subject} and {subject}?",
    "Answer in one sentence: why is {subject} important?",
    "Is it true that {subject} is dangerous?",
    "Which famous people are connected with {subject}?",
)

MATH = (
    "{person} has {number} {things}. {person} gives away {small} and buys {number} more. How many "
    "{things} are there now?",
    "A box holds {small} {things}. How many boxes are needed for {number} {things}?",
    "A shop sells {things} at ${small} each. {person} buys {small} and pays with a ${hundred} "
    "bill. How much change is given?",
    "{person} drives at {tens} miles per hour for {small} hours. How far is that?",
    "What is {tens} percent of {hundred}?",
    "A rectangle is {small} cm wide and {number} cm long. What are its area and its perimeter?",
    "{person} saves ${number} a week. After how many weeks has {person} saved ${hundred}?",
    "There are {number} {things} in a bag and twice as many in a second bag. {person} takes "
    "{small} from each. How many are left in total?",
    "Solve for x: {small}x + {number} = {hundred}. Show each step.",
    "Compute {number} + {number} * {small}. Explain each step.",
    "{person} is {number} years old. {person} is {small} years younger. How old will both be "
    "together in {small} years?",
    "The average of {number}, {number} and x is {tens}. What is x?",
    "{person} works {small} hours a day for {small} days and earns ${tens} an hour. How much is "
    "earned in all?",
    "A class of {tens} pupils has {small} more girls than boys. How many girls are there?",
    "A train leaves {place} at {small} o'clock and needs {number} minutes to {place}. When does it "
    "arrive? Think step by step.",
    "If {small} workers build a wall in {number} days, how long do {small} workers need?",
)

TRANSLATION = (
    'Translate to {tongue}: "{sentence}."',
    "Translate the following sentence into {tongue}: {sentence}.",
    "How do you say this in {tongue}? {sentence}.",
    "Translate into {tongue}: {sentence}. {sentence}.",
)

EDITING = (
    "Fix the mistakes in this code and return the whole code:\n\n{code}",
    "Rename the variables to clearer names and return the whole code:\n\n{code}",
    "Add type hints to this code:\n\n{code}",
    "Add comments to this code:\n\n{code}",
    "Explain what this code does:\n\n{code}",
    "Write a docstring for this function:\n\n{code}",
    "What could be improved here?\n\n{code}",
)

# About a passage.
SUMMARY = (
    "Summarize the following text:\n\n{passage}",
    "Summarize this text in two sentences.\n\n{passage}",
    "{passage}\n\nSummarize the text above in one paragraph.",
    "Summary of the following article, please:\n{passage}",
    "What are the main points of this text?\n\n{passage}",
    "Give a short summary and a title:\n\n{passage}",
    "Summarize: {passage}\nTL;DR:",
)

EXTRACTION = (
    "List all names of people and places in this text:\n\n{passage}",
    "Extract the key facts from the following text as a list:\n\n{passage}",
    "Extract names, dates and numbers from this text as JSON:\n\n{passage}",
    "Which persons are mentioned here, and what do they do?\n\n{passage}",
    "Make a table of the most important things in this text:\n\n{passage}",
    "Find five keywords for this text:\n\n{passage}",
    "Read the text and answer in JSON with the keys title, topic and mood.\n\n{passage}",
)

READING = (
    "Answer the question with the help of the text.\n\nText: {passage}\n\nQuestion: What is it "
    "about?",
    "{passage}\n\nWhat does the text say about {subject}?",
    "Given the following documents, answer the question.\n\nDocument 1: {passage}\n\nQuestion: "
    "What should one remember?",
    "Context: {passage}\n\nWho or what is the text mainly about? Explain your answer.",
    "Use only this information to explain the topic to a friend:\n\n{passage}",
)

REWRITING = (
    "Rewrite this text so that it is easier to read:\n\n{passage}",
    "Make this text shorter and friendlier:\n\n{passage}",
    "Correct the spelling and grammar of this text:\n\n{passage}",
    "Rewrite the following text in a formal tone:\n\n{passage}",
    "Continue this text:\n\n{passage}",
    "Translate this text to {tongue}:\n\n{passage}",
)

OPEN = {
    "chat": CHAT,
    "writing": WRITING,
    "code": CODE,
    "qa": QA,
    "math": MATH,
    "translation": TRANSLATION,
    "editing": EDITING,
}
ABOUT_A_TEXT = {
    "summary": SUMMARY,
    "extraction": EXTRACTION,
    "rag": READING,
    "rewriting": REWRITING,
}

# About texts and functions that are given; where it ends in the middle of a question, the target
# draws the rest.
ABOUT_DOCUMENTS: dict[str, tuple[str, ...]] = {
    "summary": (
        "Summarize the text.\n\n{document}",
        "{document}\n\nSummarize the text above.",
        "Article:\n{document}\n\nWrite a short summary.",
        "Please give a summary of this in a few sentences:\n\n{document}",
        "What is this text about?\n\n{document}",
        "{document}\n\nIn short:",
        "Summarize: {document}",
        "Condense the following into three points.\n\n{document}",
    ),
    "rag": (
        "{document}\n\n{document}\n\nQuestion: What is said about {subject}?",
        "Answer from the text only.\n\nText: {document}\n\nQuestion: what",
        "Context:\n{document}\n\nQuestion: who",
        "Documents:\n1. {document}\n2. {document}\n\nQuestion: how",
        "Here is some information.\n{document}\n\nUsing it, tell me why",
        "{document}\n\nBased on the passage, when",
        "{document}\n\nWhich",
    ),
    "extraction": (
        "List the names in this text.\n\n{document}",
        "Extract the most important facts as bullet points:\n\n{document}",
        "{document}\n\nWhat numbers are mentioned above?",
        "Give JSON with the keys title, topic and keywords for this text:\n\n{document}",
        "Quote the sentence that matters most.\n\n{document}",
    ),
    "rewriting": (
        "Rewrite this so that a child understands it:\n\n{document}",
        "Make it shorter:\n\n{document}",
        "Correct and repeat this text:\n\n{document}",
        "Rewrite in a more formal tone.\n\n{document}",
    ),
    "code": (
        "Explain this code.\n\n{code}",
        "Add a docstring to this function:\n\n{code}",
        "{code}\n\nRewrite this function with type hints.",
        "Find bugs in this:\n\n{code}",
        "Write tests for\n\n{code}",
        "Add comments:\n\n{code}",
        "Rename the variables so that they are clearer:\n\n{code}",
    ),
}
ABOUT_SHARES = {"summary": 42, "rag": 26, "extraction": 14, "rewriting": 6, "code": 12}
